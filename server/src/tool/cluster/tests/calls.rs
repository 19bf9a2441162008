//! Calls of runs at one replica, whose hosts are connected to another one.

use std::sync::atomic::Ordering;
use std::time::Duration;

use agentloop_core::host::CallUpdate;
use agentloop_core::host::frame::{CancelCause, HostFrame, ResultVerdict, ServerFrame};
use agentloop_core::id::Attempt;
use tokio::sync::oneshot::error::RecvError;
use tokio::sync::{Semaphore, oneshot};

use super::harness::*;
use crate::tool::tests::harness::*;
use crate::tool::{Seek, Tools as _, Verdict};

#[tokio::test(start_paused = true)]
async fn a_call_from_seeking_to_acknowledgement() {
    let (_net, [hub, other], mut host) = Net::with_host().await;
    assert_eq!(other.tools.seek(&origin(), &call_id("r/1.0"), "weather", None), Seek::Queued);
    let granted = other.granted("r/1.0", 1).await;
    other.offer("r/1.0", 1, &granted);
    let request = host.call().await;
    assert_eq!(request.arguments, r#"{"city":"Ulm"}"#);
    assert!(other.tools.is_offer_open(&tenant(), &call_id("r/1.0")));
    host.say(HostFrame::Accepted(request.call.clone()));
    other.nth("r/1.0", 1, is_accepted).await;
    host.say(HostFrame::Progress {
        call: request.call,
        message: "half".to_owned(),
        fraction: Some(0.5),
        checkpoint: None,
        resumable: None,
    });
    for chunk in 1..=20 {
        host.say(output("r/1.0", chunk, 10));
    }
    host.send_result("r/1.0", 1);
    assert_eq!(host.frame().await, ack("r/1.0", ResultVerdict::Recorded));
    assert!(!other.tools.is_offer_open(&tenant(), &call_id("r/1.0")));
    let heard = other.engine.all();
    let chunks: Vec<u64> = heard
        .iter()
        .filter_map(|heard| match heard {
            Heard::Update(_, CallUpdate::Output { chunk_seq, data, .. }) => {
                assert_eq!(data, &vec![b'x'; 10]);
                Some(*chunk_seq)
            }
            Heard::Update(..) | Heard::Finished(..) => None,
        })
        .collect();
    assert_eq!(chunks, (1..=20).collect::<Vec<_>>());
    let Some(Heard::Finished(_, result)) = heard.last() else { panic!("the result comes last: {heard:?}") };
    assert_eq!(result.outcome, result_of(crate::tool::tests::harness::result_frame("r/1.0", 1)).outcome);
    assert_eq!(other.count("r/1.0", |update| matches!(update, CallUpdate::Progress { .. })), 1);
    assert!(hub.engine.all().is_empty(), "the hub's engine does not own the run");
}

/// The response, which takes no time worth mentioning.
async fn in_time<T>(response: oneshot::Receiver<T>) -> Result<T, RecvError> {
    tokio::time::timeout(Duration::from_secs(1), response).await.expect("in time")
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_for_a_seek_gets_the_response_and_the_engine_does_not() {
    let (_net, [_hub, other], mut host) = Net::with_host().await;
    assert_eq!(other.tools.seek(&origin(), &call_id("r/1.0"), "weather", None), Seek::Queued);
    let response = other.tools.seek_response(&tenant(), &call_id("r/1.0")).expect("it is on its way");
    let granted = in_time(response).await.expect("a response");
    let CallUpdate::Granted { host: granted, .. } = granted else { panic!("{granted:?}") };
    assert!(other.tools.seek_response(&tenant(), &call_id("r/1.0")).is_none(), "it has come");
    other.offer("r/1.0", 1, &granted);
    assert_eq!(host.take().await.call, call_ref("r/1.0", 1));
    other.nth("r/1.0", 1, is_accepted).await;
    assert_eq!(other.count("r/1.0", is_granted), 0);
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_for_a_seek_learns_that_a_tool_is_unknown() {
    let (_net, replicas) = Net::of([1, 2]);
    replicas[1].ready().await;
    assert_eq!(replicas[1].tools.seek(&origin(), &call_id("r/1.0"), "weather", None), Seek::Queued);
    let response = replicas[1].tools.seek_response(&tenant(), &call_id("r/1.0")).expect("it is on its way");
    assert!(
        matches!(in_time(response).await, Ok(CallUpdate::Denied { message }) if message.contains("weather"))
    );
}

/// No time passes: the hub says so.
#[tokio::test(start_paused = true)]
async fn a_call_that_is_queued_at_the_hub_is_not_waited_for() {
    let (_net, replicas) = Net::of([1, 2]);
    let [hub, other] = &replicas;
    let _host = hub.host_with("h", &["weather"], |hello| hello.initial_credit = 1).await;
    other.ready().await;
    other.seek("r/1.0").await;
    let began = tokio::time::Instant::now();
    assert_eq!(other.tools.seek(&origin(), &call_id("s/1.0"), "weather", None), Seek::Queued);
    let response = other.tools.seek_response(&tenant(), &call_id("s/1.0")).expect("it is on its way");
    in_time(response).await.expect_err("it is queued");
    assert_eq!(began.elapsed(), Duration::ZERO);
    other.tools.release(&tenant(), &run_id("r"));
    other.granted("s/1.0", 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_response_that_is_not_waited_for_any_more_goes_to_the_engine() {
    let (_net, [_hub, other], _host) = Net::with_host().await;
    assert_eq!(other.tools.seek(&origin(), &call_id("r/1.0"), "weather", None), Seek::Queued);
    drop(other.tools.seek_response(&tenant(), &call_id("r/1.0")).expect("it is on its way"));
    other.granted("r/1.0", 1).await;
}

/// There, a later grant goes to the engine.
#[tokio::test(start_paused = true)]
async fn no_response_is_waited_for_at_the_hub_and_without_a_link() {
    let (net, replicas) = Net::of([1, 2]);
    net.own(1);
    let [hub, other] = &replicas;
    let _host = hub.host_with("h", &["weather"], |hello| hello.initial_credit = 1).await;
    hub.seek("r/1.0").await;
    assert_eq!(hub.tools.seek(&origin(), &call_id("s/1.0"), "weather", None), Seek::Queued);
    assert!(hub.tools.seek_response(&tenant(), &call_id("s/1.0")).is_none());
    net.down();
    other.lost().await;
    assert_eq!(other.tools.seek(&origin(), &call_id("t/1.0"), "weather", None), Seek::Queued);
    assert!(other.tools.seek_response(&tenant(), &call_id("t/1.0")).is_none());
}

#[tokio::test(start_paused = true)]
async fn the_acknowledgement_is_the_verdict_of_the_owner() {
    let (_net, replicas) = Net::of([1, 2]);
    let mut host = replicas[0].host("h", &["weather"]).await;
    replicas[1].ready().await;
    replicas[1].engine.verdict("r/1.0", Verdict::Stale);
    host.send_result("r/1.0", 1);
    assert_eq!(host.frame().await, ack("r/1.0", ResultVerdict::Stale));
}

/// More results than are recorded at a time wait for it. Calls of another owner go on at the same host.
#[tokio::test(start_paused = true)]
async fn results_wait_for_a_silent_owner_and_hold_up_no_other() {
    let (_net, replicas) = Net::of([1, 2, 3]);
    let [hub, silent, well] = &replicas;
    let mut host = hub.host_with("h", &["weather"], |hello| hello.initial_credit = 1_000).await;
    silent.ready().await;
    well.ready().await;
    let calls: Vec<String> = (0..100).map(|number| format!("r{number}/1.0")).collect();
    for call in &calls {
        silent.give_to(&mut host, call).await;
    }
    silent.engine.recordings.forget_permits(Semaphore::MAX_PERMITS);
    for call in &calls {
        host.send_result(call, 1);
    }
    for second in 0..30 {
        let call = format!("s{second}/1.0");
        well.give_to(&mut host, &call).await;
        host.send_result(&call, 1);
        assert_eq!(host.frame().await, ack(&call, ResultVerdict::Recorded));
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    silent.engine.recordings.add_permits(calls.len());
    for _ in &calls {
        let acked = host.frame().await;
        assert!(
            matches!(acked, ServerFrame::ResultAck { verdict: ResultVerdict::Recorded, .. }),
            "{acked:?}"
        );
    }
    assert_eq!(silent.finished(0).await, calls.len(), "each was sent once");
}

/// Its store does not respond. The host's stream is not for its calls alone.
#[tokio::test(start_paused = true)]
async fn a_result_that_its_owner_cannot_record_for_long_sends_no_host_away() {
    let (_net, [hub, other], mut host) = Net::with_host().await;
    other.give_to(&mut host, "r/1.0").await;
    other.engine.available.store(false, Ordering::SeqCst);
    host.send_result("r/1.0", 1);
    for _ in 0..30 {
        hears_nothing(&mut host).await;
        host.say(HostFrame::Pong);
    }
    assert_eq!(hub.tools.own().hosts_snapshot(&tenant()).len(), 1);
    other.engine.available.store(true, Ordering::SeqCst);
    assert_eq!(host.frame().await, ack("r/1.0", ResultVerdict::Recorded));
}

/// One call of a run whose task takes nothing, at its owner and at the hub.
#[tokio::test(start_paused = true)]
async fn a_stuck_run_holds_up_no_other() {
    for owner in [0, 1] {
        let (_net, replicas) = Net::of([1, 2]);
        let mut host = replicas[0].host_with("h", &["weather"], |hello| hello.initial_credit = 1_000).await;
        let owner = &replicas[owner];
        owner.ready().await;
        owner.give("x/1.0").await;
        owner.engine.stick("x", true);
        host.take().await;
        for number in 0..64 {
            let call = format!("y{number}/1.0");
            owner.give_to(&mut host, &call).await;
            host.send_result(&call, 1);
            assert_eq!(host.frame().await, ack(&call, ResultVerdict::Recorded));
        }
        assert_eq!(owner.count("x/1.0", is_accepted), 0);
        owner.engine.stick("x", false);
        owner.nth("x/1.0", 1, is_accepted).await;
    }
}

/// More than one host has at a time at an owner that is not known. The hooks of their runs may take minutes.
#[tokio::test(start_paused = true)]
async fn results_of_many_stuck_runs_hold_up_no_other() {
    for owner in [0, 1] {
        let (_net, replicas) = Net::of([1, 2]);
        let mut host = replicas[0].host_with("h", &["weather"], |hello| hello.initial_credit = 1_000).await;
        let owner = &replicas[owner];
        owner.ready().await;
        for number in 0..64 {
            let call = format!("x{number}/1.0");
            owner.give_to(&mut host, &call).await;
            owner.engine.stick(&format!("x{number}"), true);
            host.send_result(&call, 1);
        }
        owner.give_to(&mut host, "y/1.0").await;
        host.send_result("y/1.0", 1);
        let recorded = tokio::time::timeout(Duration::from_secs(60), host.frame()).await;
        assert_eq!(recorded.expect("in time"), ack("y/1.0", ResultVerdict::Recorded));
    }
}

/// It may have been sent before the next attempt was, and come late.
#[tokio::test(start_paused = true)]
async fn a_stale_result_takes_no_question_of_the_next_attempt_away() {
    let (_net, [hub, other], mut host) = Net::with_host().await;
    other.give_to(&mut host, "r/1.0").await;
    other.engine.verdict("r/1.0", Verdict::Stale);
    let update = CallUpdate::Resumable { attempt: Attempt(2), resume_no: 1, state: vec![1] };
    hub.tools.pending_updates.keep(&tenant(), &call_id("r/1.0"), &update);
    host.send_result("r/1.0", 1);
    assert_eq!(host.frame().await, ack("r/1.0", ResultVerdict::Stale));
    assert_eq!(hub.tools.pending_updates.of(&tenant(), &call_id("r/1.0")), [update]);
}

/// It may be about to stop, and another one records the result then.
#[tokio::test(start_paused = true)]
async fn a_result_waits_while_its_owner_cannot_record_it() {
    let (_net, [_hub, other], mut host) = Net::with_host().await;
    other.give_to(&mut host, "r/1.0").await;
    other.engine.available.store(false, Ordering::SeqCst);
    host.send_result("r/1.0", 1);
    hears_nothing(&mut host).await;
    other.engine.available.store(true, Ordering::SeqCst);
    assert_eq!(host.frame().await, ack("r/1.0", ResultVerdict::Recorded));
}

#[tokio::test(start_paused = true)]
async fn the_hubs_own_calls_take_no_detour() {
    let (net, replicas) = Net::of([1, 2]);
    net.own(1);
    let hub = &replicas[0];
    let mut host = hub.host("h", &["weather"]).await;
    let granted = hub.tools.seek(&origin(), &call_id("r/1.0"), "weather", None);
    let Seek::Granted { host: granted, .. } = granted else { panic!("{granted:?}") };
    hub.offer("r/1.0", 1, &granted);
    host.take().await;
    host.send_result("r/1.0", 1);
    assert_eq!(host.frame().await, ack("r/1.0", ResultVerdict::Recorded));
    assert_eq!(hub.finished(1).await, 1);
    assert!(replicas[1].engine.all().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_cancel_reaches_the_host() {
    let (_net, replicas) = Net::of([1, 2]);
    let mut host = replicas[0].host("h", &["weather"]).await;
    replicas[1].ready().await;
    replicas[1].give("r/1.0").await;
    host.take().await;
    replicas[1].tools.cancel(&tenant(), &call_ref("r/1.0", 1), CancelCause::Aborted, "aborted");
    let ServerFrame::Cancel { call, reason, .. } = host.frame().await else { panic!("no cancel") };
    assert_eq!((call, reason.as_str()), (call_ref("r/1.0", 1), "aborted"));
}

#[tokio::test(start_paused = true)]
async fn an_unknown_tool_is_denied_by_an_update() {
    let (_net, replicas) = Net::of([1, 2]);
    replicas[1].ready().await;
    assert_eq!(replicas[1].tools.seek(&origin(), &call_id("r/1.0"), "weather", None), Seek::Queued);
    let denied = replicas[1].nth("r/1.0", 1, |update| matches!(update, CallUpdate::Denied { .. })).await;
    assert!(matches!(denied, CallUpdate::Denied { message } if message.contains("weather")));
}

#[tokio::test(start_paused = true)]
async fn a_call_without_a_way_to_any_host_is_denied_in_time() {
    let (net, replicas) = Net::of([1, 2]);
    net.down();
    replicas[1].lost().await;
    let began = tokio::time::Instant::now();
    assert_eq!(replicas[1].tools.seek(&origin(), &call_id("r/1.0"), "weather", None), Seek::Queued);
    replicas[1].nth("r/1.0", 1, |update| matches!(update, CallUpdate::Denied { .. })).await;
    assert!((30..=32).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn room_is_given_back_when_the_run_is_released() {
    let (_net, replicas) = Net::of([1, 2]);
    let [hub, other] = &replicas;
    let mut host = hub.host_with("h", &["weather"], |hello| hello.initial_credit = 1).await;
    other.ready().await;
    other.seek("r/1.0").await;
    assert_eq!(other.tools.seek(&origin(), &call_id("s/1.0"), "weather", None), Seek::Queued);
    other.tools.release(&tenant(), &run_id("r"));
    let granted = other.granted("s/1.0", 1).await;
    other.offer("s/1.0", 1, &granted);
    assert_eq!(host.take().await.call, call_ref("s/1.0", 1));
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_nobody_waits_for_is_given_back() {
    let (_net, replicas) = Net::of([1, 2]);
    let [hub, other] = &replicas;
    let _host = hub.host_with("h", &["weather"], |hello| hello.initial_credit = 1).await;
    other.ready().await;
    // The run stops before the grant has come.
    assert_eq!(other.tools.seek(&origin(), &call_id("r/1.0"), "weather", None), Seek::Queued);
    other.tools.stop_seeking(&tenant(), &call_id("r/1.0"));
    other.seek("s/1.0").await;
    assert_eq!(other.count("r/1.0", is_granted), 0);
}
