use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;

use agentloop_core::id::{Attempt, CallSlot, RunId, Seq, SessionId};
use agentloop_core::message::{FinishReason, Message, Part, Role, Usage};
use agentloop_core::model::delta::Delta;
use agentloop_core::run::event::{EVENT_VERSION, Event, Record};
use agentloop_core::run::status::RunStatus;
use agentloop_core::time::Timestamp;
use agentloop_proto::v1::{RunStreamResponse, SubscribeResponse};
use prost::Message as _;

use super::EventConverter;
use crate::engine::feed::{FeedItem, LiveProgress, ModelAttempt, Transient};

const AT: Timestamp = Timestamp(1_700_000_000_123);

fn converter() -> EventConverter {
    EventConverter::new(RunId::parse("a-run").unwrap(), SessionId::parse("a-session").unwrap())
}

/// One of each kind at least, with every field filled somewhere.
fn durable() -> Vec<FeedItem> {
    let golden = format!("{}/core/tests/golden/event-v{EVENT_VERSION}", env!("CARGO_MANIFEST_DIR"));
    let files = fs::read_dir(golden).unwrap().map(|file| file.unwrap().path());
    let events: Vec<Event> =
        files.map(|file| serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap()).collect();
    let kinds: BTreeSet<&str> = events.iter().map(Event::kind).collect();
    assert!(kinds.contains("started") && kinds.contains("finished") && kinds.len() > 20, "{kinds:?}");
    let record = |(seq, event)| Record { seq: Seq(seq), at: AT, status: RunStatus::ToolRunning, event };
    (1..).zip(events).map(|pair| FeedItem::durable(Arc::new(record(pair)))).collect()
}

fn transient() -> Vec<FeedItem> {
    let (call, slot) = (ModelAttempt { model_call: 2, attempt: Attempt(1) }, CallSlot::from((2, 3)));
    let deltas = [
        Delta::Text { text: "Sunny".to_owned() },
        Delta::Reasoning { text: "It is May.".to_owned() },
        Delta::ReasoningEnd { signature: Some("s".to_owned()), redacted: None, state: None },
        Delta::ToolCallStart { index: 0, provider_id: None, name: "echo".to_owned() },
        Delta::ToolCallArguments { index: 0, fragment: "{".to_owned() },
        Delta::Usage(Usage::default()),
        Delta::Finish { reason: FinishReason::Stop },
    ];
    let parts = vec![Part::text("Sun")];
    let others = [
        LiveProgress::Partial { call, delta_seq: 9, message: Message { role: Role::Assistant, parts } },
        LiveProgress::Call { slot, attempt: Attempt(1), message: "half".to_owned(), fraction: Some(0.5) },
        LiveProgress::Output { slot, attempt: Attempt(1), chunk_seq: 4, stderr: true, data: vec![0, 255] },
    ];
    let deltas = deltas.map(|delta| LiveProgress::Delta { call, delta_seq: 8, delta });
    deltas.into_iter().chain(others).map(|what| FeedItem::transient(Transient { at: AT, what })).collect()
}

#[test]
fn event_frames_equal_the_messages_of_the_contract() {
    let converter = converter();
    for item in durable().into_iter().chain(transient()) {
        let event = Some(converter.event(&item));
        let sent = converter.frame(&item).encode_to_vec();
        let (run_stream, subscribe) =
            (RunStreamResponse { event: event.clone() }, SubscribeResponse { event });
        assert_eq!(sent, run_stream.encode_to_vec(), "{item:?}");
        assert_eq!(sent, subscribe.encode_to_vec(), "{item:?}");
        assert_eq!(RunStreamResponse::decode(&sent[..]).unwrap(), run_stream);
        assert_eq!(SubscribeResponse::decode(&sent[..]).unwrap(), subscribe);
    }
}
