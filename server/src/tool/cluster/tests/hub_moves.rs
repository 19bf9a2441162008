//! Another replica becomes the hub: hosts go there, and calls follow.

use std::time::Duration;

use agentloop_core::host::CloseReason;
use agentloop_core::host::frame::{HostFrame, ResultVerdict, ServerFrame};

use super::harness::*;
use crate::tool::tests::harness::*;
use crate::tool::{Outbound, Seek, Tools as _};

/// The host is told to connect again, and its stream ends.
async fn sent_away(mut host: FakeHost) {
    assert!(matches!(host.frame().await, ServerFrame::GoAway { .. }));
    assert_eq!(host.next().await, Outbound::End(CloseReason::ShuttingDown));
}

/// One call is at its host and one waits for room, when the hub moves from one replica to another. `owner` has the runs.
async fn moves(owner_of_runs: u64, from: usize, to: usize) {
    let (net, replicas) = Net::of([1, 2, 3]);
    net.hub(&replicas, replicas[from].number.0);
    net.own(owner_of_runs);
    for replica in &replicas {
        replica.ready().await;
    }
    let of_runs = replicas.iter().find(|replica| replica.number.0 == owner_of_runs).unwrap();
    let mut host = replicas[from].host_with("h", &["weather"], |hello| hello.initial_credit = 1).await;
    of_runs.ready().await;
    of_runs.give_to(&mut host, "r/1.0").await;
    assert_eq!(of_runs.tools.seek(&origin(), &call_id("s/1.0"), "weather", None), Seek::Queued);
    tokio::time::sleep(Duration::from_millis(10)).await;

    net.hub(&replicas, replicas[to].number.0);
    sent_away(host).await;
    replicas[to].ready().await;
    let joined = |hello: &mut agentloop_core::host::frame::Hello| {
        hello.calls_in_hand = vec![in_hand("r/1.0", 1, false)];
        hello.initial_credit = 1;
    };
    let mut host = replicas[to].host_with("h", &["weather"], joined).await;
    of_runs.nth("r/1.0", 2, is_accepted).await;
    host.send_result("r/1.0", 1);
    assert_eq!(host.frame().await, ack("r/1.0", ResultVerdict::Recorded));
    // The waiting call looked for room at the new hub.
    let granted = of_runs.granted("s/1.0", 1).await;
    of_runs.offer("s/1.0", 1, &granted);
    assert_eq!(host.take().await.call, call_ref("s/1.0", 1));
    host.send_result("s/1.0", 1);
    assert_eq!(host.frame().await, ack("s/1.0", ResultVerdict::Recorded));
    assert_eq!(of_runs.finished(2).await, 2);
    assert_eq!(of_runs.count("r/1.0", is_lost) + of_runs.count("s/1.0", is_lost), 0);
    let others = replicas.iter().filter(|replica| replica.number.0 != owner_of_runs);
    assert!(others.into_iter().all(|replica| replica.engine.all().is_empty()));
}

#[tokio::test(start_paused = true)]
async fn to_the_owner_of_the_run() {
    moves(2, 0, 1).await;
}

#[tokio::test(start_paused = true)]
async fn away_from_the_owner_of_the_run() {
    moves(2, 1, 0).await;
}

#[tokio::test(start_paused = true)]
async fn from_one_replica_to_another() {
    moves(2, 0, 2).await;
}

#[tokio::test(start_paused = true)]
async fn there_and_back() {
    let (net, replicas, mut host) = Net::with_host().await;
    let [first, other] = &replicas;
    other.give_to(&mut host, "r/1.0").await;
    let in_hand = |hello: &mut agentloop_core::host::frame::Hello| {
        hello.calls_in_hand = vec![in_hand("r/1.0", 1, false)];
    };
    for (times, hub) in [(2, other), (3, first)] {
        net.hub(&replicas, hub.number.0);
        sent_away(host).await;
        host = hub.host_with("h", &["weather"], in_hand).await;
        other.nth("r/1.0", times, is_accepted).await;
    }
    host.send_result("r/1.0", 1);
    assert_eq!(host.frame().await, ack("r/1.0", ResultVerdict::Recorded));
    assert_eq!(other.count("r/1.0", is_lost), 0);
}

#[tokio::test(start_paused = true)]
async fn while_nobody_is_known_everything_stays_as_it_is() {
    let (net, replicas, mut host) = Net::with_host().await;
    let [hub, other] = &replicas;
    net.hub(&replicas, 0);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(hub.tools.is_hub());
    other.give("r/1.0").await;
    host.take().await;
    host.send_result("r/1.0", 1);
    assert_eq!(host.frame().await, ack("r/1.0", ResultVerdict::Recorded));
}

#[tokio::test(start_paused = true)]
async fn a_host_that_does_not_come_to_the_new_hub_has_lost_its_call() {
    let (net, replicas) = Net::without_hub([1, 2]);
    net.hub(&replicas, 0);
    tokio::time::sleep(Duration::from_secs(1)).await;
    net.hub(&replicas, 1);
    let [first, other] = &replicas;
    let mut host = first.host("h", &["weather"]).await;
    other.ready().await;
    other.give_to(&mut host, "r/1.0").await;
    let began = tokio::time::Instant::now();
    net.hub(&replicas, 2);
    other.nth("r/1.0", 1, is_lost).await;
    assert_eq!(began.elapsed().as_secs(), 10, "the grace of a host");
    host.say(HostFrame::Pong);
}

/// The replica that takes the hosts has joined a moment ago.
#[tokio::test(start_paused = true)]
async fn a_hub_that_was_there_before_its_successor_had_its_hosts_with_it() {
    let (net, replicas, mut host) = Net::with_host().await;
    let [_, other] = &replicas;
    other.give_to(&mut host, "r/1.0").await;
    let began = tokio::time::Instant::now();
    net.hub(&replicas, 2);
    other.nth("r/1.0", 1, is_lost).await;
    assert_eq!(began.elapsed().as_secs(), 25, "15 s to leave it, and the grace of a host");
    host.say(HostFrame::Pong);
}

/// A hub that is cut off from the database alone keeps its hosts for a while.
#[tokio::test(start_paused = true)]
async fn a_host_of_a_hub_that_was_there_for_long_has_time_to_leave_it() {
    let (net, replicas, mut host) = Net::with_host().await;
    let [first, other] = &replicas;
    other.give_to(&mut host, "r/1.0").await;
    for _ in 0..8 {
        tokio::time::sleep(std::time::Duration::from_secs(5)).await;
        let calls = vec![call_ref("r/1.0", 1)];
        host.say(HostFrame::Heartbeat { calls, status: String::new() });
    }
    let began = tokio::time::Instant::now();
    net.hub(&replicas, 2);
    tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    // Moves that follow give it no more time.
    for hub in [1, 2] {
        net.hub(&replicas, hub);
        first.ready().await;
    }
    other.nth("r/1.0", 1, is_lost).await;
    assert_eq!(began.elapsed().as_secs(), 25, "15 s to leave it, and the grace of a host");
}
