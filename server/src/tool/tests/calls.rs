//! Calls on their way to hosts and back.

use std::sync::atomic::Ordering;
use std::time::Duration;

use agentloop_core::host::CloseReason;
use agentloop_core::host::frame::{
    self, CancelCause, Capability, HostFrame, RejectReason, ResultVerdict, ServerFrame,
};
use agentloop_core::id::Attempt;
use agentloop_core::run::effect::Offer;
use agentloop_core::run::event::Ran;
use agentloop_core::run::input::CallOutcome;

use super::harness::*;
use crate::tool::{CallUpdate, Disposition, RemoteToolsOptions, Seek, SinkUnavailable, Tools as _, Verdict};

fn ack(call: &str, attempt: u32, verdict: ResultVerdict) -> ServerFrame {
    ServerFrame::ResultAck { call: call_ref(call, attempt), verdict }
}

#[tokio::test(start_paused = true)]
async fn a_call_from_seeking_to_acknowledgement() {
    let harness = Harness::new();
    let mut host = harness.host("h", &["weather"]).await;
    harness.give("r/1.0", 1, "weather");
    let request = host.take().await;
    assert_eq!((request.tool.as_str(), request.arguments.as_str()), ("weather", r#"{"city":"Ulm"}"#));
    assert_eq!(request.idempotency_key, "key of r/1.0");
    host.send_result("r/1.0", 1);
    assert_eq!(host.frame().await, ack("r/1.0", 1, ResultVerdict::Recorded));
    let heard = harness.engine.all();
    let [Heard::Update(_, CallUpdate::Accepted { attempt: Attempt(1), .. }), Heard::Finished(_, answer)] =
        heard.as_slice()
    else {
        panic!("{heard:?}")
    };
    assert_eq!(answer.lease, lease("r/1.0", 1).as_str());
    assert_eq!(
        answer.outcome,
        CallOutcome::Succeeded { output: "sunny".into(), images: vec![], attachments: Default::default() }
    );
}

#[tokio::test(start_paused = true)]
async fn each_verdict_has_its_acknowledgement() {
    let harness = Harness::new();
    let mut host = harness.host("h", &["weather"]).await;
    for (index, (verdict, told)) in [
        (Verdict::Recorded, ResultVerdict::Recorded),
        (Verdict::Duplicate, ResultVerdict::Duplicate),
        (Verdict::Stale, ResultVerdict::Stale),
        (Verdict::Unknown, ResultVerdict::Stale),
    ]
    .into_iter()
    .enumerate()
    {
        let call = format!("r/1.{index}");
        harness.engine.verdict(&call, verdict);
        host.send_result(&call, 1);
        assert_eq!(host.frame().await, ack(&call, 1, told), "{verdict:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_engine_hears_of_a_call_in_order() {
    let harness = Harness::new();
    let mut host = harness.host("h", &["weather"]).await;
    harness.give("r/1.0", 1, "weather");
    host.take().await;
    for chunk in 1..=20 {
        host.say(output("r/1.0", chunk, 10));
    }
    host.send_result("r/1.0", 1);
    let heard = harness.engine.heard(22).await;
    let chunks: Vec<u64> = heard
        .iter()
        .filter_map(|heard| match heard {
            Heard::Update(_, CallUpdate::Output { chunk_seq, .. }) => Some(*chunk_seq),
            Heard::Update(..) | Heard::Finished(..) => None,
        })
        .collect();
    assert_eq!(chunks, (1..=20).collect::<Vec<_>>());
    assert!(matches!(heard.first(), Some(Heard::Update(_, CallUpdate::Accepted { .. }))));
    assert!(matches!(heard.last(), Some(Heard::Finished(..))), "the answer comes last: {heard:?}");
}

#[tokio::test(start_paused = true)]
async fn a_waiting_call_is_granted_when_there_is_room() {
    let harness = Harness::new();
    let mut joining = hello("h", &["weather"]);
    joining.initial_credit = 0;
    let mut host = {
        tokio::task::yield_now().await;
        harness.dial()
    };
    host.say(HostFrame::Hello(joining));
    host.welcome().await;
    assert_eq!(harness.seek("r/1.0", "weather"), Seek::Queued);
    assert_eq!(harness.seek("r/1.0", "weather"), Seek::Queued);
    host.say(HostFrame::Credit { total: 1 });
    let update = harness.engine.update("r/1.0", |update| matches!(update, CallUpdate::Granted { .. })).await;
    assert!(matches!(update, CallUpdate::Granted { host, .. } if host.as_str() == "h"));
    assert!(matches!(harness.seek("r/1.0", "weather"), Seek::Granted { .. }));
}

#[tokio::test(start_paused = true)]
async fn nobody_serves_an_unknown_tool() {
    let harness = Harness::new();
    assert!(matches!(harness.seek("r/1.0", "weather"), Seek::Denied(why) if why.contains("weather")));
}

#[tokio::test(start_paused = true)]
async fn a_known_tool_is_waited_for_and_then_denied() {
    let harness = Harness::new();
    drop(harness.host("h", &["weather"]).await);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(harness.seek("r/1.0", "weather"), Seek::Queued);
    let began = tokio::time::Instant::now();
    harness.engine.update("r/1.0", |update| matches!(update, CallUpdate::Denied { .. })).await;
    assert_eq!(began.elapsed().as_secs(), 30);
}

#[tokio::test(start_paused = true)]
async fn cancel_reaches_the_host_at_once() {
    let harness = Harness::new();
    let mut host = harness.host("h", &["weather"]).await;
    harness.give("r/1.0", 1, "weather");
    host.take().await;
    harness.engine.heard(1).await;
    harness.tools.cancel(&tenant(), &call_ref("r/1.0", 1), CancelCause::Aborted, "aborted");
    let began = tokio::time::Instant::now();
    let ServerFrame::Cancel { call, reason, .. } = host.frame().await else { panic!("no cancel") };
    assert_eq!((call, reason.as_str()), (call_ref("r/1.0", 1), "aborted"));
    assert!(began.elapsed().is_zero());
    harness.engine.verdict("r/1.0", Verdict::Stale);
    host.send_result("r/1.0", 1);
    assert_eq!(host.frame().await, ack("r/1.0", 1, ResultVerdict::Stale));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_its_host_finds_wrong_is_answered() {
    let harness = Harness::new();
    let mut host = harness.host("h", &["weather"]).await;
    harness.give("r/1.0", 1, "weather");
    let call = host.call().await.call;
    host.say(HostFrame::Rejected {
        call,
        reason: RejectReason::BadArguments,
        message: "no such city".into(),
    });
    let heard = harness.engine.heard(1).await;
    let [Heard::Finished(_, answer)] = heard.as_slice() else { panic!("{heard:?}") };
    assert_eq!(answer.outcome, CallOutcome::Rejected { message: "no such city".into() });
    assert_eq!(answer.lease, lease("r/1.0", 1).as_str());
}

#[tokio::test(start_paused = true)]
async fn a_result_that_cannot_be_recorded_is_not_acknowledged_and_offered_again() {
    let harness = Harness::new();
    let mut host = harness.host("h", &["weather"]).await;
    harness.give("r/1.0", 1, "weather");
    host.take().await;
    harness.engine.available.store(false, Ordering::SeqCst);
    host.send_result("r/1.0", 1);
    assert!(matches!(host.frame().await, ServerFrame::GoAway { .. }));
    assert_eq!(host.end().await, CloseReason::Unavailable);

    let mut early = harness.dial();
    let mut again = hello("h", &["weather"]);
    again.calls_in_hand = vec![in_hand("r/1.0", 1, true)];
    early.say(HostFrame::Hello(again.clone()));
    assert!(matches!(early.frame().await, ServerFrame::GoAway { .. }), "calls in hand cannot be looked up");
    assert_eq!(early.end().await, CloseReason::Unavailable);

    harness.engine.available.store(true, Ordering::SeqCst);
    let mut host = harness.dial();
    host.say(HostFrame::Hello(again));
    let welcome = host.welcome().await;
    assert_eq!(welcome.calls, [(call_ref("r/1.0", 1), frame::Disposition::Continue)]);
    host.send_result("r/1.0", 1);
    assert_eq!(host.frame().await, ack("r/1.0", 1, ResultVerdict::Recorded));
    let lost =
        harness.engine.all().iter().any(|heard| matches!(heard, Heard::Update(_, CallUpdate::Lost { .. })));
    assert!(!lost, "{:?}", harness.engine.all());
}

#[tokio::test(start_paused = true)]
async fn a_reconnecting_host_is_told_about_each_call_in_hand() {
    let harness = Harness::new();
    tokio::task::yield_now().await;
    harness.engine.disposition("r/1.0", Disposition::Continue);
    harness.engine.disposition("r/1.1", Disposition::Stop);
    harness.engine.disposition("r/1.2", Disposition::AlreadyRecorded);
    let mut host = harness.dial();
    let mut back = hello("h", &["weather"]);
    back.calls_in_hand = (0..3).map(|index| in_hand(&format!("r/1.{index}"), 1, index == 2)).collect();
    host.say(HostFrame::Hello(back));
    let verdicts: Vec<_> = host.welcome().await.calls.into_iter().map(|(_, verdict)| verdict).collect();
    assert_eq!(
        verdicts,
        [frame::Disposition::Continue, frame::Disposition::Stop, frame::Disposition::AlreadyRecorded]
    );
    harness
        .engine
        .update("r/1.0", |update| matches!(update, CallUpdate::Accepted { attempt: Attempt(1), .. }))
        .await;
}

#[tokio::test(start_paused = true)]
async fn each_run_of_calls_in_hand_is_looked_at_once_and_few_at_a_time() {
    let harness = Harness::new();
    tokio::task::yield_now().await;
    harness.engine.disposition("q/1.1", Disposition::Stop);
    harness.engine.looks.forget_permits(usize::MAX);
    let mut host = harness.dial();
    let mut back = hello("h", &["weather"]);
    let calls = ["r/1.0", "q/1.0", "r/1.1", "p/1.0", "q/1.1", "r/1.2"];
    back.calls_in_hand = calls.iter().map(|call| in_hand(call, 1, false)).collect();
    host.say(HostFrame::Hello(back));
    let looked_at = || harness.engine.looked_at.lock().clone();
    while looked_at().len() < 2 {
        tokio::task::yield_now().await;
    }
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(looked_at(), ["p", "q"]);
    harness.engine.looks.add_permits(2);
    let verdicts = host.welcome().await.calls;
    assert_eq!(looked_at(), ["p", "q", "r"]);
    let said =
        |call: &str| if call == "q/1.1" { frame::Disposition::Stop } else { frame::Disposition::Continue };
    let expected: Vec<_> = calls.iter().map(|call| (call_ref(call, 1), said(call))).collect();
    assert_eq!(verdicts, expected, "in the host's order");
}

#[tokio::test(start_paused = true)]
async fn a_reclaimed_call_is_lost_when_its_host_does_not_come_back() {
    let harness = Harness::new();
    let host = agentloop_core::id::HostId::parse("h").unwrap();
    harness.tools.reclaim(&origin(), &call_id("r/1.0"), offer("r/1.0", 3, &host, "weather"));
    let began = tokio::time::Instant::now();
    let lost = harness.engine.update("r/1.0", |update| matches!(update, CallUpdate::Lost { .. })).await;
    assert!(matches!(lost, CallUpdate::Lost { attempt: Attempt(3), ran: Ran::Maybe, .. }), "{lost:?}");
    assert_eq!(began.elapsed().as_secs(), 10);
}

#[tokio::test(start_paused = true)]
async fn an_answer_without_a_stream() {
    let harness = Harness::new();
    let mut host = harness.host("h", &["weather"]).await;
    harness.give("r/1.0", 1, "weather");
    host.take().await;
    drop(host);
    let given = |call: &str| match result_frame(call, 1) {
        HostFrame::Result(answer) => *answer,
        other => panic!("{other:?}"),
    };
    harness.engine.available.store(false, Ordering::SeqCst);
    assert_eq!(harness.tools.complete(&tenant(), given("r/1.0")).await, Err(SinkUnavailable));
    harness.engine.available.store(true, Ordering::SeqCst);
    assert_eq!(harness.tools.complete(&tenant(), given("r/1.0")).await, Ok(Verdict::Recorded));
    let heard = harness.engine.all();
    let Some(Heard::Finished(_, answer)) = heard.last() else { panic!("{heard:?}") };
    assert_eq!(answer.host.as_str(), "h", "whoever had the call");
    harness.engine.verdict("x/1.0", Verdict::Unknown);
    assert_eq!(harness.tools.complete(&tenant(), given("x/1.0")).await, Ok(Verdict::Unknown));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(
        !harness.engine.all().iter().any(|heard| matches!(heard, Heard::Update(_, CallUpdate::Lost { .. })))
    );
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_answer_nobody_waits_for_any_more_is_lost_with_its_host() {
    let harness = Harness::new();
    let mut host = harness.host("h", &["weather"]).await;
    harness.give("r/1.0", 1, "weather");
    host.take().await;
    let HostFrame::Result(given) = result_frame("r/1.0", 1) else { panic!("no result") };
    harness.engine.recordings.forget_permits(usize::MAX);
    let late = tokio::time::timeout(Duration::from_secs(1), harness.tools.complete(&tenant(), *given)).await;
    assert!(late.is_err(), "the caller's deadline has passed");
    drop(host);
    harness.engine.update("r/1.0", |update| matches!(update, CallUpdate::Lost { .. })).await;
}

#[tokio::test(start_paused = true)]
async fn slow_recording_holds_the_host_back_and_does_not_lose_it() {
    let harness = Harness::new();
    let mut host = harness.host("h", &["weather"]).await;
    harness.engine.recordings.forget_permits(usize::MAX);
    for index in 0..200 {
        host.send_result(&format!("r/1.{index}"), 1);
    }
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(harness.tools.hosts_snapshot(&tenant()).len(), 1, "a host that cannot be read is not silent");
    harness.engine.recordings.add_permits(200);
    for _ in 0..200 {
        assert!(matches!(host.frame().await, ServerFrame::ResultAck { .. }));
    }
}

#[tokio::test(start_paused = true)]
async fn output_of_a_run_that_does_not_keep_up_is_dropped_and_its_answer_is_not() {
    let harness = Harness::new();
    let mut host = harness.host("h", &["weather"]).await;
    harness.give("r/1.0", 1, "weather");
    host.take().await;
    harness.engine.heard(1).await;
    harness.engine.attention.forget_permits(usize::MAX);
    for chunk in 1..=1_000 {
        host.say(output("r/1.0", chunk, 64 * 1024));
    }
    host.say(HostFrame::Heartbeat { calls: vec![call_ref("r/1.0", 1)], status: String::new() });
    tokio::time::sleep(Duration::from_secs(1)).await;
    harness.engine.attention.add_permits(10_000);
    host.send_result("r/1.0", 1);
    assert_eq!(host.frame().await, ack("r/1.0", 1, ResultVerdict::Recorded));
    let heard = harness.engine.all().len();
    assert!((32..=80).contains(&heard), "4 MiB in pieces of 64 KiB, not {heard}");
}

#[tokio::test(start_paused = true)]
async fn a_released_run_finds_its_call_again() {
    let harness = Harness::new();
    let mut host = harness.host("h", &["weather"]).await;
    harness.give("r/1.0", 1, "weather");
    let request = host.take().await;
    harness.engine.heard(1).await;
    harness.tools.release(&tenant(), &run_id("r"));
    harness.tools.reclaim(&origin(), &call_id("r/1.0"), offer("r/1.0", 1, &request.host, "weather"));
    let heard = harness.engine.heard(2).await;
    assert!(
        matches!(&heard[1], Heard::Update(_, CallUpdate::Accepted { attempt: Attempt(1), .. })),
        "{heard:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn blank_arguments_reach_the_host_as_an_empty_object() {
    let harness = Harness::new();
    let mut host = harness.host("h", &["weather"]).await;
    let Seek::Granted { host: at, .. } = harness.seek("r/1.0", "weather") else { panic!("there is room") };
    let mut blank = offer("r/1.0", 1, &at, "weather");
    blank.arguments = " ".to_owned();
    harness.tools.offer(&origin(), &call_id("r/1.0"), blank);
    assert_eq!(host.call().await.arguments, "{}");
}

#[tokio::test(start_paused = true)]
async fn arguments_that_a_tool_declared_anew_does_not_take_are_answered() {
    let harness = Harness::new();
    let mut host = harness.host("h", &["weather"]).await;
    let mut changed = declaration("weather");
    changed.input_schema = r#"{"type":"object","properties":{"city":{"type":"integer"}}}"#.to_owned();
    host.say(HostFrame::UpdateTools { capabilities: vec![Capability::Tool(Box::new(changed))] });
    let ServerFrame::ToolsUpdated(verdicts) = host.frame().await else { panic!("no verdicts") };
    assert!(verdicts.iter().all(|verdict| verdict.refused.is_none()), "{verdicts:?}");
    harness.give("r/1.0", 1, "weather");
    let heard = harness.engine.heard(1).await;
    let [Heard::Finished(_, answer)] = heard.as_slice() else { panic!("{heard:?}") };
    let told = harness.tools.validate(&tenant(), "weather", r#"{"city":"Ulm"}"#).unwrap_err();
    assert_eq!(
        answer.outcome,
        CallOutcome::Rejected { message: told },
        "in the words that a model reads of its own"
    );
    assert_eq!(answer.lease, lease("r/1.0", 1).as_str());
    let Seek::Granted { host: at, .. } = harness.seek("r/1.1", "weather") else { panic!("there is room") };
    let fitting = Offer { arguments: r#"{"city":7}"#.to_owned(), ..offer("r/1.1", 1, &at, "weather") };
    harness.tools.offer(&origin(), &call_id("r/1.1"), fitting);
    assert_eq!(host.call().await.arguments, r#"{"city":7}"#);
}

#[tokio::test(start_paused = true)]
async fn a_call_too_large_for_its_host_is_answered() {
    is_too_large(RemoteToolsOptions::default(), 4096).await;
}

#[tokio::test(start_paused = true)]
async fn a_call_too_large_for_the_server_to_send_is_answered_whatever_its_host_takes() {
    is_too_large(RemoteToolsOptions { max_frame_bytes: 4096, ..RemoteToolsOptions::default() }, usize::MAX)
        .await;
}

async fn is_too_large(options: RemoteToolsOptions, max_frame_bytes: usize) {
    let harness = Harness::with(options);
    tokio::task::yield_now().await;
    let mut host = harness.dial();
    let mut small = hello("h", &["weather"]);
    small.max_frame_bytes = max_frame_bytes;
    host.say(HostFrame::Hello(small));
    host.welcome().await;
    let Seek::Granted { host: at, .. } = harness.seek("r/1.0", "weather") else { panic!("there is room") };
    let mut large = offer("r/1.0", 1, &at, "weather");
    large.arguments = format!("{{\"city\":\"{}\"}}", "x".repeat(5_000));
    harness.tools.offer(&origin(), &call_id("r/1.0"), large);
    let heard = harness.engine.heard(1).await;
    let [Heard::Finished(_, answer)] = heard.as_slice() else { panic!("{heard:?}") };
    assert!(matches!(&answer.outcome, CallOutcome::Rejected { message } if message.contains("4096")));
}
