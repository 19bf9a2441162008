//! Changes at other replicas: one list with those of this one, and a new snapshot where some may have been missed.

use std::time::Duration;

use agentloop_core::limits::{LABELS_MAX, SHORT_TEXT_BYTES_MAX};
use futures_util::FutureExt as _;
use tokio::time::{Instant, advance};

use super::*;
use crate::engine::watch::peer_following::PeerFollowing;
use crate::engine::watch::peers::KEPT_FOR;
use crate::engine::watch::tap::TapReceiver;

impl Fixture {
    fn peer_changed(&self, run: &str, seq: u64, from: ChangedFrom) {
        let change = change(run, seq, from, RunStatus::ModelRunning);
        self.watchers.peer_changed(change, self.clock.now(), STALL);
    }

    /// As [`Self::moved`], at another replica.
    fn peer_moved(&self, run: &str, seq: u64) {
        self.peer_changed(run, seq, ChangedFrom::Status(RunStatus::ModelRunning));
    }

    fn reset_watchers(&self) {
        self.watchers.reset_watchers(self.clock.now());
    }

    fn peer_following(&self) -> PeerFollowing {
        let clock: Arc<dyn Clock> = Arc::new(self.clock.clone());
        self.watchers.peer_following(&clock)
    }
}

/// The changes that wait in a tap.
fn changes_of(tap: &mut TapReceiver) -> Vec<String> {
    let found = std::iter::from_fn(|| tap.next(usize::MAX).now_or_never().flatten());
    found.flatten().map(|change| format!("{} {}", change.row.run, change.row.last_seq.0)).collect()
}

#[test]
fn changes_of_all_replicas_are_in_one_list_and_only_those_of_this_one_are_told_to_others() {
    let fixture = Fixture::new();
    let mut tap = fixture.watchers.tap();
    let (watch, _) = fixture.watch(&RunFilter::default(), None);
    fixture.moved("a", 1);
    fixture.peer_moved("b", 1);
    fixture.moved("c", 1);
    assert_eq!(unread(&watch), ["a 1", "b 1", "c 1"]);
    assert_eq!(changes_of(&mut tap), ["a 1", "c 1"]);
    // A token continues with the changes of all.
    assert_eq!(fixture.watch(&RunFilter::default(), Some(ListPosition { process: 7, no: 1 })).1, Some(3));
}

#[test]
fn an_engine_that_nobody_watches_tells_its_changes_while_there_is_a_tap() {
    let fixture = Fixture::new();
    assert!(!fixture.watchers.is_active());
    let mut tap = fixture.watchers.tap();
    assert!(fixture.watchers.is_active());
    fixture.moved("a", 1);
    assert!(fixture.watchers.is_active());
    assert_eq!(changes_of(&mut tap), ["a 1"]);
    drop(tap);
    fixture.moved("a", 2);
    assert!(!fixture.watchers.is_active());
}

#[test]
fn a_tap_that_overflows_is_closed_after_what_it_has() {
    let fixture = Fixture::new();
    let (mut slow, mut other) = (fixture.watchers.tap(), fixture.watchers.tap());
    for seq in 1..=1_025 {
        fixture.moved("a", seq);
        assert_eq!(changes_of(&mut other), [format!("a {seq}")]);
    }
    assert_eq!(changes_of(&mut slow).len(), 1_024);
    assert!(slow.is_closed(), "the other replica makes it anew");
    assert!(!other.is_closed());
}

#[test]
fn a_tap_whose_changes_have_too_many_bytes_is_closed_after_what_it_has() {
    let fixture = Fixture::new();
    let (mut slow, mut other) = (fixture.watchers.tap(), fixture.watchers.tap());
    let labels: BTreeMap<String, String> =
        (0..LABELS_MAX).map(|at| (format!("{at:02}"), "x".repeat(SHORT_TEXT_BYTES_MAX - 2))).collect();
    let (status, clock) = (RunStatus::ModelRunning, &fixture.clock);
    for seq in 1..=100 {
        let mut large = change("a", seq, ChangedFrom::Status(status), status);
        large.row.labels = labels.clone();
        fixture.watchers.changed(large, clock.now(), STALL);
        assert_eq!(changes_of(&mut other), [format!("a {seq}")], "what was read does not count");
    }
    assert_eq!(changes_of(&mut slow).len(), 62, "16 MiB");
    assert!(slow.is_closed() && !other.is_closed());
}

#[test]
fn an_older_row_of_a_run_that_has_moved_is_dropped() {
    let fixture = Fixture::new();
    let _transport = fixture.peer_following();
    let (watch, _) = fixture.watch(&RunFilter::default(), None);
    fixture.peer_moved("a", 10);
    assert_eq!(unread(&watch), ["a 10"]);
    fixture.peer_moved("a", 9);
    assert_eq!(unread(&watch), [] as [&str; 0], "an older one of another peer");
    fixture.peer_moved("a", 10);
    assert_eq!(unread(&watch), ["a 10"], "its new owner tells the same row");
    // It moves here, and its old owner is heard late.
    fixture.moved("a", 12);
    fixture.peer_moved("a", 11);
    assert_eq!(unread(&watch), ["a 12"]);
    fixture.peer_changed("a", 12, ChangedFrom::Deleted);
    fixture.peer_moved("a", 12);
    assert_eq!(unread(&watch), ["a x"]);
    fixture.peer_changed("a", 1, ChangedFrom::Nothing);
    assert_eq!(unread(&watch), ["a 1"], "another run of the same id");
}

#[test]
fn of_the_newest_rows_the_latest_are_remembered() {
    let fixture = Fixture::new();
    let _transport = fixture.peer_following();
    let (watch, _) = fixture.watch(&RunFilter::default(), None);
    for run in 0..20_000 {
        fixture.peer_moved(&format!("r{run}"), 2);
    }
    watch.begin_again();
    for run in ["r0", "r3616", "r11999", "r19999"] {
        fixture.peer_moved(run, 1);
    }
    assert_eq!(unread(&watch), ["r0 1", "r3616 1"]);
}

#[test]
fn who_may_have_missed_changes_begins_again_and_no_token_of_before_continues() {
    let fixture = Fixture::new();
    let any = RunFilter::default();
    let (watch, _) = fixture.watch(&any, None);
    fixture.moved("a", 1);
    assert_eq!(unread(&watch), ["a 1"]);
    let position = |no| Some(ListPosition { process: 7, no });
    assert_eq!(fixture.watch(&any, position(1)).1, Some(1));
    // It has read nothing for long, as there was nothing to read.
    fixture.clock.set(Timestamp(1_000_000));
    fixture.reset_watchers();
    assert_eq!(fixture.moved("a", 2), 0, "it has not stalled");
    let NextChange::Lost(reason) = watch.read() else { panic!("it begins again") };
    assert_eq!(reason, "changes of runs of another replica may be unknown");
    assert_eq!(fixture.watch(&any, position(1)).1, None);
    let no = watch.begin_again();
    fixture.peer_moved("b", 1);
    assert_eq!(unread(&watch), ["b 1"]);
    assert_eq!(fixture.watch(&any, position(no)).1, Some(no + 1));
    // One that does not begin again is ended.
    fixture.reset_watchers();
    fixture.clock.set(Timestamp(1_000_101));
    assert_eq!(fixture.moved("a", 3), 1);
    assert_eq!(unread(&watch), ["stalled"]);
    fixture.reset_watchers();
    assert_eq!(unread(&watch), ["stalled"]);
}

#[tokio::test(start_paused = true)]
async fn a_list_waits_a_moment_for_other_replicas() {
    let fixture = Fixture::new();
    let (alone, _) = fixture.watch(&RunFilter::default(), None);
    let began = Instant::now();
    alone.peers_followed().await;
    assert_eq!(began.elapsed(), Duration::ZERO, "there are none");
    let transport = fixture.peer_following();
    alone.begin_again();
    let (patient, _) = fixture.watch(&RunFilter::default(), None);
    let waiting = async {
        patient.peers_followed().await;
        patient.begin_again();
    };
    let following = async {
        advance(Duration::from_millis(500)).await;
        transport.set_followed();
    };
    tokio::join!(waiting, following);
    assert_eq!(began.elapsed(), Duration::from_millis(500));
    assert_eq!(unread(&alone), ["lost"], "its snapshot began before");
    assert_eq!(unread(&patient), [] as [&str; 0]);
    // They are not followed any more: what happens is not known, and a list waits for them again.
    transport.set_unfollowed();
    assert_eq!(unread(&patient), ["lost"]);
    patient.peers_followed().await;
    assert_eq!(began.elapsed(), Duration::from_millis(1_500), "they do not come");
    drop(transport);
    patient.peers_followed().await;
    assert_eq!(began.elapsed(), Duration::from_millis(1_500), "there are none any more");
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_for_the_transport_a_minute_after_the_last_watcher() {
    let fixture = Fixture::new();
    let transport = fixture.peer_following();
    let minute = KEPT_FOR.duration();
    let short = Duration::from_secs(1);
    assert!(tokio::time::timeout(short, transport.begins()).await.is_err());
    let (first, _) = fixture.watch(&RunFilter::default(), None);
    transport.begins().await;
    assert!(tokio::time::timeout(minute * 2, transport.ends()).await.is_err());
    drop(first);
    let ends = transport.ends();
    let comes_back = async {
        advance(minute - short).await;
        let second = fixture.watch(&RunFilter::default(), None);
        advance(short).await;
        drop(second);
    };
    let began = Instant::now();
    tokio::join!(ends, comes_back);
    assert_eq!(began.elapsed(), minute * 2);
}

#[test]
fn another_version_may_know_more_and_less() {
    let change = change("a", 3, ChangedFrom::Status(RunStatus::Queued), RunStatus::AwaitingHuman);
    let mut json = serde_json::to_value(&change).unwrap();
    assert_eq!(serde_json::from_value::<RunChange>(json.clone()).unwrap(), change);
    assert_eq!(json["from"], serde_json::json!({ "status": "queued" }));
    json["row"]["summary"]["calls"] = serde_json::json!({});
    json["row"]["summary"]["later"] = serde_json::json!({ "x": 1 });
    json["later"] = serde_json::json!(1);
    let fields = json.as_object_mut().unwrap();
    fields.remove("waiting_on");
    fields.remove("from");
    let read: RunChange = serde_json::from_value(json).unwrap();
    assert_eq!(read, RunChange { from: ChangedFrom::Unknown, ..change });
}
