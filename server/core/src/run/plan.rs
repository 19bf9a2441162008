//! Situations and instructions. A run that waits for nothing outside is in a situation, and needs an instruction: from
//! the built-in loop, from a planner, or by a call of `Step`.

use serde::{Deserialize, Serialize};

use crate::limits::{OPTIONS_MAX, SHORT_TEXT_BYTES_MAX};
use crate::message::FinishReason;
use crate::question::form::Form;
use crate::question::{BadQuestion, is_metadata};
pub use crate::run::human::SelectOption;
use crate::text::link::is_address;

/// Reasons why a run needs an instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Situation {
    /// The caller's messages are in the session, and nothing has been done yet.
    Prompted,
    /// The model has responded and requests no tool call.
    Responded {
        /// Finish reason of the response.
        finish: FinishReason,
    },
    /// Tool calls wait for an instruction to run.
    CallsWaiting,
    /// Every tool call of the round has its result.
    ToolsSettled,
    /// A person answered the planner's question, or nobody did in time. Tool calls may wait.
    HumanAnswered,
    /// The context was compacted. Tool calls may wait.
    Compacted,
}

/// The next thing to do. **This is journal format**: variants and fields are only added.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Instruction {
    /// Call the model with the session as it is.
    CallModel,
    /// Run the waiting tool calls, after an approval where one is needed.
    CallTools,
    /// Ask people to approve each waiting tool call, whatever the policy says.
    RequestApproval,
    /// Ask people for text.
    RequestPrompt {
        /// The question, for people.
        question: String,
        /// Facts about the question for programs, a JSON object.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        metadata: Option<String>,
    },
    /// Ask people to choose.
    RequestSelect {
        /// The question, for people.
        question: String,
        /// The options to choose from.
        options: Vec<SelectOption>,
        /// True if several may be chosen.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        multiple: bool,
        /// Facts about the question for programs, a JSON object.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        metadata: Option<String>,
    },
    /// Ask people to fill in a form.
    RequestForm {
        /// The question, for people.
        question: String,
        /// JSON schema of the form.
        form: String,
        /// Facts about the question for programs, a JSON object.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        metadata: Option<String>,
    },
    /// Ask people to visit a link.
    RequestUrl {
        /// The question, for people.
        question: String,
        /// An `http:` or `https:` link, which the server never fetches.
        url: String,
        /// Facts about the question for programs, a JSON object.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        metadata: Option<String>,
    },
    /// Compact the context before the next model call.
    Compact {
        /// Name of the strategy; empty means the run's own.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        strategy: String,
    },
    /// End the run: completed with the model's last message, or failed.
    Finish {
        /// The reason of a failure; absent if the run completes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failure: Option<String>,
    },
}

impl Instruction {
    /// Name of the instruction in errors and logs.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::CallModel => "call_model",
            Self::CallTools => "call_tools",
            Self::RequestApproval => "request_human_approve",
            Self::RequestPrompt { .. } => "request_human_prompt",
            Self::RequestSelect { .. } => "request_human_select",
            Self::RequestForm { .. } => "request_human_form",
            Self::RequestUrl { .. } => "request_human_url",
            Self::Compact { .. } => "compact",
            Self::Finish { .. } => "finish",
        }
    }

    /// Checks the bounds of a planner's instruction.
    ///
    /// # Errors
    /// The fault, for people.
    pub fn check(&self) -> Result<(), String> {
        match self {
            Self::CallModel | Self::CallTools | Self::RequestApproval | Self::Finish { failure: None } => {
                Ok(())
            }
            Self::RequestPrompt { question, metadata } => check_question(question, metadata.as_ref()),
            Self::RequestSelect { question, options, metadata, .. } => {
                check_question(question, metadata.as_ref())?;
                check_options(options)
            }
            Self::RequestForm { question, form, metadata } => {
                check_question(question, metadata.as_ref())?;
                Form::parse(form).map(drop).map_err(|problem| format!("a form's schema: {problem}"))
            }
            Self::RequestUrl { question, url, metadata } => {
                check_question(question, metadata.as_ref())?;
                if is_address(url) { Ok(()) } else { Err(BadQuestion::Url.to_string()) }
            }
            Self::Compact { strategy } => check_length("a strategy", strategy),
            Self::Finish { failure: Some(failure) } => check_length("a failure", failure),
        }
    }
}

fn check_question(text: &str, metadata: Option<&String>) -> Result<(), String> {
    check_text("a question", text)?;
    if metadata.is_none_or(|metadata| is_metadata(metadata)) {
        Ok(())
    } else {
        Err(BadQuestion::Metadata.to_string())
    }
}

fn check_options(options: &[SelectOption]) -> Result<(), String> {
    if options.is_empty() || options.len() > OPTIONS_MAX {
        return Err(format!("a choice has 1 to {OPTIONS_MAX} options"));
    }
    for (at, option) in options.iter().enumerate() {
        check_text("an option's id", &option.id)?;
        check_length("an option's label", &option.label)?;
        if options[..at].iter().any(|before| before.id == option.id) {
            return Err("the options' ids differ".to_owned());
        }
    }
    Ok(())
}

fn check_text(what: &str, text: &str) -> Result<(), String> {
    if text.is_empty() { Err(format!("{what} is not empty")) } else { check_length(what, text) }
}

fn check_length(what: &str, text: &str) -> Result<(), String> {
    if text.len() > SHORT_TEXT_BYTES_MAX {
        Err(format!("{what} has at most {SHORT_TEXT_BYTES_MAX} bytes"))
    } else {
        Ok(())
    }
}

/// The built-in loop (ReAct: reason, act, observe): it calls the model and tools until the model asks for no tool.
#[must_use]
pub fn react(situation: &Situation) -> Instruction {
    match situation {
        Situation::Prompted | Situation::ToolsSettled => Instruction::CallModel,
        Situation::HumanAnswered | Situation::Compacted => Instruction::CallModel,
        // A response that a full context cut off goes on in a smaller context.
        Situation::Responded { finish: FinishReason::ContextWindow } => Instruction::CallModel,
        Situation::Responded { .. } => Instruction::Finish { failure: None },
        Situation::CallsWaiting => Instruction::CallTools,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loop_goes_on_until_the_model_asks_for_no_tool() {
        assert_eq!(react(&Situation::Prompted), Instruction::CallModel);
        assert_eq!(react(&Situation::CallsWaiting), Instruction::CallTools);
        assert_eq!(react(&Situation::ToolsSettled), Instruction::CallModel);
        let responded = Situation::Responded { finish: FinishReason::Stop };
        assert_eq!(react(&responded), Instruction::Finish { failure: None });
        let cut = Situation::Responded { finish: FinishReason::ContextWindow };
        assert_eq!(react(&cut), Instruction::CallModel);
    }

    #[test]
    fn instructions_of_planners_are_bounded() {
        let long = "x".repeat(SHORT_TEXT_BYTES_MAX + 1);
        let option = |id: &str| SelectOption { id: id.to_owned(), label: "a label".to_owned() };
        let select = |question: &str, options| Instruction::RequestSelect {
            question: question.to_owned(),
            options,
            multiple: false,
            metadata: None,
        };
        assert_eq!(
            Instruction::RequestPrompt { question: "which?".to_owned(), metadata: None }.check(),
            Ok(())
        );
        assert_eq!(select("which?", vec![option("a"), option("b")]).check(), Ok(()));
        for bad in [
            Instruction::RequestPrompt { question: String::new(), metadata: None },
            Instruction::RequestPrompt { question: long.clone(), metadata: None },
            Instruction::RequestPrompt { question: "x?".to_owned(), metadata: Some("[1]".to_owned()) },
            select("which?", vec![]),
            select("which?", vec![option("a"), option("a")]),
            select("which?", vec![option("")]),
            select("", vec![option("a")]),
            select("which?", (0..=OPTIONS_MAX).map(|at| option(&at.to_string())).collect()),
            Instruction::RequestForm { question: "x?".to_owned(), form: "{}".to_owned(), metadata: None },
            Instruction::RequestUrl {
                question: "x?".to_owned(),
                url: "file:///etc/passwd".to_owned(),
                metadata: None,
            },
            Instruction::RequestUrl {
                question: "x?".to_owned(),
                url: "https://x.y:99999/".to_owned(),
                metadata: None,
            },
            Instruction::Compact { strategy: long.clone() },
            Instruction::Finish { failure: Some(long) },
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
    }
}
