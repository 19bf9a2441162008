//! Content of a question to people, and the reply that a running call gets to its own question.
//!
//! Questions come from the planner, from the tool `ask_human` and from running calls. The run adds an id and a deadline:
//! see [`crate::run::human::Question`].

pub mod form;

use serde::{Deserialize, Serialize};

use crate::limits::{
    ID_BYTES_MAX, LINK_BYTES_MAX, OPTION_BYTES_MAX, OPTIONS_MAX, QUESTION_METADATA_BYTES_MAX,
    SHORT_TEXT_BYTES_MAX,
};
use crate::question::form::Form;
use crate::text::link::is_address;

/// Content of a question that asks for a choice, a form or a visit to a link, or else for text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuestionContent {
    /// The question, for people.
    pub text: String,
    /// The options to choose from; empty unless the question asks for a choice.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<SelectOption>,
    /// True if any number of options may be chosen, none included. False asks for exactly one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub multiple: bool,
    /// The host's name for the question, if a running call asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<String>,
    /// JSON schema of the form to fill in, if the question asks for one: see [`crate::question::form`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub form: Option<String>,
    /// The link to visit, if the question asks for a visit. Nobody but people follows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// True if an empty text is an answer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_empty: bool,
    /// A JSON object of the asker, for user interfaces. Not part of what is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<String>,
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
    /// The question asks for several things.
    #[error("question: takes one of options, form_schema_json and url")]
    Mixed,
    /// The schema of the form has this fault.
    #[error("form_schema_json: {0}")]
    Form(String),
    /// The link is too long, of another scheme, or no address that people can be sent to.
    #[error(
        "url: must be an http: or https: address of at most {LINK_BYTES_MAX} bytes, with a host, without a user, blanks \
         and characters that are not seen"
    )]
    Url,
    /// The metadata is no object, or too long.
    #[error("metadata_json: must be a JSON object of at most {QUESTION_METADATA_BYTES_MAX} bytes")]
    Metadata,
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
        let asks = [!self.options.is_empty(), self.form.is_some(), self.url.is_some()];
        if asks.into_iter().filter(|asks| *asks).count() > 1 {
            return Err(BadQuestion::Mixed);
        }
        if let Some(schema) = &self.form {
            Form::parse(schema).map_err(BadQuestion::Form)?;
        }
        if self.url.as_ref().is_some_and(|url| !is_address(url)) {
            return Err(BadQuestion::Url);
        }
        if self.metadata.as_ref().is_some_and(|metadata| !is_metadata(metadata)) {
            return Err(BadQuestion::Metadata);
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
        let texts = [&self.input, &self.form, &self.url, &self.metadata];
        self.text.len() + options + texts.into_iter().flatten().map(String::len).sum::<usize>()
    }
}

/// True for facts about a question: a JSON object of bounded size.
#[must_use]
pub(crate) fn is_metadata(json: &str) -> bool {
    json.len() <= QUESTION_METADATA_BYTES_MAX
        && serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(json).is_ok()
}

/// Reply to a question of a running call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InputAnswer {
    /// The text that was asked for.
    Text(String),
    /// Ids of the chosen options.
    Selected(Vec<String>),
    /// The fields that were filled in, as a JSON object.
    Filled(String),
    /// True if the person did at the link what was asked.
    Visited(bool),
    /// There will be no answer. The text is the reason.
    Refused(String),
}

/// Reply to a question of an earlier attempt of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputReply {
    /// The host's name for the question.
    pub input: String,
    /// The answer, or why there is none.
    pub answer: InputAnswer,
}

/// Room for the small fields of a reply beside its texts.
const REPLY_OVERHEAD_BYTES: usize = 1_024;

impl InputReply {
    /// Upper bound of its size on the wire, in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        Self::size_of(&self.input, &self.answer)
    }

    /// The size of a reply with these parts.
    #[must_use]
    pub fn size_of(input: &str, answer: &InputAnswer) -> usize {
        REPLY_OVERHEAD_BYTES + input.len() + answer.size()
    }
}

impl InputAnswer {
    /// Approximate size on the wire, in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        match self {
            Self::Text(text) | Self::Filled(text) | Self::Refused(text) => text.len(),
            Self::Visited(_) => 1,
            // Each has a tag and a length.
            Self::Selected(options) => options.iter().map(|id| id.len() + 4).sum(),
        }
    }
}
