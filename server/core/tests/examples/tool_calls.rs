//! Calls of tools, from the proposal to the result.

use std::sync::Arc;

use agentloop_core::blob::BlobDigest;
use agentloop_core::id::{Attempt, EntryNo, HostId, InstanceId};
use agentloop_core::message::{
    Attachments, File, FileSource, Image, Link, Message, Part, Role, ToolResult, ToolStatus,
};
use agentloop_core::run::event::{AfterAttempt, Event, Ran};
use agentloop_core::time::{Millis, Timestamp};
use agentloop_core::tool::{Digest, EffectClass};

use super::{SLOT, by_value, host};

pub(super) fn tool_calls() -> Vec<(&'static str, Event)> {
    vec![
        ("call_proposed", proposed(EffectClass::Unsafe, true)),
        ("call_proposed.asks_human", asks_human()),
        ("call_proposed.deadline_is_outcome", deadline_is_outcome()),
        ("call_proposed.read_only", proposed(EffectClass::ReadOnly, false)),
        ("call_offered", offered(1, None, None, None)),
        (
            "call_offered.to_a_named_process",
            offered(2, Some(InstanceId::parse("3f9a.0").expect("a good name")), None, None),
        ),
        ("call_offered.stricter", offered(2, None, Some(EffectClass::Unsafe), None)),
        (
            "call_offered.output_schema",
            offered(1, None, None, Some(Digest::claimed("00112233445566778899aabbccddeeff"))),
        ),
        ("call_proposed.terms", under_terms()),
        ("call_accepted", Event::CallAccepted { slot: SLOT, attempt: Attempt(1), host: host() }),
        (
            "call_checkpoint",
            Event::CallCheckpoint {
                slot: SLOT,
                attempt: Attempt(1),
                checkpoint: vec![0x00, 0x0f, 0xf0, 0xff],
                resume_no: 0,
            },
        ),
        (
            "call_checkpoint.resume",
            Event::CallCheckpoint {
                slot: SLOT,
                attempt: Attempt(1),
                checkpoint: vec![0x0f, 0xf0],
                resume_no: 2,
            },
        ),
        (
            "call_attempt_failed",
            attempt_failed(Ran::No, AfterAttempt::Retry { at: Some(Timestamp(1_790_000_004_000)) }),
        ),
        ("call_attempt_failed.at_once", attempt_failed(Ran::No, AfterAttempt::Retry { at: None })),
        ("call_attempt_failed.in_doubt", attempt_failed(Ran::Maybe, AfterAttempt::InDoubt)),
        ("call_attempt_failed.settle", attempt_failed(Ran::Yes, AfterAttempt::Settle)),
        ("call_attempt_failed.busy", busy()),
        ("call_settled", settled(2, Some(host()), ToolStatus::Succeeded, vec![by_value()])),
        ("call_settled.attachments", settled_with_attachments()),
        ("call_settled.blob", settled_with_blob()),
        ("call_settled.outcome", settled_by(Some(Digest::of(&[b"an outcome"])))),
        ("call_settled.rejected", settled(0, None, ToolStatus::Rejected, vec![])),
        ("call_settled.unknown", settled(1, None, ToolStatus::OutcomeUnknown, vec![])),
    ]
}

fn offered(
    attempt: u32,
    instance: Option<InstanceId>,
    effect: Option<EffectClass>,
    output_schema: Option<Digest>,
) -> Event {
    Event::CallOffered {
        slot: SLOT,
        tool: "weather".to_owned(),
        attempt: Attempt(attempt),
        host: host(),
        instance,
        effect,
        output_schema,
    }
}

fn deadline_is_outcome() -> Event {
    let mut event = proposed(EffectClass::Unsafe, false);
    if let Event::CallProposed { deadline_is_outcome, .. } = &mut event {
        *deadline_is_outcome = true;
    }
    event
}

fn proposed(effect: EffectClass, needs_approval: bool) -> Event {
    Event::CallProposed {
        slot: SLOT,
        tool: "weather".to_owned(),
        effect,
        timeout: Millis::secs(30),
        needs_approval,
        asks_human: false,
        arguments: None,
        needs_runtime: false,
        title: String::new(),
        deadline_is_outcome: false,
        terms: None,
    }
}

fn under_terms() -> Event {
    let Event::CallProposed { slot, tool, effect, timeout, title, .. } = proposed(EffectClass::Keyed, true)
    else {
        unreachable!("it was just made")
    };
    Event::CallProposed {
        slot,
        tool,
        effect,
        timeout,
        needs_approval: true,
        asks_human: false,
        arguments: None,
        needs_runtime: false,
        title,
        deadline_is_outcome: false,
        terms: Some(Digest::of(&[b"terms"])),
    }
}

fn asks_human() -> Event {
    Event::CallProposed {
        slot: SLOT,
        tool: "ask_human".to_owned(),
        effect: EffectClass::ReadOnly,
        timeout: Millis(0),
        needs_approval: false,
        asks_human: true,
        arguments: None,
        needs_runtime: false,
        title: String::new(),
        deadline_is_outcome: false,
        terms: None,
    }
}

fn attempt_failed(ran: Ran, then: AfterAttempt) -> Event {
    Event::CallAttemptFailed {
        slot: SLOT,
        attempt: Attempt(1),
        message: "host lost".to_owned(),
        ran,
        then,
        busy: false,
    }
}

fn busy() -> Event {
    let then = AfterAttempt::Retry { at: Some(Timestamp(1_790_000_004_000)) };
    let message = "no room".to_owned();
    Event::CallAttemptFailed { slot: SLOT, attempt: Attempt(1), message, ran: Ran::No, then, busy: true }
}

fn settled_by(outcome: Option<Digest>) -> Event {
    let result = ToolResult {
        slot: SLOT,
        provider_id: "call_abc".to_owned(),
        name: "weather".to_owned(),
        status: ToolStatus::Succeeded,
        output: "sunny".to_owned(),
        images: Vec::new(),
        attachments: Default::default(),
    };
    Event::CallSettled {
        slot: SLOT,
        attempt: Attempt(1),
        host: Some(host()),
        entry: EntryNo(6),
        message: Arc::new(Message { role: Role::Tool, parts: vec![Part::ToolResult(result)] }),
        duration: Millis(1_200),
        outcome,
    }
}

fn settled_with_attachments() -> Event {
    let Event::CallSettled { slot, attempt, host, entry, message, duration, outcome } = settled_by(None)
    else {
        unreachable!("a settled call")
    };
    let mut result = message.tool_result().expect("a result").clone();
    let source = FileSource::Inline { base64: "YSxiCg==".to_owned() };
    let file = File { name: "a.csv".to_owned(), media_type: "text/csv".to_owned(), size: 4, source };
    let link = Link { url: "https://example.org".to_owned(), title: "More".to_owned() };
    let structured = Some(r#"{"celsius":22}"#.to_owned());
    result.attachments = Attachments { structured, files: vec![file], links: vec![link] };
    let message = Arc::new(Message { role: Role::Tool, parts: vec![Part::ToolResult(result)] });
    Event::CallSettled { slot, attempt, host, entry, message, duration, outcome }
}

fn settled_with_blob() -> Event {
    let Event::CallSettled { slot, attempt, host, entry, message, duration, outcome } = settled_by(None)
    else {
        unreachable!("a settled call")
    };
    let mut result = message.tool_result().expect("a result").clone();
    let source = FileSource::Blob { digest: BlobDigest::of_hash([0x5a; 32]) };
    let file = File { name: "a.pdf".to_owned(), media_type: "application/pdf".to_owned(), size: 9, source };
    result.attachments = Attachments { files: vec![file], ..Attachments::default() };
    let message = Arc::new(Message { role: Role::Tool, parts: vec![Part::ToolResult(result)] });
    Event::CallSettled { slot, attempt, host, entry, message, duration, outcome }
}

fn settled(attempt: u32, host: Option<HostId>, status: ToolStatus, images: Vec<Image>) -> Event {
    let result = ToolResult {
        slot: SLOT,
        provider_id: "call_abc".to_owned(),
        name: "weather".to_owned(),
        status,
        output: r#"{"celsius":22}"#.to_owned(),
        images,
        attachments: Default::default(),
    };
    let message = Message { role: Role::Tool, parts: vec![Part::ToolResult(result)] };
    Event::CallSettled {
        slot: SLOT,
        attempt: Attempt(attempt),
        host,
        entry: EntryNo(6),
        message: Arc::new(message),
        duration: Millis(1_200),
        outcome: None,
    }
}
