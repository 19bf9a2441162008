//! Calls of models, and the messages that they bring.

use std::sync::Arc;

use agentloop_core::entry::CompactionReason;
use agentloop_core::id::{Attempt, EntryNo};
use agentloop_core::message::{FinishReason, Message, Part, ProviderState, Reasoning, Role, ToolCall, Usage};
use agentloop_core::run::event::{Event, Observation};
use agentloop_core::time::{Millis, Timestamp};
use agentloop_core::tool::Digest;

use super::{SLOT, model_error};

pub(super) fn model_calls() -> Vec<(&'static str, Event)> {
    let failed = |retry_at| Event::ModelCallFailed {
        model_call: 1,
        attempt: Attempt(2),
        error: model_error(),
        retry_at,
    };
    vec![
        (
            "model_call_started",
            Event::ModelCallStarted {
                model_call: 1,
                attempt: Attempt(3),
                first_counted: Attempt(2),
                last_entry: EntryNo(4),
            },
        ),
        ("model_call_failed", failed(Some(Timestamp(1_790_000_002_500)))),
        ("model_call_failed.last", failed(None)),
        ("assistant_message", assistant(asking(), FinishReason::ToolCalls, Observation::Continue)),
        (
            "assistant_message.states",
            assistant(with_states(), FinishReason::ToolCalls, Observation::Continue),
        ),
        ("assistant_message.full", full(assistant(asking(), FinishReason::ToolCalls, Observation::Compact))),
        (
            "assistant_message.final",
            assistant(
                Message::text(Role::Assistant, "22 °C \u{1f324}\n"),
                FinishReason::Stop,
                Observation::Stop,
            ),
        ),
        (
            "assistant_message.cut",
            assistant(
                Message { role: Role::Assistant, parts: vec![] },
                FinishReason::Other("paused".to_owned()),
                Observation::Compact,
            ),
        ),
    ]
}

fn asking() -> Message {
    let thought = Reasoning {
        text: "I should look.".to_owned(),
        signature: Some("c2ln".to_owned()),
        redacted: Some("ZGF0YQ==".to_owned()),
        state: None,
    };
    let call = ToolCall {
        slot: SLOT,
        provider_id: "call_abc".to_owned(),
        name: "weather".to_owned(),
        arguments: r#"{"city": "Köln", "n": 12345678901234567890"#.to_owned(),
        state: None,
    };
    Message {
        role: Role::Assistant,
        parts: vec![
            Part::Reasoning(thought),
            Part::Reasoning(Reasoning::default()),
            Part::text("Let me look."),
            Part::ToolCall(call),
        ],
    }
}

/// Every kind of part that can have a provider's state, with it.
fn with_states() -> Message {
    let state = |data: &str| ProviderState {
        provider: "openai".to_owned(),
        family: "gpt-6.1-sol".to_owned(),
        data: data.to_owned(),
    };
    let thought = Reasoning {
        text: "I should look.".to_owned(),
        state: Some(state(r#"{"encrypted":"b3BhcXVl"}"#)),
        ..Reasoning::default()
    };
    let call = ToolCall {
        slot: SLOT,
        provider_id: "call_abc".to_owned(),
        name: "weather".to_owned(),
        arguments: "{}".to_owned(),
        state: Some(state("c2ln")),
    };
    Message {
        role: Role::Assistant,
        parts: vec![
            Part::Reasoning(thought),
            Part::Opaque(state(r#"{"type":"web_search_call"}"#)),
            Part::Text { text: "Let me look.".to_owned(), state: Some(state("commentary")) },
            Part::ToolCall(call),
        ],
    }
}

/// The context has passed a bound with this message.
fn full(mut event: Event) -> Event {
    if let Event::AssistantMessage { full, .. } = &mut event {
        *full = Some(CompactionReason::Tokens);
    }
    event
}

fn assistant(message: Message, finish: FinishReason, decision: Observation) -> Event {
    Event::AssistantMessage {
        model_call: 1,
        attempt: Attempt(2),
        entry: EntryNo(5),
        message: Arc::new(message),
        finish,
        usage: Usage {
            input_tokens: 1_200,
            output_tokens: 80,
            cached_input_tokens: 1_000,
            cache_write_tokens: 200,
            reasoning_tokens: 40,
            cost_micros: 0,
            unpriced_calls: 0,
        },
        first_token: Millis(310),
        duration: Millis(1_900),
        tools: Digest::of(&[b"weather"]),
        full: None,
        decision,
    }
}
