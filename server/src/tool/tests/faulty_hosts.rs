//! Hosts that break the protocol, are too slow, or lie.

use std::time::Duration;

use agentloop_core::host::CloseReason;
use agentloop_core::host::frame::{HostFrame, QuestionContent, ServerFrame};

use super::harness::*;
use crate::tool::{CallUpdate, FrameError, Verdict};

#[tokio::test(start_paused = true)]
async fn a_host_that_says_nothing() {
    let harness = Harness::new();
    let mut host = harness.dial();
    let began = tokio::time::Instant::now();
    assert!(host.protocol_error().await.contains("no hello"));
    assert_eq!(host.end().await, CloseReason::Violation);
    assert_eq!(began.elapsed().as_secs(), 10);
}

#[tokio::test(start_paused = true)]
async fn a_host_that_begins_with_something_else() {
    let harness = Harness::new();
    for frame in [HostFrame::Pong, HostFrame::Unknown, result_frame("r/1.0", 1)] {
        let mut host = harness.dial();
        host.say(frame);
        assert!(host.protocol_error().await.contains("must be a hello"));
        assert_eq!(host.end().await, CloseReason::Violation);
    }
    assert_eq!(harness.engine.all(), []);
}

#[tokio::test(start_paused = true)]
async fn a_host_of_another_time() {
    let harness = Harness::new();
    for version in [0, 2] {
        let mut host = harness.dial();
        let mut other = hello("h", &["a"]);
        other.protocol_version = version;
        host.say(HostFrame::Hello(other));
        assert!(host.protocol_error().await.contains("version"));
        assert_eq!(host.end().await, CloseReason::Version);
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_that_takes_next_to_nothing() {
    let harness = Harness::new();
    let mut host = harness.dial();
    let mut tiny = hello("h", &["a"]);
    tiny.max_frame_bytes = 10;
    host.say(HostFrame::Hello(tiny));
    assert!(host.protocol_error().await.contains("max_frame_bytes"));
    assert_eq!(host.end().await, CloseReason::Violation);
}

#[tokio::test(start_paused = true)]
async fn a_host_that_says_hello_twice() {
    let harness = Harness::new();
    let mut host = harness.host("h", &["a"]).await;
    host.say(HostFrame::Hello(hello("h", &["a"])));
    assert!(host.protocol_error().await.contains("second hello"));
    assert_eq!(host.end().await, CloseReason::Violation);
}

#[tokio::test(start_paused = true)]
async fn a_host_whose_frames_make_no_sense() {
    let harness = Harness::new();
    let mut host = harness.host("h", &["a"]).await;
    let malformed = FrameError::Malformed { message: "too large".into(), call: Some(call_id("r/1.0")) };
    host.frames.send(Err(malformed.clone())).unwrap();
    let ServerFrame::ProtocolError { message, call } = host.frame().await else { panic!("no error") };
    assert_eq!((message.as_str(), call), ("too large", Some(call_id("r/1.0"))));
    assert_eq!(host.end().await, CloseReason::Violation);
    let mut first = harness.dial();
    first.frames.send(Err(malformed)).unwrap();
    assert_eq!(first.protocol_error().await, "too large");
}

#[tokio::test(start_paused = true)]
async fn a_host_that_answers_twice_is_told_so() {
    let harness = Harness::new();
    let mut host = harness.host("h", &["a"]).await;
    harness.give("r/1.0", 1, "a");
    host.take().await;
    host.send_result("r/1.0", 1);
    assert!(matches!(host.frame().await, ServerFrame::ResultAck { .. }));
    harness.engine.verdict("r/1.0", Verdict::Duplicate);
    host.send_result("r/1.0", 1);
    assert!(matches!(host.frame().await, ServerFrame::ResultAck { .. }));
    assert_eq!(harness.tools.hosts_snapshot(&tenant())[0].ignored_frames, 1);
}

#[tokio::test(start_paused = true)]
async fn a_host_that_works_on_what_is_not_its_own() {
    let harness = Harness::new();
    let mut host = harness.host("h", &["a"]).await;
    host.say(HostFrame::Accepted(call_ref("x/1.0", 1)));
    assert_eq!(host.frame().await, ServerFrame::LeaseLost(call_ref("x/1.0", 1)));
    host.say(output("x/1.0", 1, 10));
    host.say(HostFrame::Progress {
        call: call_ref("x/1.0", 1),
        message: "hm".into(),
        fraction: None,
        checkpoint: Some(vec![1]),
        resumable: None,
    });
    assert_eq!(host.frame().await, ServerFrame::LeaseLost(call_ref("x/1.0", 1)));
    assert_eq!(harness.engine.all(), [], "nobody hears of it");
}

#[tokio::test(start_paused = true)]
async fn a_host_that_forgets_a_call() {
    let harness = Harness::new();
    let mut host = harness.host("h", &["a"]).await;
    harness.give("r/1.0", 1, "a");
    host.take().await;
    for _ in 0..2 {
        host.say(HostFrame::Heartbeat { calls: Vec::new(), status: String::new() });
    }
    harness.engine.update("r/1.0", |update| matches!(update, CallUpdate::Lost { .. })).await;
    assert_eq!(host.frame().await, ServerFrame::LeaseLost(call_ref("r/1.0", 1)));
}

#[tokio::test(start_paused = true)]
async fn a_host_that_never_confirms() {
    let harness = Harness::new();
    let mut host = harness.host("h", &["a"]).await;
    harness.give("r/1.0", 1, "a");
    host.call().await;
    let began = tokio::time::Instant::now();
    harness.engine.update("r/1.0", |update| matches!(update, CallUpdate::Lost { .. })).await;
    assert_eq!(began.elapsed().as_secs(), 10);
    assert!(matches!(host.frame().await, ServerFrame::Cancel { .. }));
}

#[tokio::test(start_paused = true)]
async fn a_host_that_does_not_read() {
    let harness = Harness::new();
    let mut host = harness.host("h", &["a"]).await;
    for index in 0..30_000 {
        let call = call_ref("x/1.0", 1);
        let question = QuestionContent { input: Some(format!("q{index}")), ..QuestionContent::default() };
        host.say(HostFrame::NeedInput {
            call,
            question: Box::new(question),
            timeout: None,
            resume_state: None,
        });
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(harness.tools.hosts_snapshot(&tenant()), [], "it is dropped");
    let mut frames = 0;
    let end = loop {
        match host.next().await {
            crate::tool::Outbound::End(reason) => break reason,
            _ => frames += 1,
        }
    };
    assert_eq!((frames, end), (19_999, CloseReason::NotReading), "and one ping");
}

#[tokio::test(start_paused = true)]
async fn a_host_that_gives_credit_without_end() {
    let harness = Harness::new();
    let mut boasting = hello("h", &["a"]);
    boasting.initial_credit = u64::MAX;
    let mut host = harness.dial();
    host.say(HostFrame::Hello(boasting));
    host.welcome().await;
    host.say(HostFrame::Credit { total: u64::MAX });
    harness.give("r/1.0", 1, "a");
    host.take().await;
    let hosts = harness.tools.hosts_snapshot(&tenant());
    assert_eq!(hosts[0].free_credit, agentloop_core::limits::CALLS_PER_HOST_MAX as u64);
}

#[tokio::test(start_paused = true)]
async fn a_host_before_the_engine_is_there() {
    let tools = crate::tool::RemoteTools::new(crate::tool::RemoteToolsOptions::default(), NOW, Vec::new());
    let (connection, sending) = tools.accept(tenant()).unwrap();
    let (frames, receiver) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(connection.run(tokio_stream::wrappers::UnboundedReceiverStream::new(receiver)));
    let mut host = FakeHost { frames, sending };
    let mut back = hello("h", &["a"]);
    back.calls_in_hand = vec![in_hand("r/1.0", 1, false)];
    host.say(HostFrame::Hello(back));
    assert!(matches!(host.frame().await, ServerFrame::GoAway { .. }));
    assert_eq!(host.end().await, CloseReason::Unavailable);
}
