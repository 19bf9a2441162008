//! Tests of calls on their way to a host, and of their results.

use std::sync::atomic::Ordering;

use agentloop_core::host::frame::CancelCause;
use agentloop_core::id::Attempt;
use agentloop_core::run::input::CallOutcome;
use tonic::Code;

use super::*;
use crate::tool::tests::harness::{Heard, call_ref, tenant};
use crate::tool::{CallUpdate, Disposition, Verdict};

#[tokio::test]
async fn a_call_travels_whole() {
    let harness = Harness::new().await;
    let mut host = harness.host("h", &["weather"]).await;
    assert_eq!(harness.give("r/2.1", 3, "weather"), "h");
    let request = host.take().await;
    let expected = v1::CallRequest {
        call_id: "r/2.1".into(),
        attempt: 3,
        lease_token: lease("r/2.1", 3).as_str().into(),
        idempotency_key: "key of r/2.1".into(),
        tool: "weather".into(),
        arguments_json: r#"{"city":"Ulm"}"#.into(),
        deadline: Some(prost_types::Timestamp { seconds: 1_700_000_060, nanos: 0 }),
        checkpoint: None,
        run_id: "r".into(),
        session_id: "s".into(),
        turn_id: "r.2".into(),
        traceparent: String::new(),
        runtime_id: String::new(),
        time_left: Some(prost_types::Duration { seconds: 60, nanos: 0 }),
        resume_state: None,
        answers: Vec::new(),
        caller: Some(v1::Caller {
            name: "ada".into(),
            tenant: "local".into(),
            groups: vec!["sre".into(), "on call".into()],
        }),
    };
    assert_eq!(request, expected);
    host.say(Say::Progress(v1::Progress {
        call_id: "r/2.1".into(),
        attempt: 3,
        message: "half".into(),
        fraction: Some(0.5),
        checkpoint: Some(b"ck".to_vec()),
        ..v1::Progress::default()
    }));
    host.say(Say::OutputChunk(v1::OutputChunk {
        call_id: "r/2.1".into(),
        attempt: 3,
        chunk_seq: 1,
        stream: v1::OutputStream::Stderr.into(),
        data: b"hm".to_vec(),
    }));
    host.say(result("r/2.1", 3));
    assert_eq!(host.ack().await, ("r/2.1".into(), v1::ResultVerdict::Recorded));
    let heard = harness.engine.all();
    let updates: Vec<&CallUpdate> = heard
        .iter()
        .filter_map(|heard| match heard {
            Heard::Update(_, update) => Some(update),
            Heard::Finished(..) => None,
        })
        .collect();
    assert!(
        matches!(
            updates.as_slice(),
            [
                CallUpdate::Accepted { attempt: Attempt(3), .. },
                CallUpdate::Checkpoint { attempt: Attempt(3), .. },
                CallUpdate::Progress { attempt: Attempt(3), .. },
                CallUpdate::Output { chunk_seq: 1, stderr: true, .. }
            ]
        ),
        "{updates:?}"
    );
    assert!(matches!(heard.last(), Some(Heard::Finished(..))));
}

#[tokio::test]
async fn a_failure_travels_too() {
    let harness = Harness::new().await;
    let mut host = harness.host("h", &["weather"]).await;
    harness.give("r/1.0", 1, "weather");
    host.take().await;
    host.say(Say::CallFailed(v1::CallFailed {
        call_id: "r/1.0".into(),
        attempt: 1,
        lease_token: lease("r/1.0", 1).as_str().into(),
        message: "clouds".into(),
        retryable: true,
        retry_delay: Some(prost_types::Duration { seconds: 2, nanos: 0 }),
        effect: v1::AttemptEffect::None.into(),
    }));
    host.ack().await;
    let heard = harness.engine.all();
    let Some(Heard::Finished(_, answer)) = heard.last() else { panic!("{heard:?}") };
    let CallOutcome::Failed { message, retryable: true, delay, ran } = &answer.outcome else {
        panic!("{answer:?}")
    };
    assert_eq!((message.as_str(), delay.0), ("clouds", 2_000));
    assert_eq!(ran, &agentloop_core::run::event::Ran::No);
}

#[tokio::test]
async fn unknown_calls_are_stale_and_results_given_twice_are_duplicates() {
    let harness = Harness::new().await;
    let mut host = harness.host("h", &["weather"]).await;
    harness.engine.verdict("x/1.0", Verdict::Unknown);
    host.say(result("x/1.0", 1));
    assert_eq!(host.ack().await, ("x/1.0".into(), v1::ResultVerdict::Stale));
    harness.give("r/1.0", 1, "weather");
    host.take().await;
    host.say(result("r/1.0", 1));
    assert_eq!(host.ack().await.1, v1::ResultVerdict::Recorded);
    harness.engine.verdict("r/1.0", Verdict::Duplicate);
    host.say(result("r/1.0", 1));
    assert_eq!(host.ack().await.1, v1::ResultVerdict::Duplicate);
}

#[tokio::test]
async fn two_hosts_share_a_tool() {
    let harness = Harness::new().await;
    let mut hosts = [harness.host("a", &["weather"]).await, harness.host("b", &["weather"]).await];
    let mut given: Vec<String> =
        (0..4).map(|index| harness.give(&format!("r/1.{index}"), 1, "weather")).collect();
    given.sort();
    assert_eq!(given, ["a", "a", "b", "b"]);
    for host in &mut hosts {
        for call in [host.take().await, host.take().await] {
            host.say(result(&call.call_id, 1));
            assert_eq!(host.ack().await.1, v1::ResultVerdict::Recorded);
        }
    }
}

#[tokio::test]
async fn a_host_reconnects_with_calls_in_hand_and_results_that_were_not_acknowledged() {
    let harness = Harness::new().await;
    let mut host = harness.host("h", &["weather"]).await;
    for call in ["r/1.0", "r/1.1", "r/1.2"] {
        harness.give(call, 1, "weather");
        host.take().await;
    }
    harness.engine.heard(3).await;
    harness.engine.available.store(false, Ordering::SeqCst);
    host.say(result("r/1.1", 1));
    assert!(matches!(host.told().await, ServerFrame::GoAway(_)));
    let status = host.next().await.expect_err("the stream ends");
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.get_details_retry_info().is_some());

    harness.engine.available.store(true, Ordering::SeqCst);
    harness.engine.disposition("r/1.2", Disposition::Stop);
    let mut host = harness.dial().await;
    let in_hand = |call: &str, finished| v1::CallInHand {
        call_id: call.into(),
        attempt: 1,
        lease_token: lease(call, 1).as_str().into(),
        finished,
    };
    let calls_in_hand = vec![in_hand("r/1.0", false), in_hand("r/1.1", true), in_hand("r/1.2", false)];
    host.say(Say::Hello(v1::Hello { calls_in_hand, ..hello("h", &["weather"]) }));
    let ServerFrame::Welcome(welcome) = host.told().await else { panic!("no welcome") };
    let verdicts: Vec<_> = welcome.calls.iter().map(v1::CallVerdict::disposition).collect();
    let go_on = v1::CallDisposition::Continue;
    assert_eq!(verdicts, [go_on, go_on, v1::CallDisposition::Stop]);
    for call in ["r/1.1", "r/1.0"] {
        host.say(result(call, 1));
        assert_eq!(host.ack().await, (call.into(), v1::ResultVerdict::Recorded));
    }
    assert!(
        !harness.engine.all().iter().any(|heard| matches!(heard, Heard::Update(_, CallUpdate::Lost { .. })))
    );
}

#[tokio::test]
async fn a_cancel_is_pushed() {
    let harness = Harness::new().await;
    let mut host = harness.host("h", &["weather"]).await;
    harness.give("r/1.0", 1, "weather");
    host.take().await;
    harness.tools.cancel(
        &tenant(),
        &call_ref("r/1.0", 1),
        CancelCause::Aborted,
        "the user has changed their mind",
    );
    let ServerFrame::Cancel(cancel) = host.told().await else { panic!("no cancel") };
    assert_eq!((cancel.call_id.as_str(), cancel.attempt), ("r/1.0", 1));
    assert_eq!(cancel.grace_period, Some(prost_types::Duration { seconds: 5, nanos: 0 }));
    host.say(Say::CancelAck(v1::CancelAck {
        call_id: "r/1.0".into(),
        attempt: 1,
        outcome: v1::CancelOutcome::Stopped.into(),
    }));
    harness.give("r/1.1", 1, "weather");
    host.take().await;
}

#[tokio::test]
async fn results_come_without_a_stream_too() {
    use v1::complete_call_request::Outcome;
    let harness = Harness::new().await;
    let mut host = harness.host("h", &["a"]).await;
    harness.give("r/1.0", 1, "a");
    host.take().await;
    drop(host);
    let done = || Some(Outcome::Result(result_of("r/1.0", 1)));
    assert_eq!(harness.complete(done()).await.unwrap(), i32::from(v1::ResultVerdict::Recorded));
    harness.engine.verdict("r/1.0", Verdict::Duplicate);
    assert_eq!(harness.complete(done()).await.unwrap(), i32::from(v1::ResultVerdict::Duplicate));

    harness.engine.verdict("x/1.0", Verdict::Unknown);
    let status = harness.complete(Some(Outcome::Result(result_of("x/1.0", 1)))).await.unwrap_err();
    assert_eq!((status.code(), reason(&status).as_str()), (Code::NotFound, "CALL_NOT_FOUND"));

    let status = harness.complete(None).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    let violations = status.get_details_bad_request().unwrap().field_violations;
    assert_eq!(violations[0].field, "outcome");
    let bad = v1::CallFailed { call_id: "?".into(), ..v1::CallFailed::default() };
    let status = harness.complete(Some(Outcome::Failed(bad))).await.unwrap_err();
    assert_eq!(status.get_details_bad_request().unwrap().field_violations[0].field, "call_id");

    harness.engine.available.store(false, Ordering::SeqCst);
    let status = harness.complete(done()).await.unwrap_err();
    assert_eq!((status.code(), reason(&status).as_str()), (Code::Unavailable, "STORE_UNAVAILABLE"));
}
