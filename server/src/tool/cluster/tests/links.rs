//! A link breaks at every point of a call, and is made anew. The hub and its hosts are well.

use std::sync::atomic::Ordering;
use std::time::Duration;

use agentloop_core::host::CallUpdate;
use agentloop_core::host::frame::{CancelCause, Disposition, HostFrame, Ran, ResultVerdict, ServerFrame};
use agentloop_core::id::Attempt;
use agentloop_core::question::{InputAnswer, QuestionContent};

use super::harness::*;
use crate::tool::host::remote::TakesHosts;
use crate::tool::tests::harness::*;
use crate::tool::{Outbound, Seek, Tools as _};

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_looks_again() {
    let (net, replicas) = Net::of([1, 2]);
    let [hub, other] = &replicas;
    let busy = hub.host_with("h", &["weather"], |hello| hello.initial_credit = 0).await;
    other.ready().await;
    assert_eq!(other.tools.seek(&origin(), &call_id("r/1.0"), "weather", None), Seek::Queued);
    net.down();
    other.lost().await;
    busy.say(HostFrame::Credit { total: 1 });
    tokio::time::sleep(Duration::from_secs(1)).await;
    net.up();
    other.granted("r/1.0", 1).await;
    assert_eq!(other.count("r/1.0", is_granted), 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_had_room_is_not_sent_and_did_not_begin() {
    let (net, replicas) = Net::of([1, 2]);
    let [hub, other] = &replicas;
    let mut host = hub.host_with("h", &["weather"], |hello| hello.initial_credit = 1).await;
    other.ready().await;
    let granted = other.seek("r/1.0").await;
    for is_up_again in [false, true] {
        net.down();
        other.lost().await;
        if is_up_again {
            net.up();
            other.ready().await;
        }
        let attempt = 1 + u32::from(is_up_again);
        other.offer("r/1.0", attempt, &granted);
        let lost = other.nth("r/1.0", usize::try_from(attempt).unwrap(), is_lost).await;
        assert!(
            matches!(lost, CallUpdate::Lost { ran: Ran::No, attempt: of, .. } if of == Attempt(attempt)),
            "{lost:?}"
        );
        net.up();
        other.ready().await;
        other.seek("r/1.0").await;
    }
    // The room of the earlier links was freed, and the last one has its room.
    other.offer("r/1.0", 3, &granted);
    assert_eq!(host.take().await.call, call_ref("r/1.0", 3));
    hears_nothing(&mut host).await;
}

#[tokio::test(start_paused = true)]
async fn an_offer_that_was_lost_on_its_way_did_not_begin() {
    let (net, [_hub, other], mut host) = Net::with_host().await;
    let granted = other.seek("r/1.0").await;
    // No task has run between the two, so the offer is in the queue of the link that breaks.
    other.offer("r/1.0", 1, &granted);
    net.cut();
    let lost = other.nth("r/1.0", 1, is_lost).await;
    assert!(matches!(lost, CallUpdate::Lost { ran: Ran::No, .. }), "{lost:?}");
    hears_nothing(&mut host).await;
}

#[tokio::test(start_paused = true)]
async fn a_call_at_its_host_goes_on_and_is_not_sent_again() {
    for accepts_before in [true, false] {
        let (net, replicas) = Net::of([1, 2]);
        let [hub, other] = &replicas;
        let mut host = hub.host("h", &["weather"]).await;
        other.ready().await;
        other.give("r/1.0").await;
        let request = host.call().await;
        let accept = || host.say(HostFrame::Accepted(request.call.clone()));
        if accepts_before {
            accept();
            other.nth("r/1.0", 1, is_accepted).await;
        }
        net.down();
        other.lost().await;
        assert!(!other.tools.is_offer_open(&tenant(), &call_id("r/1.0")), "nobody can respond");
        if !accepts_before {
            accept();
        }
        // Longer than a host may be away: this one is not.
        host.say(HostFrame::Heartbeat { calls: vec![request.call.clone()], status: String::new() });
        tokio::time::sleep(Duration::from_secs(12)).await;
        net.up();
        other.nth("r/1.0", 1 + usize::from(accepts_before), is_accepted).await;
        hears_nothing(&mut host).await;
        host.send_result("r/1.0", 1);
        assert_eq!(host.frame().await, ack("r/1.0", ResultVerdict::Recorded));
        assert_eq!((other.finished(1).await, other.count("r/1.0", is_lost)), (1, 0));
    }
}

/// Its cancel is lost with its owner. The host's stream goes on.
#[tokio::test(start_paused = true)]
async fn a_call_that_nobody_waits_for_any_more_is_stopped() {
    let (net, [hub, other]) = Net::of([1, 2]);
    let mut host = hub.host("h", &["weather"]).await;
    other.ready().await;
    for call in ["r/1.0", "s/1.0"] {
        other.give(call).await;
        host.take().await;
    }
    net.down();
    net.own(0);
    hub.engine.disposition("r/1.0", Disposition::Stop);
    other.tools.cancel(&tenant(), &call_ref("r/1.0", 1), CancelCause::Aborted, "why");
    let ServerFrame::Cancel { call, .. } = host.frame().await else { panic!("another frame") };
    assert_eq!(call, call_ref("r/1.0", 1));
    hears_nothing(&mut host).await;
}

/// The command to close it is lost with its owner.
#[tokio::test(start_paused = true)]
async fn a_runtime_that_nobody_uses_any_more_is_closed() {
    let (net, [hub, other]) = Net::of([1, 2]);
    let runtimes = ["r/rt1", "r/rt2", "s/rt1", "t/rt1"];
    let open = runtimes.map(str::to_owned).to_vec();
    let mut host = hub.host_with("h", &["weather"], |hello| hello.open_runtimes = open).await;
    other.ready().await;
    for call in ["r/1.0", "s/1.0"] {
        other.give(call).await;
        host.take().await;
    }
    net.down();
    net.own(0);
    for runtime in ["r/rt1", "t/rt1"] {
        hub.engine.leaves(runtime);
    }
    assert_eq!(host.frame().await, ServerFrame::CloseRuntime { runtime: "r/rt1".to_owned() });
    hears_nothing(&mut host).await;
}

#[tokio::test(start_paused = true)]
async fn a_result_waits_for_the_link() {
    let (net, [_hub, other], mut host) = Net::with_host().await;
    other.give("r/1.0").await;
    host.take().await;
    net.down();
    other.lost().await;
    host.send_result("r/1.0", 1);
    hears_nothing(&mut host).await;
    net.up();
    assert_eq!(host.frame().await, ack("r/1.0", ResultVerdict::Recorded));
    assert_eq!((other.finished(1).await, other.count("r/1.0", is_lost)), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_result_waits_for_an_owner_that_is_away_for_a_while() {
    let (net, [_hub, other], mut host) = Net::with_host().await;
    other.give("r/1.0").await;
    host.take().await;
    net.down();
    other.lost().await;
    host.send_result("r/1.0", 1);
    for _ in 0..7 {
        hears_nothing(&mut host).await;
        host.say(HostFrame::Pong);
    }
    net.up();
    assert_eq!(host.frame().await, ack("r/1.0", ResultVerdict::Recorded));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waited_long_in_a_queue_outlives_a_short_loss_of_the_link() {
    let (net, replicas) = Net::of([1, 2]);
    let [hub, other] = &replicas;
    let mut busy = hub.host_with("h", &["weather"], |hello| hello.initial_credit = 0).await;
    other.ready().await;
    assert_eq!(other.tools.seek(&origin(), &call_id("r/1.0"), "weather", None), Seek::Queued);
    for _ in 0..20 {
        hears_nothing(&mut busy).await;
        busy.say(HostFrame::Pong);
    }
    net.down();
    other.lost().await;
    hears_nothing(&mut busy).await;
    net.up();
    other.ready().await;
    busy.say(HostFrame::Credit { total: 1 });
    other.granted("r/1.0", 1).await;
    assert_eq!(other.count("r/1.0", |update| matches!(update, CallUpdate::Denied { .. })), 0);
}

#[tokio::test(start_paused = true)]
async fn a_verdict_that_was_lost_on_its_way_is_requested_again() {
    let (net, [_hub, other], mut host) = Net::with_host().await;
    other.give_to(&mut host, "r/1.0").await;
    other.engine.recordings.forget_permits(usize::MAX);
    host.send_result("r/1.0", 1);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(other.finished(0).await, 0, "the store takes its time");
    net.cut();
    other.engine.recordings.add_permits(100);
    // The engine gets it again, and says that it has it.
    assert_eq!(host.frame().await, ack("r/1.0", ResultVerdict::Recorded));
    assert_eq!(other.finished(2).await, 2);
    hears_nothing(&mut host).await;
}

#[tokio::test(start_paused = true)]
async fn a_result_without_an_owner_waits_for_one() {
    let (net, [_hub, other], mut host) = Net::with_host().await;
    other.give("r/1.0").await;
    host.take().await;
    net.down();
    other.lost().await;
    host.send_result("r/1.0", 1);
    for _ in 0..20 {
        hears_nothing(&mut host).await;
        host.say(HostFrame::Pong);
    }
    net.up();
    other.ready().await;
    assert_eq!(host.frame().await, ack("r/1.0", ResultVerdict::Recorded));
    assert_eq!(other.finished(1).await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_host_comes_back_with_a_result_while_there_is_no_owner() {
    let (net, [hub, other], mut host) = Net::with_host().await;
    other.give("r/1.0").await;
    host.take().await;
    net.down();
    other.lost().await;
    host.send_result("r/1.0", 1);
    hears_nothing(&mut host).await;
    drop(host);
    // There is no owner to send a request to: the journal is for all to read.
    let mut host =
        hub.host_with("h", &["weather"], |hello| hello.calls_in_hand = vec![in_hand("r/1.0", 1, true)]).await;
    net.up();
    other.ready().await;
    host.send_result("r/1.0", 1);
    assert_eq!(host.frame().await, ack("r/1.0", ResultVerdict::Recorded));
}

/// More than may wait on a link. A further command does not overtake them.
#[tokio::test(start_paused = true)]
async fn answers_that_waited_for_a_link_are_sent_as_there_is_room() {
    let (net, [hub, other]) = Net::of([1, 2]);
    other.ready().await;
    let mut hosts = Vec::new();
    for number in 0..8 {
        let one_call = |hello: &mut agentloop_core::host::frame::Hello| hello.initial_credit = 1;
        let mut host = hub.host_with(&format!("h{number}"), &["weather"], one_call).await;
        let call = format!("r{number}/1.0");
        other.give_to(&mut host, &call).await;
        hosts.push((host, call));
    }
    let dialed = net.dialed.load(Ordering::SeqCst);
    net.down();
    other.lost().await;
    let answer = |call: &str, input: &str, answer| {
        other.tools.answer_input(&tenant(), &call_ref(call, 1), input, answer);
    };
    let inputs: Vec<String> = (0..72).map(|number| format!("q{number}")).collect();
    let text = "x".repeat(256 * 1024);
    for input in &inputs {
        hosts.iter().for_each(|(_, call)| answer(call, input, InputAnswer::Refused(text.clone())));
    }
    net.up();
    other.ready().await;
    hosts.iter().for_each(|(_, call)| answer(call, "last", InputAnswer::Visited(true)));
    for (host, _) in &mut hosts {
        for asked in inputs.iter().map(String::as_str).chain(["last"]) {
            let ServerFrame::InputResponse { input, .. } = host.frame().await else { panic!("no answer") };
            assert_eq!(input, asked);
        }
    }
    assert_eq!(net.dialed.load(Ordering::SeqCst), dialed + 1, "one link was enough");
}

#[tokio::test(start_paused = true)]
async fn a_cancel_is_done_over_the_next_link() {
    let (net, [_hub, other], mut host) = Net::with_host().await;
    other.give_to(&mut host, "r/1.0").await;
    net.down();
    other.lost().await;
    other.tools.cancel(&tenant(), &call_ref("r/1.0", 1), CancelCause::Aborted, "aborted");
    net.up();
    let ServerFrame::Cancel { call, .. } = host.frame().await else { panic!("no cancel") };
    assert_eq!(call, call_ref("r/1.0", 1));
    // It is done once: the link after that does not bring it again.
    net.cut();
    hears_nothing(&mut host).await;
}

#[tokio::test(start_paused = true)]
async fn a_question_reaches_its_run_over_the_next_link_until_it_is_answered() {
    let (net, [_hub, other], mut host) = Net::with_host().await;
    let request = other.give_to(&mut host, "r/1.0").await;
    net.down();
    other.lost().await;
    let question = QuestionContent {
        text: "Which?".to_owned(),
        input: Some("q".to_owned()),
        ..QuestionContent::default()
    };
    host.say(HostFrame::NeedInput {
        call: request.call,
        question: Box::new(question),
        timeout: None,
        resume_state: None,
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    net.up();
    let asks = |update: &CallUpdate| matches!(update, CallUpdate::InputNeeded { .. });
    other.nth("r/1.0", 1, asks).await;
    let answer = InputAnswer::Text("this one".to_owned());
    other.tools.answer_input(&tenant(), &call_ref("r/1.0", 1), "q", answer.clone());
    let ServerFrame::InputResponse { answer: told, .. } = host.frame().await else { panic!("no answer") };
    assert_eq!(told, answer);
    net.cut();
    other.nth("r/1.0", 3, is_accepted).await;
    assert_eq!(other.count("r/1.0", asks), 1);
}

#[tokio::test(start_paused = true)]
async fn better_knowledge_of_a_lost_attempt_is_kept_for_its_run() {
    let (net, [_hub, other], mut host) = Net::with_host().await;
    other.give("r/1.0").await;
    let request = host.call().await;
    net.down();
    other.lost().await;
    host.say(HostFrame::Rejected {
        call: request.call,
        reason: agentloop_core::host::frame::RejectReason::Busy,
        message: "full".to_owned(),
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    net.up();
    let lost = other.nth("r/1.0", 1, is_lost).await;
    assert!(matches!(lost, CallUpdate::Lost { ran: Ran::No, busy: true, .. }), "{lost:?}");
}

#[tokio::test(start_paused = true)]
async fn another_owner_takes_the_calls_of_one_that_is_gone() {
    let (net, replicas) = Net::of([1, 2, 3]);
    let [hub, gone, next] = &replicas;
    let mut host = hub.host("h", &["weather"]).await;
    gone.ready().await;
    next.ready().await;
    net.own(2);
    gone.give_to(&mut host, "r/1.0").await;
    gone.tools.close();
    net.own(0);
    host.send_result("r/1.0", 1);
    hears_nothing(&mut host).await;
    net.own(3);
    let granted = agentloop_core::id::HostId::parse("h").unwrap();
    next.tools.reclaim(&origin(), &call_id("r/1.0"), offer("r/1.0", 1, &granted, "weather"));
    assert_eq!(host.frame().await, ack("r/1.0", ResultVerdict::Recorded));
    assert_eq!((next.finished(1).await, gone.finished(0).await), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn many_cuts_lead_to_one_execution_of_each_call() {
    let (net, replicas) = Net::of([1, 2]);
    let [hub, other] = &replicas;
    let mut host = hub.host_with("h", &["weather"], |hello| hello.initial_credit = 1_000).await;
    other.ready().await;
    let calls: Vec<String> = (0..40).map(|index| format!("r{index}/1.0")).collect();
    let mut acknowledged = Vec::new();
    for (index, call) in calls.iter().enumerate() {
        other.give(call).await;
        loop {
            match host.frame().await {
                ServerFrame::CallRequest(request) => {
                    assert_eq!(request.call, call_ref(call, 1), "no call is sent twice");
                    host.say(HostFrame::Accepted(request.call));
                    break;
                }
                ServerFrame::ResultAck { call, .. } => acknowledged.push(call.call.to_string()),
                other => panic!("{other:?}"),
            }
        }
        if index % 3 == 0 {
            net.cut();
        }
        host.send_result(call, 1);
        if index % 4 == 0 {
            net.cut();
        }
    }
    while acknowledged.len() < calls.len() {
        match host.next().await {
            Outbound::Frame(ServerFrame::ResultAck { call, .. }) => acknowledged.push(call.call.to_string()),
            other => panic!("no call is sent twice: {other:?}"),
        }
    }
    acknowledged.sort_unstable();
    let mut expected = calls.clone();
    expected.sort_unstable();
    assert_eq!(acknowledged, expected);
    assert!(net.dialed.load(Ordering::SeqCst) > 5);
    assert!(calls.iter().all(|call| other.count(call, is_lost) == 0));
}

#[tokio::test(start_paused = true)]
async fn a_hello_to_another_replica_or_of_a_stranger_opens_no_link() {
    use futures_util::StreamExt as _;
    let (_net, replicas) = Net::of([1, 2]);
    replicas[0].ready().await;
    for (from, to, opens) in [(2, 7, false), (9, 1, false), (2, 1, true)] {
        let (end, mut frames) = replicas[0].tools.accept();
        let hello = format!(r#"{{"hello":{{"from":{from},"to":{to},"version":"x"}}}}"#);
        let inbound = futures_util::stream::iter([hello.into_bytes()]).chain(futures_util::stream::pending());
        let running = tokio::spawn(end.run(inbound));
        assert_eq!(frames.next().await.is_some(), opens);
        running.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn only_the_hub_takes_hosts() {
    let (_net, replicas) = Net::of([1, 2]);
    replicas[0].ready().await;
    replicas[1].ready().await;
    assert_eq!(replicas[0].tools.own().takes_hosts().await, Some(TakesHosts::Yes));
    assert_eq!(replicas[1].tools.own().takes_hosts().await, None);
}
