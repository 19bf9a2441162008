//! What to do next. Somebody is asked whenever the run stands still for no outside reason: the built-in loop, which
//! answers at once, a planner, or whoever steps the run.

use serde::{Deserialize, Serialize};

use crate::limits::SHORT_TEXT_BYTES_MAX;
use crate::message::FinishReason;
pub use crate::run::human::SelectOption;

/// Choices in a question.
pub const OPTIONS_MAX: usize = 64;

/// Why the run stands still.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Situation {
    /// The caller's messages are in; nothing has been done yet.
    Prompted,
    /// The model has spoken and wants nothing run.
    Answered {
        /// Why it stopped.
        finish: FinishReason,
    },
    /// Tool calls wait for leave to run.
    CallsWaiting,
    /// Every tool call of the round has its result.
    ToolsSettled,
    /// A human answered what the planner asked, or did not in time. Tool calls may wait.
    HumanAnswered,
    /// The context was made smaller. Tool calls may wait.
    Compacted,
}

/// What is to be done next. **This is journal format**: variants and fields are only ever added.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Instruction {
    /// Ask the model.
    CallModel,
    /// Run the tools that it asked for, asking a human first where one must decide.
    CallTools,
    /// Ask a human whether the waiting tool calls may run, whatever the policy says.
    RequestApproval,
    /// Ask a human for text.
    RequestPrompt {
        /// What the human is asked.
        question: String,
    },
    /// Ask a human to choose.
    RequestSelect {
        /// What the human is asked.
        question: String,
        /// The choices.
        options: Vec<SelectOption>,
        /// Whether several may be chosen.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        multiple: bool,
    },
    /// Make the context smaller.
    Compact {
        /// How; empty means as the run is told.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        strategy: String,
    },
    /// The run is over: completed with the model's last message, or failed.
    Finish {
        /// Why it failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failure: Option<String>,
    },
}

impl Instruction {
    /// In a word, as errors and logs name it.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::CallModel => "call_model",
            Self::CallTools => "call_tools",
            Self::RequestApproval => "request_human_approve",
            Self::RequestPrompt { .. } => "request_human_prompt",
            Self::RequestSelect { .. } => "request_human_select",
            Self::Compact { .. } => "compact",
            Self::Finish { .. } => "finish",
        }
    }

    /// Checks the bounds of what a planner wrote.
    ///
    /// # Errors
    /// What is wrong, for people.
    pub fn check(&self) -> Result<(), String> {
        match self {
            Self::CallModel | Self::CallTools | Self::RequestApproval | Self::Finish { failure: None } => {
                Ok(())
            }
            Self::RequestPrompt { question } => check_text("a question", question),
            Self::RequestSelect { question, options, .. } => {
                check_text("a question", question)?;
                check_options(options)
            }
            Self::Compact { strategy } => check_length("a strategy", strategy),
            Self::Finish { failure: Some(failure) } => check_length("a failure", failure),
        }
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

/// The ReAct loop: reason, act, observe, until the model asks for nothing more.
#[must_use]
pub fn react(situation: &Situation) -> Instruction {
    match situation {
        Situation::Prompted | Situation::ToolsSettled => Instruction::CallModel,
        Situation::HumanAnswered | Situation::Compacted => Instruction::CallModel,
        // An answer that the context cut short goes on in a smaller one.
        Situation::Answered { finish: FinishReason::ContextWindow } => Instruction::CallModel,
        Situation::Answered { .. } => Instruction::Finish { failure: None },
        Situation::CallsWaiting => Instruction::CallTools,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loop_goes_on_until_nothing_is_asked_for() {
        assert_eq!(react(&Situation::Prompted), Instruction::CallModel);
        assert_eq!(react(&Situation::CallsWaiting), Instruction::CallTools);
        assert_eq!(react(&Situation::ToolsSettled), Instruction::CallModel);
        let answered = Situation::Answered { finish: FinishReason::Stop };
        assert_eq!(react(&answered), Instruction::Finish { failure: None });
        let cut = Situation::Answered { finish: FinishReason::ContextWindow };
        assert_eq!(react(&cut), Instruction::CallModel);
    }

    #[test]
    fn what_a_planner_writes_has_its_bounds() {
        let long = "x".repeat(SHORT_TEXT_BYTES_MAX + 1);
        let option = |id: &str| SelectOption { id: id.to_owned(), label: "a label".to_owned() };
        let select = |question: &str, options| Instruction::RequestSelect {
            question: question.to_owned(),
            options,
            multiple: false,
        };
        assert_eq!(Instruction::RequestPrompt { question: "which?".to_owned() }.check(), Ok(()));
        assert_eq!(select("which?", vec![option("a"), option("b")]).check(), Ok(()));
        for bad in [
            Instruction::RequestPrompt { question: String::new() },
            Instruction::RequestPrompt { question: long.clone() },
            select("which?", vec![]),
            select("which?", vec![option("a"), option("a")]),
            select("which?", vec![option("")]),
            select("", vec![option("a")]),
            select("which?", (0..=OPTIONS_MAX).map(|at| option(&at.to_string())).collect()),
            Instruction::Compact { strategy: long.clone() },
            Instruction::Finish { failure: Some(long) },
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
    }
}
