//! Format of a script.

use std::fmt;
use std::path::Path;

use agentloop_core::message::FinishReason;
use agentloop_core::time::Millis;
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::model::options::ScriptError;
use crate::model::{ModelError, ModelErrorKind};

/// A script as it was read from TOML.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    #[serde(rename = "reply")]
    pub(super) replies: Vec<ScriptedReply>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ScriptedReply {
    #[serde(default)]
    pub(super) when: When,
    pub(super) reasoning: Option<String>,
    pub(super) text: Option<String>,
    #[serde(default)]
    pub(super) tool_calls: Vec<ScriptedCall>,
    #[serde(default)]
    pub(super) delay_ms: u64,
    pub(super) error: Option<ScriptedError>,
    #[serde(default, deserialize_with = "finish_reason")]
    pub(super) finish: Option<FinishReason>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct When {
    pub(super) user_contains: Option<String>,
    pub(super) step: Option<usize>,
    pub(super) tool_result_contains: Option<String>,
    pub(super) model: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ScriptedCall {
    pub(super) name: String,
    #[serde(default)]
    pub(super) arguments: Arguments,
}

/// Arguments of a call: a table, or a text that is sent unchanged.
#[derive(Debug, Clone)]
pub(super) enum Arguments {
    Text(String),
    Table(Value),
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ScriptedError {
    kind: ModelErrorKind,
    #[serde(default)]
    message: String,
    retry_after_ms: Option<u64>,
}

impl Script {
    /// Reads a script. `name` is what errors call it.
    ///
    /// # Errors
    /// When it is not TOML, or has keys or values that a script does not have.
    pub fn parse(name: &str, text: &str) -> Result<Self, ScriptError> {
        toml::from_str(text)
            .map_err(|e| ScriptError { name: name.to_owned(), message: in_one_line(&e, text) })
    }

    /// Reads a script from a file.
    ///
    /// # Errors
    /// As [`Script::parse`], and when the file cannot be read.
    pub fn load(path: &Path) -> Result<Self, ScriptError> {
        let name = path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(text) => Self::parse(&name, &text),
            Err(e) => Err(ScriptError { name, message: e.to_string() }),
        }
    }
}

/// The error with its line and column. The parser's own text has a drawing of several lines.
fn in_one_line(error: &toml::de::Error, text: &str) -> String {
    let message = error.message().trim_end().replace('\n', "; ");
    let Some(before) = error.span().and_then(|span| text.get(..span.start)) else { return message };
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let line = before.matches('\n').count() + 1;
    let column = before[line_start..].chars().count() + 1;
    format!("line {line}, column {column}: {message}")
}

impl ScriptedError {
    pub(super) fn to_model_error(&self) -> ModelError {
        ModelError {
            retry_after: self.retry_after_ms.map(Millis),
            ..ModelError::new(self.kind, self.message.clone())
        }
    }
}

impl Default for Arguments {
    fn default() -> Self {
        Self::Table(Value::Object(serde_json::Map::new()))
    }
}

impl<'de> Deserialize<'de> for Arguments {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ArgumentsVisitor)
    }
}

struct ArgumentsVisitor;

impl<'de> Visitor<'de> for ArgumentsVisitor {
    type Value = Arguments;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table or a text")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Arguments, E> {
        Ok(Arguments::Text(text.to_owned()))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Arguments, A::Error> {
        Value::deserialize(MapAccessDeserializer::new(map)).map(Arguments::Table)
    }
}

fn finish_reason<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<FinishReason>, D::Error> {
    let word = String::deserialize(deserializer)?;
    Ok(Some(match word.as_str() {
        "stop" => FinishReason::Stop,
        "tool_calls" => FinishReason::ToolCalls,
        "length" => FinishReason::Length,
        "context_window" => FinishReason::ContextWindow,
        "content_filter" => FinishReason::ContentFilter,
        "refusal" => FinishReason::Refusal,
        _ => FinishReason::Other(word),
    }))
}
