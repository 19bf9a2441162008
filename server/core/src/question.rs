//! Content of a question to people, and the reply that a running call gets to its own question.
//!
//! Questions come from the planner, from the tool `ask_human` and from running calls. The run adds an id and a deadline:
//! see [`crate::run::human::Question`].

use serde::{Deserialize, Serialize};

use crate::limits::{ID_BYTES_MAX, OPTION_BYTES_MAX, OPTIONS_MAX, SHORT_TEXT_BYTES_MAX};

/// Content of a question that asks for text or, if it has options, for a choice.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuestionContent {
    /// The question, for people.
    pub text: String,
    /// The options to choose from. Without options the question asks for free text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<SelectOption>,
    /// True if any number of options may be chosen, none included. False asks for exactly one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub multiple: bool,
    /// The host's name for the question, if a running call asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<String>,
}

/// One option of a question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SelectOption {
    /// Id that the answer names.
    pub id: String,
    /// Text that people read.
    pub label: String,
}

/// Faults of a question from outside.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadQuestion {
    /// The text is empty or too long.
    #[error("question: must be 1 to {SHORT_TEXT_BYTES_MAX} bytes")]
    Text,
    /// There are too many options.
    #[error("options: must be at most {OPTIONS_MAX}")]
    TooManyOptions,
    /// The option at this index has an empty or too long id.
    #[error("options[{0}].id: must be 1 to {ID_BYTES_MAX} bytes")]
    OptionId(usize),
    /// The option at this index has the id of an earlier one.
    #[error("options[{0}].id: is that of an earlier option")]
    SameId(usize),
    /// The option at this index has a label that is too long.
    #[error("options[{0}].label: must be at most {OPTION_BYTES_MAX} bytes")]
    OptionLabel(usize),
}

impl QuestionContent {
    /// Checks a question from outside.
    ///
    /// # Errors
    /// The first fault that is found; the message begins with the field.
    pub fn check(&self) -> Result<(), BadQuestion> {
        if self.text.is_empty() || self.text.len() > SHORT_TEXT_BYTES_MAX {
            return Err(BadQuestion::Text);
        }
        if self.options.len() > OPTIONS_MAX {
            return Err(BadQuestion::TooManyOptions);
        }
        for (at, option) in self.options.iter().enumerate() {
            if option.id.is_empty() || option.id.len() > ID_BYTES_MAX {
                return Err(BadQuestion::OptionId(at));
            }
            if self.options[..at].iter().any(|before| before.id == option.id) {
                return Err(BadQuestion::SameId(at));
            }
            if option.label.len() > OPTION_BYTES_MAX {
                return Err(BadQuestion::OptionLabel(at));
            }
        }
        Ok(())
    }

    /// Approximate size on the wire, in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        let options: usize = self.options.iter().map(|option| option.id.len() + option.label.len()).sum();
        self.text.len() + options + self.input.as_ref().map_or(0, String::len)
    }
}

/// Reply to a question of a running call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InputAnswer {
    /// The text that was asked for.
    Text(String),
    /// Ids of the chosen options.
    Selected(Vec<String>),
    /// There will be no answer. The text is the reason.
    Refused(String),
}

impl InputAnswer {
    /// Approximate size on the wire, in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        match self {
            Self::Text(text) | Self::Refused(text) => text.len(),
            // Each has a tag and a length.
            Self::Selected(options) => options.iter().map(|id| id.len() + 4).sum(),
        }
    }
}
