//! Watchers of lists: they read the newest rows and removals, and go on with a token.

mod peers;

use std::collections::BTreeMap;
use std::sync::Arc;

use agentloop_core::id::{RunId, Seq, SessionId, TenantId};
use agentloop_core::run::status::{RunError, RunErrorCode, RunStatus};
use agentloop_core::run::view::WaitKind;
use agentloop_core::time::{Millis, Timestamp};
use agentloop_core::tool::Digest;

use super::change::{ChangedFrom, RunChange};
use super::watcher::ListChange;
use super::watchers::{ListPosition, NextChange, RunWatchers, WatchHandle};
use crate::clock::{Clock, TestClock};
use crate::engine::Engine;
use crate::store::conformance::fixture::summary;
use crate::store::{RunFilter, RunRow};

const STALL: Millis = Millis(100);

struct Fixture {
    watchers: Arc<RunWatchers>,
    clock: TestClock,
}

fn row(run: &str, seq: u64, status: RunStatus) -> RunRow {
    RunRow {
        run: RunId::parse(run).unwrap(),
        session: SessionId::parse("s").unwrap(),
        request_digest: Digest::of(&[]),
        agent: "default".to_owned(),
        model: "fake/m".to_owned(),
        labels: Default::default(),
        preview: "x".repeat(100),
        created_by: None,
        created_at: Timestamp(1),
        updated_at: Timestamp(seq),
        last_seq: Seq(seq),
        queue_no: None,
        summary: summary(status, None),
    }
}

fn change(run: &str, seq: u64, from: ChangedFrom, to: RunStatus) -> RunChange {
    RunChange::new(&TenantId::local(), row(run, seq, to), None, from)
}

impl Engine {
    /// Tells a change of a run, as the task of a run does.
    pub(crate) fn tell_change(&self, run: &str, seq: u64) {
        self.tell_labelled_change(run, seq, BTreeMap::new());
    }

    /// The same for a run with these labels.
    pub(crate) fn tell_labelled_change(&self, run: &str, seq: u64, labels: BTreeMap<String, String>) {
        let status = RunStatus::ModelRunning;
        let row = RunRow { labels, ..row(run, seq, status) };
        self.deps().run_changed(&TenantId::local(), row, None, ChangedFrom::Status(status));
    }
}

impl RunChange {
    /// The id of its run.
    pub(crate) fn run(&self) -> String {
        self.row.run.to_string()
    }
}

impl Fixture {
    fn new() -> Self {
        Self { watchers: Arc::default(), clock: TestClock::at(Timestamp(1_000)) }
    }

    fn watch(&self, filter: &RunFilter, after: Option<ListPosition>) -> (WatchHandle, Option<u64>) {
        let clock: Arc<dyn Clock> = Arc::new(self.clock.clone());
        self.watchers.watch(&TenantId::local(), filter, after, || 7, &clock)
    }

    fn changed(&self, run: &str, seq: u64, from: ChangedFrom, to: RunStatus) -> u64 {
        let now = self.clock.now();
        self.watchers.changed(change(run, seq, from, to), now, STALL)
    }

    /// A change of a run that is at its model, before and after.
    fn moved(&self, run: &str, seq: u64) -> u64 {
        let status = RunStatus::ModelRunning;
        self.changed(run, seq, ChangedFrom::Status(status), status)
    }
}

/// Everything that waits: a run with the seq of its row, or `-` if it was removed, `x` if it was deleted.
fn unread(handle: &WatchHandle) -> Vec<String> {
    let mut found = Vec::new();
    loop {
        match handle.read() {
            NextChange::Change { change: ListChange::Row(change), .. } => {
                found.push(format!("{} {}", change.row.run, change.row.last_seq.0));
            }
            NextChange::Change { run, change: ListChange::Removed { deleted: false }, .. } => {
                found.push(format!("{run} -"))
            }
            NextChange::Change { run, change: ListChange::Removed { deleted: true }, .. } => {
                found.push(format!("{run} x"))
            }
            NextChange::Nothing(_) => return found,
            NextChange::Lost(_) => return vec!["lost".to_owned()],
            NextChange::Stalled => return vec!["stalled".to_owned()],
        }
    }
}

#[test]
fn a_slow_watcher_gets_the_newest_row_of_each_run_once() {
    let fixture = Fixture::new();
    let (slow, _) = fixture.watch(&RunFilter::default(), None);
    for seq in 1..=50 {
        fixture.moved("a", seq);
        fixture.moved("b", seq);
    }
    assert_eq!(unread(&slow), ["a 50", "b 50"]);
    fixture.moved("b", 51);
    assert_eq!(unread(&slow), ["b 51"]);
}

#[test]
fn a_run_that_was_deleted_is_removed_before_another_of_its_id_is_told() {
    let fixture = Fixture::new();
    let (watch, _) = fixture.watch(&RunFilter::default(), None);
    let begins = |seq| fixture.changed("a", seq, ChangedFrom::Nothing, RunStatus::Preparing);
    let is_deleted = |seq| fixture.changed("a", seq, ChangedFrom::Deleted, RunStatus::Completed);
    fixture.moved("a", 9);
    is_deleted(9);
    begins(1);
    fixture.moved("a", 2);
    fixture.moved("b", 1);
    let NextChange::Change { change: ListChange::Removed { deleted: true }, upto: no, .. } = watch.read()
    else {
        panic!("first")
    };
    assert_eq!(no, 0, "a token from here on tells the deletion again, and then the new run");
    let (again, _) = fixture.watch(&RunFilter::default(), Some(ListPosition { process: 7, no }));
    assert_eq!(unread(&again), ["a x", "a 2", "b 1"]);
    assert_eq!(unread(&watch), ["a 2", "b 1"]);
    is_deleted(2);
    begins(1);
    is_deleted(1);
    assert_eq!(unread(&watch), ["a x", "a x"], "once too often does no harm");
}

#[test]
fn a_paused_run_waits_for_an_operator_if_its_model_failed_and_else_for_a_step() {
    let mut paused = row("a", 1, RunStatus::Paused);
    let kind = |row: &RunRow| row.waiting_on().map(|wait| (wait.kind, wait.what));
    assert_eq!(kind(&paused), Some((WaitKind::Step, "Step".to_owned())));
    paused.summary.error = Some(RunError::new(RunErrorCode::Internal, "down"));
    assert_eq!(kind(&paused), Some((WaitKind::Operator, "ResumeRun".to_owned())));
}

#[test]
fn a_run_that_stops_matching_is_removed_and_others_are_not_told() {
    let fixture = Fixture::new();
    let parked = RunFilter { statuses: vec![RunStatus::AwaitingHuman], ..RunFilter::default() };
    let (watch, _) = fixture.watch(&parked, None);
    let model = ChangedFrom::Status(RunStatus::ModelRunning);
    let human = ChangedFrom::Status(RunStatus::AwaitingHuman);
    fixture.changed("a", 1, ChangedFrom::Nothing, RunStatus::Preparing);
    fixture.changed("a", 2, model, RunStatus::ToolRunning);
    assert_eq!(unread(&watch), [] as [&str; 0]);
    fixture.changed("a", 3, model, RunStatus::AwaitingHuman);
    assert_eq!(unread(&watch), ["a 3"]);
    fixture.changed("a", 4, human, RunStatus::AwaitingHuman);
    fixture.changed("a", 5, human, RunStatus::Completed);
    assert_eq!(unread(&watch), ["a -"], "the row that waited is not told any more");
    fixture.changed("b", 1, ChangedFrom::Unknown, RunStatus::Completed);
    assert_eq!(unread(&watch), ["b -"]);
    fixture.changed("c", 1, ChangedFrom::Deleted, RunStatus::AwaitingHuman);
    fixture.changed("d", 1, ChangedFrom::Deleted, RunStatus::Completed);
    assert_eq!(unread(&watch), ["c x"]);
}

#[test]
fn a_token_continues_where_every_later_change_is_known() {
    let fixture = Fixture::new();
    let any = RunFilter::default();
    let (first, goes_on) = fixture.watch(&any, None);
    assert_eq!(goes_on, None);
    fixture.moved("a", 1);
    fixture.moved("b", 1);
    // `b` waits still, so the token after `a` is one before it.
    let NextChange::Change { run, upto: no, .. } = first.read() else { panic!("`a` waits") };
    assert_eq!((run.as_str(), no), ("a", 1));
    drop(first);
    fixture.moved("c", 1);
    let position = |no| Some(ListPosition { process: 7, no });
    let (second, goes_on) = fixture.watch(&any, position(no));
    assert_eq!((goes_on, unread(&second)), (Some(3), vec!["b 1".to_owned(), "c 1".to_owned()]));
    assert_eq!(fixture.watch(&any, position(3)).1, Some(3));
    assert_eq!(fixture.watch(&any, position(4)).1, None, "nobody gave it out");
    assert_eq!(fixture.watch(&any, Some(ListPosition { process: 8, no: 3 })).1, None, "of another process");
    assert_eq!(fixture.watch(&any, position(u64::MAX)).1, None);
    drop(second);
    // Nobody watches for so long that changes are not kept any more.
    fixture.clock.set(Timestamp(10_000_000));
    assert!(fixture.watchers.is_active());
    fixture.moved("d", 1);
    assert!(!fixture.watchers.is_active());
    assert_eq!(fixture.watch(&any, position(3)).1, None);
}

#[test]
fn too_many_unread_changes_are_a_new_snapshot() {
    let fixture = Fixture::new();
    let (watch, _) = fixture.watch(&RunFilter::default(), None);
    for run in 0..10_000 {
        fixture.moved(&format!("r{run}"), 1);
    }
    assert_eq!(unread(&watch), ["lost"]);
    let no = watch.begin_again();
    assert_eq!((no, unread(&watch)), (10_000, vec![]));
    fixture.moved("a", 1);
    assert_eq!(unread(&watch), ["a 1"]);
    // The oldest changes are not kept.
    let position = |no| Some(ListPosition { process: 7, no });
    assert_eq!(fixture.watch(&RunFilter::default(), position(1)).1, None);
    assert_eq!(fixture.watch(&RunFilter::default(), position(9_999)).1, Some(10_001));
}

#[test]
fn who_never_reads_is_ended_and_who_has_nothing_to_read_is_not() {
    let fixture = Fixture::new();
    let (idle, _) = fixture.watch(&RunFilter::default(), None);
    let text = RunFilter { text: "nothing has this".to_owned(), ..RunFilter::default() };
    let (quiet, _) = fixture.watch(&text, None);
    fixture.clock.set(Timestamp(1_000_000));
    assert_eq!(fixture.moved("a", 1), 0, "it had nothing to read");
    fixture.clock.set(Timestamp(1_000_101));
    assert_eq!(fixture.moved("a", 2), 1);
    assert_eq!(fixture.moved("a", 3), 0, "it counts once");
    assert_eq!(unread(&idle), ["stalled"]);
    assert_eq!(unread(&quiet), [] as [&str; 0]);
}
