//! One event of the stream: a chunk of the response.

use std::borrow::Cow;

use agentloop_core::message::Usage;
use serde::de::MapAccess;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::model::response::fields::{FieldValue, Fields};
use crate::model::response::template;

/// The parts of an event that matter. Texts are not empty.
#[derive(Debug, Default, PartialEq)]
pub(in crate::model) struct ChatChunk<'a> {
    /// True if the event has an error. Nothing else of it counts then.
    pub(super) is_error: bool,
    pub(super) usage: Option<Usage>,
    pub(super) delta: ChatDelta<'a>,
    pub(super) finish_reason: Option<Cow<'a, str>>,
}

/// The `delta` of the first choice.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ChatDelta<'a> {
    pub(super) content: Option<Cow<'a, str>>,
    /// Reasoning of DeepSeek, Kimi, GLM and others.
    reasoning_content: Option<Cow<'a, str>>,
    /// Reasoning of vLLM, Ollama, OpenRouter and others.
    reasoning: Option<Cow<'a, str>>,
    pub(super) refusal: Option<Cow<'a, str>>,
    /// OpenRouter's `reasoning_details`, to be sent back.
    pub(super) details: Vec<Value>,
    pub(super) calls: Vec<CallFragment<'a>>,
    /// The old `function_call`, which some servers still send.
    function_call: Option<CallFunction<'a>>,
}

/// A piece of reasoning.
#[derive(Debug, PartialEq)]
pub(super) struct ReasoningPiece<'a> {
    pub(super) field: ReasoningField,
    pub(super) text: Cow<'a, str>,
}

/// Name of the field that holds reasoning. Servers differ, and reasoning is sent back in the field that it came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::model) enum ReasoningField {
    /// The field of DeepSeek, Kimi, GLM and others.
    #[serde(rename = "reasoning_content")]
    Content,
    /// The field of vLLM, Ollama, OpenRouter and others.
    #[serde(rename = "reasoning")]
    Plain,
}

impl ReasoningField {
    /// Returns the field name in messages.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Content => "reasoning_content",
            Self::Plain => "reasoning",
        }
    }
}

/// One element of `tool_calls`, or the old `function_call`.
#[derive(Debug, Default, PartialEq)]
pub(super) struct CallFragment<'a> {
    pub(super) index: Option<u64>,
    pub(super) id: Option<Cow<'a, str>>,
    pub(super) function: CallFunction<'a>,
    /// Google's `extra_content`, to be sent back with the call, as the JSON text of an object.
    pub(super) extra: Option<&'a str>,
}

/// The `function` of a tool call.
#[derive(Debug, Default, PartialEq)]
pub(super) struct CallFunction<'a> {
    pub(super) name: Option<Cow<'a, str>>,
    /// The next piece of the arguments; may be empty.
    pub(super) arguments: Cow<'a, str>,
}

impl<'a> ChatDelta<'a> {
    /// Takes the reasoning out of the piece.
    pub(super) fn take_reasoning(&mut self) -> Option<ReasoningPiece<'a>> {
        let piece = |field| move |text| ReasoningPiece { field, text };
        let plain = self.reasoning.take().map(piece(ReasoningField::Plain));
        self.reasoning_content.take().map(piece(ReasoningField::Content)).or(plain)
    }
}

impl<'de> Fields<'de> for ChatChunk<'de> {
    fn field<A: MapAccess<'de>>(&mut self, name: &str, value: FieldValue<'_, A>) -> Result<(), A::Error> {
        match name {
            "choices" => {
                let choices: Vec<Choice<'de>> = value.objects()?;
                // The request is for one choice. A server that sends more gives them an index.
                let first = choices.into_iter().find(|choice| choice.index.unwrap_or(0) == 0);
                let Choice { delta, finish_reason, .. } = first.unwrap_or_default();
                (self.delta, self.finish_reason) = (delta, finish_reason);
            }
            "usage" => self.usage = value.object::<Counts>()?.map(Usage::from),
            "error" => self.is_error = value.json()?.is_some(),
            _ => value.skip()?,
        }
        Ok(())
    }
}

#[derive(Default)]
struct Choice<'a> {
    index: Option<u64>,
    delta: ChatDelta<'a>,
    finish_reason: Option<Cow<'a, str>>,
}

impl<'de> Fields<'de> for Choice<'de> {
    fn field<A: MapAccess<'de>>(&mut self, name: &str, value: FieldValue<'_, A>) -> Result<(), A::Error> {
        match name {
            "index" => self.index = value.count()?,
            "delta" => self.delta = value.object::<ChatDelta<'de>>()?.unwrap_or_default().normalised(),
            "finish_reason" => self.finish_reason = value.filled_text()?,
            _ => value.skip()?,
        }
        Ok(())
    }
}

impl<'de> Fields<'de> for ChatDelta<'de> {
    fn field<A: MapAccess<'de>>(&mut self, name: &str, value: FieldValue<'_, A>) -> Result<(), A::Error> {
        match name {
            "content" => self.content = value.text_or_parts()?,
            "reasoning_content" => self.reasoning_content = value.text_or_parts()?,
            "reasoning" => self.reasoning = value.text_or_parts()?,
            "refusal" => self.refusal = value.text_or_parts()?,
            "reasoning_details" => {
                let details = value.json()?.and_then(|json| serde_json::from_str(json).ok());
                self.details = details.unwrap_or_default();
            }
            "tool_calls" => self.calls = value.objects()?,
            "function_call" => self.function_call = value.object()?,
            _ => value.skip()?,
        }
        Ok(())
    }
}

impl ChatDelta<'_> {
    /// Keeps one of the two fields of reasoning, and adds the old `function_call` to the calls.
    fn normalised(mut self) -> Self {
        // A server that sends both sends the same text in both.
        if self.reasoning_content.is_some() {
            self.reasoning = None;
        }
        let function = self.function_call.take();
        self.calls.extend(function.map(|function| CallFragment { function, ..CallFragment::default() }));
        self
    }
}

impl<'de> Fields<'de> for CallFragment<'de> {
    fn field<A: MapAccess<'de>>(&mut self, name: &str, value: FieldValue<'_, A>) -> Result<(), A::Error> {
        match name {
            "index" => self.index = value.count()?,
            "id" => self.id = value.filled_text()?,
            "function" => self.function = value.object()?.unwrap_or_default(),
            "extra_content" => self.extra = value.json()?.filter(|json| json.starts_with('{')),
            _ => value.skip()?,
        }
        Ok(())
    }
}

impl<'de> Fields<'de> for CallFunction<'de> {
    fn field<A: MapAccess<'de>>(&mut self, name: &str, value: FieldValue<'_, A>) -> Result<(), A::Error> {
        match name {
            "name" => self.name = value.filled_text()?,
            "arguments" => self.arguments = value.text_or_json()?.unwrap_or_default(),
            _ => value.skip()?,
        }
        Ok(())
    }
}

/// The `usage` of a chunk.
#[derive(Default)]
struct Counts {
    prompt: Option<u64>,
    completion: Option<u64>,
    cache_hit: Option<u64>,
    prompt_details: CountDetails,
    completion_details: CountDetails,
}

/// The `prompt_tokens_details` or `completion_tokens_details` of a usage.
#[derive(Default)]
struct CountDetails {
    cached: Option<u64>,
    cache_write: Option<u64>,
    reasoning: Option<u64>,
}

impl<'de> Fields<'de> for Counts {
    fn field<A: MapAccess<'de>>(&mut self, name: &str, value: FieldValue<'_, A>) -> Result<(), A::Error> {
        match name {
            "prompt_tokens" => self.prompt = value.count()?,
            "completion_tokens" => self.completion = value.count()?,
            "prompt_cache_hit_tokens" => self.cache_hit = value.count()?,
            "prompt_tokens_details" => self.prompt_details = value.object()?.unwrap_or_default(),
            "completion_tokens_details" => self.completion_details = value.object()?.unwrap_or_default(),
            _ => value.skip()?,
        }
        Ok(())
    }
}

impl<'de> Fields<'de> for CountDetails {
    fn field<A: MapAccess<'de>>(&mut self, name: &str, value: FieldValue<'_, A>) -> Result<(), A::Error> {
        match name {
            "cached_tokens" => self.cached = value.count()?,
            "cache_write_tokens" => self.cache_write = value.count()?,
            "reasoning_tokens" => self.reasoning = value.count()?,
            _ => value.skip()?,
        }
        Ok(())
    }
}

impl From<Counts> for Usage {
    fn from(counts: Counts) -> Self {
        Self {
            input_tokens: counts.prompt.unwrap_or(0),
            output_tokens: counts.completion.unwrap_or(0),
            cached_input_tokens: counts.prompt_details.cached.or(counts.cache_hit).unwrap_or(0),
            cache_write_tokens: counts.prompt_details.cache_write.unwrap_or(0),
            reasoning_tokens: counts.completion_details.reasoning.unwrap_or(0),
            cost_micros: 0,
            unpriced_calls: 0,
        }
    }
}

/// The one text of an event that has nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::model) enum ChatText {
    Reasoning {
        field: ReasoningField,
    },
    Content,
    /// Arguments of a tool call that has begun.
    Arguments {
        index: Option<u64>,
    },
}

impl<'a> template::TextEvent<'a> for ChatChunk<'a> {
    type Kind = ChatText;

    fn single_text(&self) -> Option<(ChatText, &'a str)> {
        let delta = &self.delta;
        let texts = [
            (Some(ChatText::Content), delta.content.as_ref()),
            (Some(ChatText::Reasoning { field: ReasoningField::Content }), delta.reasoning_content.as_ref()),
            (Some(ChatText::Reasoning { field: ReasoningField::Plain }), delta.reasoning.as_ref()),
        ];
        let arguments = delta
            .calls
            .first()
            .map(|call| (ChatText::Arguments { index: call.index }, &call.function.arguments));
        let found = texts.into_iter().find_map(|(kind, text)| Some((kind?, text?)));
        let (kind, Cow::Borrowed(text)) = found.or(arguments)? else { return None };
        let is_only = !text.is_empty() && *self == Self::with_text(kind, Cow::Borrowed(text));
        is_only.then_some((kind, *text))
    }

    fn with_text(kind: ChatText, text: Cow<'a, str>) -> Self {
        let delta = match kind {
            ChatText::Content => ChatDelta { content: Some(text), ..ChatDelta::default() },
            ChatText::Reasoning { field: ReasoningField::Content } => {
                ChatDelta { reasoning_content: Some(text), ..ChatDelta::default() }
            }
            ChatText::Reasoning { field: ReasoningField::Plain } => {
                ChatDelta { reasoning: Some(text), ..ChatDelta::default() }
            }
            ChatText::Arguments { index } => {
                let function = CallFunction { arguments: text, ..CallFunction::default() };
                let call = CallFragment { index, function, ..CallFragment::default() };
                ChatDelta { calls: vec![call], ..ChatDelta::default() }
            }
        };
        Self { delta, ..Self::default() }
    }
}

#[cfg(test)]
mod tests;
