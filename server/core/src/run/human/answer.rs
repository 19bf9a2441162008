//! Answers of people, and the check that an answer fits its question.

use serde::{Deserialize, Serialize};

use super::QuestionKind;
use crate::limits::INPUT_ANSWERS_PER_CALL_BYTES_MAX;
use crate::question::form::Form;
use crate::question::{InputAnswer, QuestionContent};
use crate::tool::Digest;

/// An answer to a question, or the reason why it needs none any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "decision", rename_all = "snake_case")]
pub enum Decision {
    /// Run the call as it is; a call in doubt runs once more.
    Approve,
    /// Run the call with other arguments.
    ApproveWithEdits {
        /// All arguments, as JSON text.
        arguments: String,
    },
    /// Do not run the call; the model goes on.
    Deny {
        /// The reason, for the model.
        message: String,
    },
    /// Do not run the call, and end the run.
    DenyAndStop {
        /// The reason, kept with the run.
        message: String,
    },
    /// Do not run the call; this is its result.
    AnswerInPlace {
        /// The result, for the model.
        output: String,
    },
    /// The answer to a prompt.
    Text {
        /// The text that the person wrote.
        text: String,
    },
    /// The answer to a choice.
    Selected {
        /// Ids of the chosen options, in the order of the question.
        options: Vec<String>,
    },
    /// The answer to a form.
    Filled {
        /// The fields, as a JSON object.
        fields: String,
    },
    /// The answer to a link.
    Visited {
        /// True if the person did there what was asked.
        done: bool,
    },
    /// No answer to a question that is not about a call; the asker is told.
    Declined {
        /// The reason, for the asker. May be empty.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        message: String,
    },
    /// The machine's own: nobody answered in time.
    Expired,
    /// The machine's own: the call or the run ended first.
    Withdrawn,
}

impl Decision {
    /// True for an answer to a question that is not about a call.
    #[must_use]
    pub fn is_input(&self) -> bool {
        matches!(
            self,
            Self::Text { .. }
                | Self::Selected { .. }
                | Self::Filled { .. }
                | Self::Visited { .. }
                | Self::Declined { .. }
        )
    }

    /// The decision as the host of the call that asked reads it; `None` if it need not know.
    #[must_use]
    pub fn input_answer(&self) -> Option<InputAnswer> {
        match self {
            Self::Text { text } => Some(InputAnswer::Text(text.clone())),
            Self::Selected { options } => Some(InputAnswer::Selected(options.clone())),
            Self::Filled { fields } => Some(InputAnswer::Filled(fields.clone())),
            Self::Visited { done } => Some(InputAnswer::Visited(*done)),
            Self::Declined { message } if message.is_empty() => {
                Some(InputAnswer::Refused("declined".to_owned()))
            }
            Self::Declined { message } => Some(InputAnswer::Refused(format!("declined: {message}"))),
            Self::Expired => Some(InputAnswer::Refused("nobody answered in time".to_owned())),
            Self::Approve
            | Self::ApproveWithEdits { .. }
            | Self::Deny { .. }
            | Self::DenyAndStop { .. }
            | Self::AnswerInPlace { .. }
            | Self::Withdrawn => None,
        }
    }

    /// Name of the decision in errors and logs.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Approve => "approve",
            Self::ApproveWithEdits { .. } => "approve_with_edits",
            Self::Deny { .. } => "deny",
            Self::DenyAndStop { .. } => "deny_and_stop",
            Self::AnswerInPlace { .. } => "answer_in_place",
            Self::Text { .. } => "text",
            Self::Selected { .. } => "selected",
            Self::Filled { .. } => "filled",
            Self::Visited { .. } => "visited",
            Self::Declined { .. } => "declined",
            Self::Expired => "expired",
            Self::Withdrawn => "withdrawn",
        }
    }
}

/// Reasons why an answer does not fit its question.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadAnswer {
    /// The question is an approval or about a call in doubt.
    #[error("the question is about a tool call: it takes a decision by SubmitApproval")]
    DecisionWanted,
    /// The question asks for an answer of its own, not for a decision about a call.
    #[error("the question asks for text, a choice, a form or a visit: it takes an answer by SubmitInput")]
    InputWanted,
    /// The question asks for text.
    #[error("the question asks for text")]
    TextWanted,
    /// The question asks for a choice.
    #[error("the question asks for a choice of its options")]
    SelectionWanted,
    /// The question has no option with this id.
    #[error("there is no option {0:?}")]
    UnknownOption(String),
    /// The question takes exactly one option.
    #[error("exactly one option is to be chosen")]
    OneWanted,
    /// The question takes no empty text.
    #[error("the question takes no empty text")]
    EmptyText,
    /// The question asks for a form.
    #[error("the question asks for a form")]
    FormWanted,
    /// The question asks for a visit to a link.
    #[error("the question asks for a visit to a link")]
    VisitWanted,
    /// A field of the form has a fault; the name is empty if the fault is in the form as a whole.
    #[error("{problem}")]
    Field {
        /// The field, by its name in the form's schema.
        field: String,
        /// The fault of the field, for people.
        problem: String,
    },
    /// Several people must approve, and they must approve the same.
    #[error(
        "the call needs {0} approvals, of the arguments as they are: approve, or deny and say what to change"
    )]
    NoEdits(u32),
    /// The call has answers to many questions, and this one has no room beside them.
    #[error(
        "the answers to the questions of this call would have {bytes} bytes and may have \
         {INPUT_ANSWERS_PER_CALL_BYTES_MAX}: give a shorter answer, or decline"
    )]
    NoRoom {
        /// Bytes of all answers, with this one.
        bytes: usize,
    },
    /// The form itself cannot be read, because an earlier version took it.
    #[error("the form cannot be read by this server: {0}; decline it")]
    UnreadableForm(String),
}

impl QuestionContent {
    /// Kind of the question.
    #[must_use]
    pub fn kind(&self) -> QuestionKind {
        match self {
            Self { form: Some(_), .. } => QuestionKind::Form,
            Self { url: Some(_), .. } => QuestionKind::Url,
            Self { options, .. } if options.is_empty() => QuestionKind::Prompt,
            Self { .. } => QuestionKind::Select,
        }
    }

    /// Digest of the content that people are shown.
    #[must_use]
    pub fn digest(&self) -> Digest {
        let multiple = [u8::from(self.multiple)];
        let mut shown = vec![self.text.as_bytes(), &multiple];
        for option in &self.options {
            shown.extend([option.id.as_bytes(), option.label.as_bytes()]);
        }
        // Each has a name, so that a question of before has the digest of before.
        let named = [("form", &self.form), ("url", &self.url)];
        shown.extend(
            named
                .iter()
                .filter_map(|(name, value)| Some([name.as_bytes(), value.as_ref()?.as_bytes()]))
                .flatten(),
        );
        if self.allow_empty {
            shown.push(b"allow_empty");
        }
        Digest::of(&shown)
    }

    /// Checks an answer, and puts chosen options and filled fields into one order, so that equal answers are equal
    /// decisions.
    ///
    /// # Errors
    /// The reason why the answer does not fit: its kind, an unknown option, too many options, or a field of a form.
    pub fn checked_answer(&self, decision: Decision) -> Result<Decision, BadAnswer> {
        match decision {
            Decision::Declined { .. } => Ok(decision),
            Decision::Text { ref text } if self.kind() == QuestionKind::Prompt => {
                if text.is_empty() && !self.allow_empty { Err(BadAnswer::EmptyText) } else { Ok(decision) }
            }
            Decision::Selected { options } if self.kind() == QuestionKind::Select => self.select(&options),
            Decision::Filled { fields } if self.kind() == QuestionKind::Form => self.fill(&fields),
            Decision::Visited { .. } if self.kind() == QuestionKind::Url => Ok(decision),
            Decision::Text { .. }
            | Decision::Selected { .. }
            | Decision::Filled { .. }
            | Decision::Visited { .. } => Err(self.wanted()),
            Decision::Approve
            | Decision::ApproveWithEdits { .. }
            | Decision::Deny { .. }
            | Decision::DenyAndStop { .. }
            | Decision::AnswerInPlace { .. }
            | Decision::Expired
            | Decision::Withdrawn => Err(BadAnswer::InputWanted),
        }
    }

    /// The fault of an answer that is of another kind than the question.
    fn wanted(&self) -> BadAnswer {
        match self {
            Self { form: Some(_), .. } => BadAnswer::FormWanted,
            Self { url: Some(_), .. } => BadAnswer::VisitWanted,
            Self { options, .. } if options.is_empty() => BadAnswer::TextWanted,
            Self { .. } => BadAnswer::SelectionWanted,
        }
    }

    fn fill(&self, fields: &str) -> Result<Decision, BadAnswer> {
        let form =
            Form::parse(self.form.as_deref().unwrap_or_default()).map_err(BadAnswer::UnreadableForm)?;
        let fields =
            form.check(fields).map_err(|bad| BadAnswer::Field { field: bad.field, problem: bad.problem })?;
        Ok(Decision::Filled { fields })
    }

    fn select(&self, chosen: &[String]) -> Result<Decision, BadAnswer> {
        if let Some(unknown) = chosen.iter().find(|id| !self.options.iter().any(|option| option.id == **id)) {
            return Err(BadAnswer::UnknownOption(unknown.clone()));
        }
        let options: Vec<String> =
            self.options.iter().map(|option| option.id.clone()).filter(|id| chosen.contains(id)).collect();
        match options.len() {
            1 => Ok(Decision::Selected { options }),
            _ if self.multiple => Ok(Decision::Selected { options }),
            _ => Err(BadAnswer::OneWanted),
        }
    }

    /// Labels of the chosen options, for people and models.
    #[must_use]
    pub fn labels(&self, chosen: &[String]) -> Vec<&str> {
        let chosen = self.options.iter().filter(|option| chosen.contains(&option.id));
        chosen.map(|option| option.label.as_str()).collect()
    }
}
