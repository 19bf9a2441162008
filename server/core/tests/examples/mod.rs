//! One value per golden file, every field filled at least once.

mod model_calls;
mod questions;
mod starts;
mod tool_calls;

use std::sync::Arc;

use agentloop_core::entry::{Compaction, CompactionReason, Cut};
use agentloop_core::extension::{ExtensionCall, ExtensionKind};
use agentloop_core::id::{Attempt, CallId, CallSlot, EntryNo, HostId, RequestId, RunId, Seq};
use agentloop_core::message::{Image, Message, Role, Usage};
use agentloop_core::model::error::ModelErrorKind;
use agentloop_core::policy::{Approvers, ArgumentPattern, PolicyAction, PolicyRule, RuleOrigin};
use agentloop_core::run::event::{Event, Outcome, Steer, Totals};
use agentloop_core::run::status::{RunError, RunErrorCode};
use agentloop_core::time::Millis;
use agentloop_core::todo::{TodoItem, TodoPriority, TodoStatus};
use agentloop_core::tool::{Digest, EffectClass};

use self::model_calls::model_calls;
use self::questions::{answers, decisions, questions};
use self::starts::starts;
use self::tool_calls::tool_calls;

const SLOT: CallSlot = CallSlot { model_call: 1, position: 0 };

/// Names of golden files and what they say.
pub(crate) fn examples() -> Vec<(&'static str, Event)> {
    [
        starts(),
        inputs(),
        extensions(),
        compactions(),
        model_calls(),
        decisions(),
        tool_calls(),
        questions(),
        answers(),
        ends(),
    ]
    .concat()
}

fn inputs() -> Vec<(&'static str, Event)> {
    let message = Arc::new(Message::text(Role::User, "one more thing"));
    let steer = Steer { id: RunId::parse("more").expect("an id"), digest: Digest::of(&[b"more"]) };
    let remembered = Arc::new(Message::text(Role::User, "The user likes short answers."));
    vec![
        ("input_held", Event::MessageHeld { message: message.clone(), steer: None }),
        ("input_held.steer", Event::MessageHeld { message, steer: Some(steer) }),
        ("input_entered", Event::MessageEntered { entry: EntryNo(9), held: Seq(7) }),
        (
            "todos_updated",
            Event::TodosUpdated {
                slot: SLOT,
                result: EntryNo(3),
                items: Arc::new(vec![
                    TodoItem {
                        id: "1".to_owned(),
                        content: "Book the ferry".to_owned(),
                        status: TodoStatus::InProgress,
                        priority: TodoPriority::High,
                    },
                    TodoItem {
                        id: "2".to_owned(),
                        content: "Pack".to_owned(),
                        status: TodoStatus::Pending,
                        priority: TodoPriority::Medium,
                    },
                ]),
            },
        ),
        (
            "imported",
            Event::Imported {
                entry: EntryNo(4),
                message: Arc::new(Message::text(Role::Assistant, "Take the ferry.")),
            },
        ),
        (
            "context_added",
            Event::ContextAdded { source: "memory".to_owned(), entry: EntryNo(4), message: remembered },
        ),
    ]
}

fn extensions() -> Vec<(&'static str, Event)> {
    let hook = ExtensionCall {
        extension: ExtensionKind::Hook,
        name: "audit".to_owned(),
        outcome: "annotated: looks fine".to_owned(),
        error: None,
        duration: Millis(12),
        system_prompt: "Be polite.".to_owned(),
    };
    let source = ExtensionCall {
        extension: ExtensionKind::ContextSource,
        name: "memory".to_owned(),
        outcome: String::new(),
        error: Some("no answer in time".to_owned()),
        duration: Millis(2_000),
        system_prompt: String::new(),
    };
    let changed = Event::CallProposed {
        asks_human: false,
        slot: SLOT,
        tool: "weather".to_owned(),
        effect: EffectClass::Keyed,
        timeout: Millis::secs(30),
        needs_approval: false,
        arguments: Some(r#"{"city":"Bonn"}"#.to_owned()),
        needs_runtime: false,
        title: String::new(),
        deadline_is_outcome: false,
        terms: None,
    };
    let in_runtime = Event::CallProposed {
        asks_human: false,
        slot: SLOT,
        tool: "browse".to_owned(),
        effect: EffectClass::Unsafe,
        timeout: Millis::secs(30),
        needs_approval: false,
        arguments: None,
        needs_runtime: true,
        title: String::new(),
        deadline_is_outcome: false,
        terms: None,
    };
    let titled = Event::CallProposed {
        asks_human: false,
        slot: SLOT,
        tool: "read".to_owned(),
        effect: EffectClass::ReadOnly,
        timeout: Millis::secs(30),
        needs_approval: false,
        arguments: None,
        needs_runtime: false,
        deadline_is_outcome: false,
        title: "Read src/main.rs".to_owned(),
        terms: None,
    };
    vec![
        ("extension_applied", Event::ExtensionApplied { slot: None, applied: hook.clone() }),
        ("extension_applied.call", Event::ExtensionApplied { slot: Some(SLOT), applied: hook }),
        ("extension_applied.failed", Event::ExtensionApplied { slot: None, applied: source }),
        ("call_proposed.changed", changed),
        ("call_proposed.runtime", in_runtime),
        ("call_proposed.titled", titled),
    ]
}

fn compactions() -> Vec<(&'static str, Event)> {
    let compacted = |compaction, usage| Event::Compacted {
        entry: EntryNo(41),
        compaction: Arc::new(compaction),
        usage,
        tokens_before: 9_000,
        tokens_after: 1_200,
    };
    let full = Compaction {
        strategy: "summarize".to_owned(),
        up_to: EntryNo(32),
        summary: "They talked about the weather.".to_owned(),
        keep_system: true,
        cut: Some(Cut { up_to: EntryNo(36), output_bytes: 2_048, text_bytes: Some(65_536) }),
    };
    let plain = Compaction { strategy: "truncate".to_owned(), up_to: EntryNo(32), ..Compaction::default() };
    let usage = Usage { input_tokens: 8_000, output_tokens: 90, ..Usage::default() };
    let started = |reason, level, tokens| Event::CompactionStarted {
        number: 2,
        strategy: "summarize".to_owned(),
        reason,
        level,
        tokens,
    };
    let failed = |usage| Event::CompactionFailed {
        number: 2,
        strategy: "summarize".to_owned(),
        error: model_error(),
        usage,
    };
    vec![
        ("compaction_started", started(CompactionReason::Tokens, 0, 9_000)),
        ("compaction_started.messages", started(CompactionReason::Messages, 0, 0)),
        ("compaction_started.overflow", started(CompactionReason::Overflow, 3, 0)),
        ("compaction_started.planned", started(CompactionReason::Planned, 0, 0)),
        ("compaction_failed", failed(Usage::default())),
        ("compaction_failed.usage", failed(usage)),
        ("compacted", compacted(full, usage)),
        ("compacted.plain", compacted(plain, Usage::default())),
    ]
}

fn no_weather(origin: RuleOrigin) -> PolicyRule {
    let argument = ArgumentPattern { pointer: "/city".to_owned(), pattern: "B*".to_owned() };
    PolicyRule {
        name: "no B".to_owned(),
        action: PolicyAction::Deny,
        tool: "weather".to_owned(),
        arguments: vec![argument],
        origin,
        terms: None,
        approvers: Approvers::default(),
        made_under: None,
    }
}

fn ends() -> Vec<(&'static str, Event)> {
    let failed = RunError::new(RunErrorCode::LimitIterations, "10 model calls");
    let aborted = RunError::new(RunErrorCode::AbortedByCaller, "no longer needed");
    vec![
        ("finished", Event::Finished { outcome: Outcome::Completed, error: None, totals: totals() }),
        (
            "finished.planned",
            Event::Finished {
                outcome: Outcome::Completed,
                error: None,
                totals: Totals { final_entry: Some(EntryNo(5)), ..totals() },
            },
        ),
        (
            "finished.failed",
            Event::Finished { outcome: Outcome::Failed, error: Some(failed), totals: totals() },
        ),
        (
            "finished.aborted",
            Event::Finished { outcome: Outcome::Aborted, error: Some(aborted), totals: totals() },
        ),
    ]
}

fn totals() -> Totals {
    Totals {
        usage: Usage { input_tokens: 210, output_tokens: 34, ..Usage::default() },
        iterations: 2,
        tool_calls: 1,
        duration: Millis(4_200),
        last_entry: EntryNo(7),
        ..Totals::default()
    }
}

fn model_error() -> RunError {
    RunError {
        code: RunErrorCode::Model(ModelErrorKind::RateLimited),
        message: "slow down".to_owned(),
        http_status: Some(429),
    }
}

fn by_value() -> Image {
    Image::Inline { media_type: "image/png".to_owned(), base64: "iVBORw0KGgo=".to_owned() }
}

fn host() -> HostId {
    HostId::parse("host-1").expect("an id")
}

fn request() -> RequestId {
    CallId { run: RunId::parse("r-1").expect("an id"), slot: SLOT }.request(Attempt(1))
}
