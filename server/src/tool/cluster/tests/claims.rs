//! A run moves from one owner to another, and the earlier one still speaks.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use agentloop_core::cluster::shard::OwnerNo;
use agentloop_core::host::CallUpdate;
use agentloop_core::host::frame::{HostFrame, Ran, RejectReason, ResultVerdict};
use agentloop_core::id::{Attempt, HostId, InstanceId, RuntimeId};
use futures_util::StreamExt as _;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;

use super::super::LinkFrames;
use super::super::frame::{Command, CommandNo, ToHub, encode};
use super::super::sink::RoutedSink;
use super::harness::*;
use crate::tool::tests::harness::*;
use crate::tool::{CallSink as _, Seek, Tools as _};

/// A link of replica 2 to the hub, whose frames a test writes.
struct Raw {
    frames: mpsc::UnboundedSender<Vec<u8>>,
    back: LinkFrames,
}

impl Raw {
    async fn open(hub: &Replica) -> Self {
        hub.ready().await;
        let (end, back) = hub.tools.accept();
        let (frames, inbound) = mpsc::unbounded_channel();
        tokio::spawn(end.run(UnboundedReceiverStream::new(inbound)));
        let mut raw = Self { frames, back };
        raw.say(&ToHub::Hello { from: OwnerNo(2), to: OwnerNo(1), version: "x".to_owned(), marks: false });
        assert!(raw.back.next().await.is_some(), "the hub takes the link");
        raw
    }

    fn say(&self, frame: &ToHub) {
        // A link that has ended takes nothing more.
        let _ = self.frames.send(encode(frame));
    }

    /// Returns when the hub has carried out what was said before.
    async fn done(&mut self) {
        let tenant = tenant();
        let (host, runtime) = (HostId::parse("none").unwrap(), RuntimeId::parse("none/rt1").unwrap());
        self.say(&ToHub::Command {
            no: CommandNo(1),
            command: Command::CloseRuntime { tenant, host, runtime },
        });
        while !String::from_utf8(self.back.next().await.unwrap()).unwrap().contains("done") {}
    }
}

/// The call is queued for a replica, in the name of this claim of its run.
fn queue(replica: &Replica, epoch: u64) {
    assert_eq!(replica.tools.seek(&origin_at(epoch), &call_id("r/1.0"), "weather", None), Seek::Queued);
}

/// Time for frames to arrive.
async fn settle() {
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
}

fn ended(attempt: u32) -> CallUpdate {
    CallUpdate::Lost { attempt: Attempt(attempt), message: "full".to_owned(), ran: Ran::No, busy: true }
}

/// The run moves between the hub and another replica, and its earlier owner lets go of it after that. The later one gets its room.
async fn lets_go_late(from: usize, to: usize, let_go: impl AsyncFn(&Net, &Replica)) {
    let (net, replicas) = Net::of([1, 2]);
    let busy = replicas[0].host_with("h", &["weather"], |hello| hello.initial_credit = 0).await;
    replicas[1].ready().await;
    queue(&replicas[from], 1);
    settle().await;
    queue(&replicas[to], 2);
    settle().await;
    let_go(&net, &replicas[from]).await;
    settle().await;
    busy.say(HostFrame::Credit { total: 1 });
    let granted = replicas[to].granted("r/1.0", 1);
    let granted = tokio::time::timeout(std::time::Duration::from_secs(5), granted).await;
    assert!(granted.is_ok(), "the call is still in the queue");
    assert_eq!(replicas[from].count("r/1.0", is_granted), 0);
}

#[tokio::test(start_paused = true)]
async fn the_hub_keeps_the_calls_that_it_took_over_when_the_link_of_their_earlier_owner_ends() {
    lets_go_late(1, 0, async |net, gone| {
        net.down();
        gone.lost().await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_late_release_of_another_replica_leaves_the_hubs_calls() {
    lets_go_late(1, 0, async |_, earlier| earlier.tools.release(&tenant(), &run_id("r"))).await;
}

#[tokio::test(start_paused = true)]
async fn a_late_release_of_the_hub_leaves_the_calls_of_another_replica() {
    lets_go_late(0, 1, async |_, hub| {
        hub.tools.stop_seeking(&tenant(), &call_id("r/1.0"));
        hub.tools.release(&tenant(), &run_id("r"));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_earlier_owner_does_not_take_a_call_from_the_later_one() {
    let host_id = HostId::parse("h").unwrap();
    // The hub is among the earlier owners, and among the later ones.
    for (earlier, later) in [(1, 2), (0, 1), (1, 0)] {
        let (_net, replicas) = Net::of([1, 2, 3]);
        let mut host = replicas[0].host("h", &["weather"]).await;
        for replica in &replicas {
            replica.ready().await;
        }
        let (earlier, later) = (&replicas[earlier], &replicas[later]);
        earlier.give_to(&mut host, "r/1.0").await;
        let mut offered = offer("r/1.0", 1, &host_id, "weather");
        offered.instance = Some(InstanceId::parse("h-process").unwrap());
        later.tools.reclaim(&origin_at(2), &call_id("r/1.0"), offered.clone());
        later.nth("r/1.0", 1, is_accepted).await;

        earlier.tools.reclaim(&origin_at(1), &call_id("r/1.0"), offered);
        let sought = earlier.tools.seek(&origin_at(1), &call_id("r/1.0"), "weather", None);
        assert_eq!(sought, Seek::Queued, "the task that seeks hears no more of it");
        earlier.tools.offer(&origin_at(1), &call_id("r/1.0"), offer("r/1.0", 2, &host_id, "weather"));
        settle().await;
        host.send_result("r/1.0", 1);
        assert_eq!(host.frame().await, ack("r/1.0", ResultVerdict::Recorded));
        assert_eq!((later.finished(1).await, earlier.finished(0).await), (1, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn the_link_of_a_replica_that_is_fenced_ends() {
    let (_net, replicas) = Net::of([1, 2]);
    let [hub, other] = &replicas;
    other.ready().await;
    hub.learn_hub(std::slice::from_ref(hub), 1);
    other.lost().await;
    settle().await;
    assert!(!other.tools.is_connected(), "the hub refuses it");
    hub.learn_hub(&replicas, 1);
    other.ready().await;
}

#[tokio::test(start_paused = true)]
async fn frames_of_a_link_that_was_replaced_are_left_out() {
    let (net, replicas) = Net::of([1, 2]);
    net.down();
    replicas[1].lost().await;
    let hub = &replicas[0];
    let mut link = Raw::open(hub).await;
    // Its task sees the end of the link and the frame at one time, and may take either first.
    for index in 0..30 {
        let late = call_id(&format!("r{index}/1.0"));
        let next = Raw::open(hub).await;
        let (origin, tool) = (origin(), "weather".to_owned());
        link.say(&ToHub::Seek { origin, call: late.clone(), tool, on: None });
        settle().await;
        assert_eq!(hub.tools.routes.of_run(&tenant(), &late.run), None);
        link = next;
    }
    link.done().await;
}

#[tokio::test(start_paused = true)]
async fn what_an_earlier_owner_heard_is_kept_for_the_later_one() {
    let (net, replicas) = Net::of([1, 2, 3]);
    net.down();
    replicas[1].lost().await;
    let (hub, call) = (&replicas[0].tools, call_id("r/1.0"));
    hub.pending_updates.keep(&tenant(), &call, &ended(1));
    let mut link = Raw::open(&replicas[0]).await;
    for (owner, kept) in [(3, 1), (2, 0)] {
        assert!(hub.routes.claim_for_peer(&tenant(), &call.run, OwnerNo(owner), origin_at(1).epoch));
        link.say(&ToHub::Heard { tenant: tenant(), call: call.clone(), attempt: Attempt(1) });
        link.done().await;
        assert_eq!(hub.pending_updates.of(&tenant(), &call).len(), kept);
    }
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_lost_a_run_does_not_say_that_the_run_heard() {
    let (net, [hub, other], mut host) = Net::with_host().await;
    for (call, owner, kept) in [("r/1.0", 2, 0), ("s/1.0", 0, 1)] {
        other.give(call).await;
        let request = host.call().await;
        net.own(owner);
        let (reason, message) = (RejectReason::Busy, "full".to_owned());
        host.say(HostFrame::Rejected { call: request.call, reason, message });
        other.nth(call, 1, is_lost).await;
        settle().await;
        assert_eq!(hub.tools.pending_updates.of(&tenant(), &call_id(call)).len(), kept);
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_call_whose_run_leaves_the_hub_is_kept_for_the_next_owner() {
    let (net, [hub, _other], mut host) = Net::with_host().await;
    for (call, owner, kept) in [("r/1.0", 1, 0), ("s/1.0", 0, 1)] {
        net.own(1);
        hub.give(call).await;
        let request = host.call().await;
        net.own(owner);
        let (reason, message) = (RejectReason::Busy, "full".to_owned());
        host.say(HostFrame::Rejected { call: request.call, reason, message });
        hub.nth(call, 1, is_lost).await;
        settle().await;
        assert_eq!(hub.tools.pending_updates.of(&tenant(), &call_id(call)).len(), kept, "{call}");
    }
}

/// It could not read the run's journal, for example. The next task of the run requests the call.
#[tokio::test(start_paused = true)]
async fn an_end_that_the_owner_could_not_record_is_told_again() {
    let (net, [hub, other], mut host) = Net::with_host().await;
    for (call, replica) in [("r/1.0", &hub), ("s/1.0", &other)] {
        net.own(replica.number.0);
        replica.give(call).await;
        let request = host.call().await;
        replica.engine.available.store(false, Ordering::SeqCst);
        let (reason, message) = (RejectReason::Busy, "full".to_owned());
        host.say(HostFrame::Rejected { call: request.call, reason, message });
        settle().await;
        assert_eq!(hub.tools.pending_updates.of(&tenant(), &call_id(call)).len(), 1, "{call}");
        replica.engine.available.store(true, Ordering::SeqCst);
        let before = offer(call, 1, &HostId::parse("h").unwrap(), "weather");
        replica.tools.reclaim(&origin(), &call_id(call), before);
        let lost = replica.nth(call, 1, is_lost).await;
        assert!(matches!(lost, CallUpdate::Lost { ran: Ran::No, .. }), "{lost:?}");
        settle().await;
        assert!(hub.tools.pending_updates.of(&tenant(), &call_id(call)).is_empty(), "{call}");
    }
}

#[tokio::test(start_paused = true)]
async fn output_of_a_run_without_a_task_costs_no_lookup() {
    let (net, replicas) = Net::of([1, 2]);
    replicas[0].ready().await;
    let sink = RoutedSink(Arc::downgrade(&replicas[0].tools));
    let chunk = CallUpdate::Progress { attempt: Attempt(1), message: "half".to_owned(), fraction: None };
    for (update, lookups) in [(chunk, 0), (ended(1), 1)] {
        let before = net.looked_up.load(Ordering::SeqCst);
        sink.report_update(&tenant(), &call_id("r/1.0"), update).await;
        assert_eq!(net.looked_up.load(Ordering::SeqCst) - before, lookups);
    }
}
