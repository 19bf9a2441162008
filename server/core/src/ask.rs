//! What people are asked for, by whoever asks, and what a running call hears of it.

use serde::{Deserialize, Serialize};

use crate::limits::{ID_BYTES_MAX, OPTION_BYTES_MAX, OPTIONS_MAX, SHORT_TEXT_BYTES_MAX};

/// What a human is asked for: text, or a choice where there are options.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// The question, for people.
    pub text: String,
    /// The choices; none means free text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<SelectOption>,
    /// Whether several, or none, may be chosen.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub multiple: bool,
    /// The host's name for the question, where a running call asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<String>,
}

/// One choice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SelectOption {
    /// What the answer names.
    pub id: String,
    /// What people read.
    pub label: String,
}

/// Why something cannot be asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadAsk {
    /// There is no question, or too long a one.
    #[error("question: must be 1 to {SHORT_TEXT_BYTES_MAX} bytes")]
    Text,
    /// There are too many choices.
    #[error("options: must be at most {OPTIONS_MAX}")]
    TooManyOptions,
    /// This choice has no id, or one that is too long.
    #[error("options[{0}].id: must be 1 to {ID_BYTES_MAX} bytes")]
    OptionId(usize),
    /// This choice has the id of an earlier one.
    #[error("options[{0}].id: is that of an earlier option")]
    SameId(usize),
    /// This choice has too long a text.
    #[error("options[{0}].label: must be at most {OPTION_BYTES_MAX} bytes")]
    OptionLabel(usize),
}

impl Ask {
    /// Checks a question from outside.
    ///
    /// # Errors
    /// What is wrong with it; the message begins with the field.
    pub fn check(&self) -> Result<(), BadAsk> {
        if self.text.is_empty() || self.text.len() > SHORT_TEXT_BYTES_MAX {
            return Err(BadAsk::Text);
        }
        if self.options.len() > OPTIONS_MAX {
            return Err(BadAsk::TooManyOptions);
        }
        for (at, option) in self.options.iter().enumerate() {
            if option.id.is_empty() || option.id.len() > ID_BYTES_MAX {
                return Err(BadAsk::OptionId(at));
            }
            if self.options[..at].iter().any(|before| before.id == option.id) {
                return Err(BadAsk::SameId(at));
            }
            if option.label.len() > OPTION_BYTES_MAX {
                return Err(BadAsk::OptionLabel(at));
            }
        }
        Ok(())
    }

    /// Roughly its bytes on the wire.
    #[must_use]
    pub fn size(&self) -> usize {
        let options: usize = self.options.iter().map(|option| option.id.len() + option.label.len()).sum();
        self.text.len() + options + self.input.as_ref().map_or(0, String::len)
    }
}

/// What a running call hears of its question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InputAnswer {
    /// Text.
    Text(String),
    /// Ids of the options that were chosen.
    Selected(Vec<String>),
    /// There is no answer and will not be; why.
    Refused(String),
}

impl InputAnswer {
    /// Roughly its bytes on the wire.
    #[must_use]
    pub fn size(&self) -> usize {
        match self {
            Self::Text(text) | Self::Refused(text) => text.len(),
            // Each has a tag and a length.
            Self::Selected(options) => options.iter().map(|id| id.len() + 4).sum(),
        }
    }
}
