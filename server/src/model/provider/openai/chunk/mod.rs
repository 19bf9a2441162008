//! What one event of the stream says.
//!
//! Nearly every event has a common shape, which is read in place (`fast`). One that is not is read again, as a tree of
//! values, of which everything is taken that makes sense.

use std::borrow::Cow;

use agentloop_core::message::Usage;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::model::response::fields::{Object, OneOrNone, Text};
use crate::model::response::template;

/// What is of interest in an event. Texts are never empty.
#[derive(Debug, Default, PartialEq)]
pub(in crate::model) struct Said<'a> {
    pub(super) usage: Option<Usage>,
    pub(super) reasoning: Option<Thought<'a>>,
    /// What OpenRouter says of reasoning beside its text, to be sent back.
    pub(super) details: Vec<Value>,
    pub(super) content: Option<Cow<'a, str>>,
    pub(super) refusal: Option<Cow<'a, str>>,
    pub(super) calls: Vec<CallFragment<'a>>,
    pub(super) finish_reason: Option<Cow<'a, str>>,
}

/// A piece of reasoning.
#[derive(Debug, PartialEq)]
pub(super) struct Thought<'a> {
    pub(super) field: ReasoningField,
    pub(super) text: Cow<'a, str>,
}

/// Two names for the same, by which servers differ; what is sent back goes by the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::model) enum ReasoningField {
    /// Of DeepSeek, Kimi, GLM and others.
    #[serde(rename = "reasoning_content")]
    Content,
    /// Of vLLM, Ollama, OpenRouter and others.
    #[serde(rename = "reasoning")]
    Plain,
}

impl ReasoningField {
    /// As it stands in messages.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Content => "reasoning_content",
            Self::Plain => "reasoning",
        }
    }

    fn first<'a>(content: Option<Cow<'a, str>>, plain: Option<Cow<'a, str>>) -> Option<Thought<'a>> {
        let content = content.map(|text| Thought { field: Self::Content, text });
        content.or_else(|| plain.map(|text| Thought { field: Self::Plain, text }))
    }
}

/// One element of `tool_calls`, or the old `function_call`.
#[derive(Debug, Default, PartialEq)]
pub(super) struct CallFragment<'a> {
    pub(super) index: Option<u64>,
    pub(super) id: Option<Cow<'a, str>>,
    pub(super) name: Option<Cow<'a, str>>,
    /// May be empty.
    pub(super) arguments: Cow<'a, str>,
    /// What Google's servers want back with the call, as JSON text.
    pub(super) extra: Option<String>,
}

impl<'a> template::Said<'a> for Said<'a> {
    type Single = Single;

    /// And `None` for errors.
    fn fast(data: &'a str) -> Option<Self> {
        let Object(chunk): Object<Chunk<'a>> = serde_json::from_str(data).ok()?;
        if chunk.error.is_some() {
            return None;
        }
        let choice = chunk.choices.and_then(|OneOrNone(choice)| choice);
        // We ask for one choice; whoever sends more numbers them.
        let choice = choice.map(|Object(choice)| choice).filter(|choice| choice.index.unwrap_or(0) == 0);
        let (delta, finish_reason) =
            choice.map(|choice| (choice.delta, choice.finish_reason)).unwrap_or_default();
        let Object(delta) = delta.unwrap_or_default();
        if delta.reasoning_details.is_some() {
            return None;
        }
        if delta.tool_calls.iter().flatten().any(|Object(call)| call.extra_content.is_some()) {
            return None;
        }
        let calls = delta.tool_calls.into_iter().flatten().map(|Object(call)| call.into());
        let call = delta.function_call.map(CallFragment::from);
        Some(Self {
            usage: chunk.usage.map(|Object(counts)| counts.into()),
            reasoning: ReasoningField::first(filled(delta.reasoning_content), filled(delta.reasoning)),
            details: Vec::new(),
            content: filled(delta.content),
            refusal: filled(delta.refusal),
            calls: calls.chain(call).collect(),
            finish_reason: filled(finish_reason),
        })
    }

    fn single(&self) -> Option<(Single, &'a str)> {
        let Said { usage: None, reasoning, details, content, refusal: None, calls, finish_reason: None } =
            self
        else {
            return None;
        };
        match (reasoning, content, calls.as_slice()) {
            _ if !details.is_empty() => None,
            (Some(Thought { field, text: Cow::Borrowed(text) }), None, []) => {
                Some((Single::Reasoning { field: *field }, text))
            }
            (None, Some(Cow::Borrowed(text)), []) => Some((Single::Content, text)),
            (
                None,
                None,
                [CallFragment { index, id: None, name: None, arguments: Cow::Borrowed(text), extra: None }],
            ) => Some((Single::Arguments { index: *index }, text)),
            _ => None,
        }
    }

    fn with(single: Single, text: Cow<'a, str>) -> Self {
        match single {
            Single::Reasoning { field } => {
                Self { reasoning: Some(Thought { field, text }), ..Self::default() }
            }
            Single::Content => Self { content: Some(text), ..Self::default() },
            Single::Arguments { index } => {
                let call = CallFragment { index, arguments: text, ..CallFragment::default() };
                Self { calls: vec![call], ..Self::default() }
            }
        }
    }
}

impl<'a> Said<'a> {
    /// As much of an event as can be understood.
    pub(super) fn lenient(chunk: &'a Value) -> Self {
        let choices = chunk["choices"].as_array().map(Vec::as_slice).unwrap_or_default();
        let first = choices.iter().find(|choice| choice["index"].as_u64().unwrap_or(0) == 0);
        let choice = first.unwrap_or(&Value::Null);
        let delta = &choice["delta"];
        let calls = delta["tool_calls"].as_array().into_iter().flatten().map(CallFragment::lenient);
        let call =
            delta["function_call"].is_object().then(|| CallFragment::of_function(&delta["function_call"]));
        Self {
            usage: usage(&chunk["usage"]),
            reasoning: ReasoningField::first(text(&delta["reasoning_content"]), text(&delta["reasoning"])),
            details: delta["reasoning_details"].as_array().cloned().unwrap_or_default(),
            content: text(&delta["content"]),
            refusal: text(&delta["refusal"]),
            calls: calls.chain(call).collect(),
            finish_reason: filled(Text::of(&choice["finish_reason"])),
        }
    }
}

/// The one thing that an event says with a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::model) enum Single {
    Reasoning {
        field: ReasoningField,
    },
    Content,
    /// Of a tool call that has begun.
    Arguments {
        index: Option<u64>,
    },
}

impl<'a> CallFragment<'a> {
    /// As much of an element as can be understood.
    pub(super) fn lenient(value: &'a Value) -> Self {
        Self {
            index: value["index"].as_u64(),
            id: filled(Text::of(&value["id"])),
            extra: value["extra_content"].as_object().map(|_| value["extra_content"].to_string()),
            ..Self::of_function(&value["function"])
        }
    }

    fn of_function(function: &'a Value) -> Self {
        let arguments = match &function["arguments"] {
            Value::String(text) => Cow::Borrowed(text.as_str()),
            Value::Null => Cow::default(),
            whole => Cow::Owned(whole.to_string()),
        };
        Self { name: filled(Text::of(&function["name"])), arguments, ..Self::default() }
    }
}

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow)]
    choices: Option<OneOrNone<Object<Choice<'a>>>>,
    usage: Option<Object<Counts>>,
    error: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    index: Option<u64>,
    #[serde(borrow)]
    delta: Option<Object<Piece<'a>>>,
    finish_reason: Option<Text<'a>>,
}

#[derive(Default, Deserialize)]
struct Piece<'a> {
    #[serde(borrow)]
    content: Option<Text<'a>>,
    // Two names for the same; a server that sends both sends the same text in both.
    reasoning_content: Option<Text<'a>>,
    reasoning: Option<Text<'a>>,
    reasoning_details: Option<IgnoredAny>,
    refusal: Option<Text<'a>>,
    tool_calls: Option<Vec<Object<Call<'a>>>>,
    function_call: Option<Object<Function<'a>>>,
}

#[derive(Deserialize)]
struct Call<'a> {
    index: Option<u64>,
    #[serde(borrow)]
    id: Option<Text<'a>>,
    function: Option<Object<Function<'a>>>,
    extra_content: Option<IgnoredAny>,
}

#[derive(Default, Deserialize)]
struct Function<'a> {
    #[serde(borrow)]
    name: Option<Text<'a>>,
    arguments: Option<Text<'a>>,
}

impl<'a> From<Call<'a>> for CallFragment<'a> {
    fn from(call: Call<'a>) -> Self {
        Self { index: call.index, id: filled(call.id), ..call.function.unwrap_or_default().into() }
    }
}

impl<'a> From<Object<Function<'a>>> for CallFragment<'a> {
    fn from(Object(function): Object<Function<'a>>) -> Self {
        let arguments = function.arguments.and_then(Text::filled).unwrap_or_default();
        Self { name: filled(function.name), arguments, ..Self::default() }
    }
}

#[derive(Deserialize)]
struct Counts {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    prompt_cache_hit_tokens: Option<u64>,
    prompt_tokens_details: Option<Object<PromptDetails>>,
    completion_tokens_details: Option<Object<CompletionDetails>>,
}

#[derive(Default, Deserialize)]
struct PromptDetails {
    cached_tokens: Option<u64>,
    cache_write_tokens: Option<u64>,
}

#[derive(Default, Deserialize)]
struct CompletionDetails {
    reasoning_tokens: Option<u64>,
}

impl From<Counts> for Usage {
    fn from(counts: Counts) -> Self {
        let Object(prompt) = counts.prompt_tokens_details.unwrap_or_default();
        let Object(completion) = counts.completion_tokens_details.unwrap_or_default();
        Self {
            input_tokens: counts.prompt_tokens.unwrap_or(0),
            output_tokens: counts.completion_tokens.unwrap_or(0),
            cached_input_tokens: prompt.cached_tokens.or(counts.prompt_cache_hit_tokens).unwrap_or(0),
            cache_write_tokens: prompt.cache_write_tokens.unwrap_or(0),
            reasoning_tokens: completion.reasoning_tokens.unwrap_or(0),
            cost_micros: 0,
        }
    }
}

fn usage(usage: &Value) -> Option<Usage> {
    let count = |pointer: &str| usage.pointer(pointer).and_then(Value::as_u64);
    usage.is_object().then(|| Usage {
        input_tokens: count("/prompt_tokens").unwrap_or(0),
        output_tokens: count("/completion_tokens").unwrap_or(0),
        cached_input_tokens: count("/prompt_tokens_details/cached_tokens")
            .or_else(|| count("/prompt_cache_hit_tokens"))
            .unwrap_or(0),
        cache_write_tokens: count("/prompt_tokens_details/cache_write_tokens").unwrap_or(0),
        reasoning_tokens: count("/completion_tokens_details/reasoning_tokens").unwrap_or(0),
        cost_micros: 0,
    })
}

fn filled(text: Option<Text<'_>>) -> Option<Cow<'_, str>> {
    text.and_then(Text::filled)
}

/// A text, or the texts of a list of parts.
fn text(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::Array(parts) => {
            let text: String = parts.iter().filter_map(|part| part["text"].as_str()).collect();
            (!text.is_empty()).then_some(Cow::Owned(text))
        }
        value => filled(Text::of(value)),
    }
}

#[cfg(test)]
mod tests;
