//! A model that responds from a script: for trying the server without a key, for demos and for tests.
//!
//! It keeps no state: its response depends on the request alone, so a run that is continued after a restart goes
//! on exactly as it would have. A script is a TOML file with a list of replies. The first one whose conditions all
//! hold is played; if none does, the call fails as a bad request.
//!
//! ```toml
//! [[reply]]
//! when = { user_contains = "weather", step = 0 }
//! reasoning = "I need the forecast."
//! text = "Let me look that up."
//! tool_calls = [{ name = "weather", arguments = { city = "Rome", question = "{{user}}" } }]
//!
//! [[reply]]
//! when = { tool_result_contains = "sunny" }
//! text = "Good news: {{result}}"
//! delay_ms = 30
//!
//! [[reply]]
//! when = { model = "broken" }
//! error = { kind = "rate_limited", message = "slow down", retry_after_ms = 500 }
//!
//! [[reply]]
//! text = "You said: {{user}}"
//! ```
//!
//! Conditions (`when`), all optional:
//! - `user_contains`: part of the text of the last user message;
//! - `step`: how many messages of the model follow that user message, so 0 is the first call of a run;
//! - `tool_result_contains`: part of any tool result that follows the model's last message;
//! - `model`: the model's name, whole.
//!
//! A reply has these pieces, all optional and in this order: `reasoning` and `text`, word by word; `tool_calls`; then
//! `error`, or the end. The `arguments` of a call are a table or, to try what is no valid JSON, a text. `finish` is the reason
//! of the end: `stop`, `tool_calls`, `length`, `context_window`, `content_filter`, `refusal` or any other word.
//! `delay_ms` is waited before each piece and counts against the request's timeouts. In texts and in the texts within
//! arguments `{{user}}` stands for the last user message and `{{result}}` for the last tool result. Tokens are words.

mod script;

use std::sync::Arc;

use agentloop_core::agent::ModelTimeouts;
use agentloop_core::message::{FinishReason, Message, Part, Role, Usage};
use agentloop_core::model::delta::Delta;
use agentloop_core::time::Millis;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use serde_json::Value;

pub use self::script::Script;
use self::script::{Arguments, ScriptedReply, When};
use crate::model::{Model, ModelError, ModelErrorKind, ModelRequest};

/// A model that responds from a script.
#[derive(Debug, Clone)]
pub struct ScriptedModel {
    script: Arc<Script>,
}

impl ScriptedModel {
    /// Creates a model that plays this script.
    #[must_use]
    pub fn new(script: Script) -> Self {
        Self { script: Arc::new(script) }
    }
}

impl Model for ScriptedModel {
    fn stream(&self, request: ModelRequest) -> BoxStream<'static, Result<Delta, ModelError>> {
        let view = RequestView::read(&request);
        let items = match self.script.replies.iter().find(|reply| view.matches(&reply.when)) {
            Some(reply) => view.play(reply, &request.timeouts),
            None => vec![(Millis(0), Err(view.no_reply(self.script.replies.len())))],
        };
        stream::iter(items)
            .then(|(wait, item)| async move {
                if wait > Millis(0) {
                    tokio::time::sleep(wait.duration()).await;
                }
                item
            })
            .boxed()
    }
}

/// A delta, or the error that ends the response, with the wait before it.
type TimedDelta = (Millis, Result<Delta, ModelError>);

/// The parts of a request that a script can use.
struct RequestView {
    model: String,
    user: String,
    step: usize,
    results: Vec<String>,
    /// The last tool result, even if it came before the last user message.
    last_result: String,
    input_words: u64,
}

impl RequestView {
    fn read(request: &ModelRequest) -> Self {
        let mut view = Self {
            model: request.model.clone(),
            user: String::new(),
            step: 0,
            results: Vec::new(),
            last_result: String::new(),
            input_words: words(&request.system_prompt),
        };
        for message in &request.messages {
            view.add(message);
        }
        view
    }

    fn add(&mut self, message: &Message) {
        match message.role {
            Role::User => {
                self.user = message.plain_text();
                self.step = 0;
            }
            Role::Assistant => {
                self.step += 1;
                self.results.clear();
            }
            Role::System | Role::Tool => {}
        }
        for part in &message.parts {
            self.input_words += match part {
                Part::Text { text, .. } => words(text),
                Part::ToolCall(call) => words(&call.arguments),
                Part::ToolResult(result) => {
                    self.results.push(result.output.clone());
                    self.last_result.clone_from(&result.output);
                    words(&result.output)
                }
                Part::Reasoning(_) | Part::Opaque(_) | Part::Image { .. } => 0,
            };
        }
    }

    fn matches(&self, when: &When) -> bool {
        let user = when.user_contains.as_ref().is_none_or(|part| self.user.contains(part));
        let step = when.step.is_none_or(|step| step == self.step);
        let model = when.model.as_ref().is_none_or(|model| *model == self.model);
        let part = when.tool_result_contains.as_ref();
        let result = part.is_none_or(|part| self.results.iter().any(|result| result.contains(part)));
        user && step && model && result
    }

    fn no_reply(&self, replies: usize) -> ModelError {
        let Self { model, step, .. } = self;
        ModelError::bad_request(format!(
            "none of the {replies} replies of the script matches (model {model:?}, step {step})"
        ))
    }

    /// Returns every piece with the wait before it, up to the timeout that a real provider would reach.
    fn play(&self, reply: &ScriptedReply, timeouts: &ModelTimeouts) -> Vec<TimedDelta> {
        let (mut timed, mut waited) = (Vec::new(), Millis(0));
        for item in self.pieces(reply) {
            let allowed = if timed.is_empty() { timeouts.first_token } else { timeouts.idle };
            let left = Millis(timeouts.total.0.saturating_sub(waited.0));
            let delay = Millis(reply.delay_ms);
            if delay > allowed.min(left) {
                let error = ModelError::new(ModelErrorKind::Timeout, "the script waits longer than allowed");
                timed.push((allowed.min(left), Err(error)));
                return timed;
            }
            waited = Millis(waited.0 + delay.0);
            timed.push((delay, item));
        }
        timed
    }

    fn pieces(&self, reply: &ScriptedReply) -> Vec<Result<Delta, ModelError>> {
        let mut deltas = Vec::new();
        let mut output_words = 0;
        if let Some(reasoning) = &reply.reasoning {
            let reasoning = self.fill(reasoning);
            output_words += words(&reasoning);
            deltas.extend(by_word(&reasoning).map(|text| Delta::Reasoning { text }));
            deltas.push(Delta::reasoning_end(None));
        }
        if let Some(text) = &reply.text {
            let text = self.fill(text);
            output_words += words(&text);
            deltas.extend(by_word(&text).map(|text| Delta::Text { text }));
        }
        for (call, index) in reply.tool_calls.iter().zip(0..) {
            let arguments = self.fill_arguments(&call.arguments);
            output_words += words(&arguments);
            deltas.push(Delta::ToolCallStart { index, provider_id: None, name: call.name.clone() });
            deltas.extend(by_word(&arguments).map(|fragment| Delta::ToolCallArguments { index, fragment }));
        }
        if let Some(error) = &reply.error {
            return deltas.into_iter().map(Ok).chain([Err(error.to_model_error())]).collect();
        }
        deltas.push(Delta::Usage(Usage {
            input_tokens: self.input_words,
            output_tokens: output_words,
            ..Usage::default()
        }));
        let default = if reply.tool_calls.is_empty() { FinishReason::Stop } else { FinishReason::ToolCalls };
        deltas.push(Delta::Finish { reason: reply.finish.clone().unwrap_or(default) });
        deltas.into_iter().map(Ok).collect()
    }

    /// Fills in a template in one pass, so that a user's text is not itself a template.
    fn fill(&self, template: &str) -> String {
        let mut filled = String::new();
        let mut rest = template;
        while let Some(start) = rest.find("{{") {
            let (before, from) = rest.split_at(start);
            filled.push_str(before);
            rest = if let Some(after) = from.strip_prefix("{{user}}") {
                filled.push_str(&self.user);
                after
            } else if let Some(after) = from.strip_prefix("{{result}}") {
                filled.push_str(&self.last_result);
                after
            } else {
                filled.push('{');
                &from[1..]
            };
        }
        filled + rest
    }

    fn fill_arguments(&self, arguments: &Arguments) -> String {
        match arguments {
            Arguments::Text(text) => self.fill(text),
            Arguments::Table(table) => self.fill_value(table).to_string(),
        }
    }

    fn fill_value(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.fill(text)),
            Value::Array(items) => items.iter().map(|item| self.fill_value(item)).collect(),
            Value::Object(object) => {
                object.iter().map(|(key, value)| (key.clone(), self.fill_value(value))).collect()
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }
}

fn words(text: &str) -> u64 {
    text.split_whitespace().count() as u64
}

fn by_word(text: &str) -> impl Iterator<Item = String> {
    text.split_inclusive(char::is_whitespace).map(str::to_owned)
}

#[cfg(test)]
mod tests;
