use std::sync::Arc;

use agentloop_core::id::{EntryNo, Epoch, Seq};
use agentloop_core::run::event::Event;
use agentloop_core::run::status::RunStatus;
use agentloop_core::time::Timestamp;
use futures_util::future::join_all;

use super::fixture::*;
use crate::store::{SessionFilter, Store, StoreError, StretchMax};

pub async fn appended_events_are_read_back(store: Arc<dyn Store>) {
    let mut owner = Owner::new(&store, "s", "r");
    let creation = owner.creation();
    let next = {
        let after_creation = Owner { seq: Seq(1), ..owner.clone() };
        after_creation.append(RunStatus::ModelRunning, vec![input(EntryNo(1), "hello"), plain(1)])
    };
    owner.write(creation.clone()).await.unwrap();
    owner.write(next.clone()).await.unwrap();
    assert_eq!(owner.stored().await, [creation.records, next.records].concat());
}

pub async fn events_come_in_stretches(store: Arc<dyn Store>) {
    let mut owner = Owner::started(&store, "s", "r").await;
    owner.tell(RunStatus::ModelRunning, (1..=9).map(plain).collect()).await.unwrap();
    let stretch = async |after, limit| {
        let found = store.records(&owner.tenant, &owner.run, Seq(after), limit).await.unwrap();
        found.iter().map(|record| record.seq.0).collect::<Vec<_>>()
    };
    assert_eq!(stretch(0, 3).await, [1, 2, 3]);
    assert_eq!(stretch(8, 3).await, [9, 10]);
    assert_eq!(stretch(10, 3).await, [] as [u64; 0]);
    assert_eq!(store.records(&owner.tenant, &run("other"), Seq(0), 3).await.unwrap(), []);
}

pub async fn stretches_end_by_bytes(store: Arc<dyn Store>) {
    let mut owner = Owner::started(&store, "s", "r").await;
    let text = "\"".repeat(10_000);
    let long = |entry| input(EntryNo(entry), &text);
    owner
        .tell(RunStatus::ModelRunning, vec![plain(1), long(1), plain(2), long(2), long(3), plain(3)])
        .await
        .unwrap();
    let stretch = async |after, records, bytes| {
        let max = StretchMax { records, bytes };
        let found = store.stretch(&owner.tenant, &owner.run, Seq(after), max).await.unwrap();
        let seqs = found.records.iter().map(|record| record.seq.0).collect::<Vec<_>>();
        (seqs, found.more)
    };
    assert_eq!(stretch(0, 9, 1_000_000).await, (vec![1, 2, 3, 4, 5, 6, 7], false));
    assert_eq!(stretch(0, 7, 1_000_000).await, (vec![1, 2, 3, 4, 5, 6, 7], true));
    assert_eq!(stretch(0, 2, 1_000_000).await, (vec![1, 2], true));
    assert_eq!(stretch(1, 9, 9_000).await, (vec![2, 3], true), "up to the one that passes the bound");
    assert_eq!(stretch(2, 9, 1).await, (vec![3], true), "at least one");
    assert_eq!(stretch(5, 9, 9_000).await, (vec![6], true));
    assert_eq!(stretch(6, 9, 9_000).await, (vec![7], false));
    assert_eq!(stretch(7, 9, 9_000).await, (vec![], false));
}

pub async fn odd_text_and_numbers_survive(store: Arc<dyn Store>) {
    let mut owner = Owner::started(&store, "s", "r").await.at(u64::MAX);
    let text = "\u{0}\u{7f} 'quoted' \"twice\" \\ \u{1f324} ?1 $1 :a\r\n\u{202e}";
    owner.wake_at = Some(Timestamp(u64::MAX));
    owner.tell(RunStatus::Paused, vec![input(EntryNo(1), text)]).await.unwrap();
    let entries = store.entries(&owner.tenant, &owner.session, EntryNo(0), 9).await.unwrap();
    assert_eq!(plain_text(&entries[0]), text);
    assert!(entries[0].at > Timestamp(1 << 62), "a time without end stays far away");
    assert!(
        store.run(&owner.tenant, &owner.run).await.unwrap().unwrap().summary.wake_at
            > Some(Timestamp(1 << 62))
    );
}

pub async fn many_events_are_one_append(store: Arc<dyn Store>) {
    let mut owner = Owner::started(&store, "s", "r").await;
    let events: Vec<Event> = (1..=500).map(|entry| input(EntryNo(entry), &"x".repeat(100))).collect();
    owner.tell(RunStatus::Preparing, events).await.unwrap();
    assert_eq!(owner.stored().await.len(), 501);
    let row = store.session(&owner.tenant, &owner.session).await.unwrap().unwrap();
    assert_eq!(row.last_entry, EntryNo(500));
    assert_eq!(store.entries(&owner.tenant, &owner.session, EntryNo(0), 1_000).await.unwrap().len(), 500);
}

pub async fn another_epoch_writes_nothing(store: Arc<dyn Store>) {
    let owner = Owner::started(&store, "s", "r").await;
    for epoch in [Epoch(owner.epoch.0 - 1), Epoch(owner.epoch.0 + 1)] {
        refused(Owner { epoch, ..owner.clone() }).await;
    }
}

pub async fn another_sequence_writes_nothing(store: Arc<dyn Store>) {
    let mut owner = Owner::started(&store, "s", "r").await;
    owner.tell(RunStatus::ModelRunning, vec![plain(1)]).await.unwrap();
    for seq in [Seq(0), Seq(1), Seq(3)] {
        refused(Owner { seq, ..owner.clone() }).await;
    }
    refused(Owner { run: run("other"), ..owner.clone() }).await;
    refused(Owner { run: run("other"), seq: Seq(0), ..owner }).await;
}

pub async fn another_session_writes_nothing(store: Arc<dyn Store>) {
    let owner = Owner::started(&store, "s", "r").await;
    let other = Owner::started(&store, "t", "q").await;
    refused(Owner { session: other.session, ..owner.clone() }).await;
    refused(Owner { session: session("none"), ..owner }).await;
}

#[track_caller]
fn refused(mut owner: Owner) -> impl Future<Output = ()> {
    let caller = std::panic::Location::caller();
    async move {
        let before = (owner.stored().await, sessions(&owner).await);
        let answer = owner.says("out of turn").await;
        assert!(matches!(answer, Err(StoreError::Conflict)), "{answer:?} at {caller}");
        assert_eq!((owner.stored().await, sessions(&owner).await), before, "{caller}");
    }
}

async fn sessions(owner: &Owner) -> Vec<crate::store::SessionRow> {
    let page = crate::store::PageRequest { size: 100, after: None };
    owner.store.sessions(&owner.tenant, SessionFilter::default(), page).await.unwrap().rows
}

pub async fn a_refused_append_leaves_those_beside_it(store: Arc<dyn Store>) {
    let mut owners = Vec::new();
    for name in ["a", "b", "c", "d"] {
        owners.push(Owner::started(&store, name, name).await);
    }
    owners[1].seq = Seq(7);
    owners[2].epoch = Epoch(0);
    let answers = join_all(owners.iter_mut().map(|owner| owner.says("hello"))).await;
    let fine: Vec<bool> = answers.iter().map(Result::is_ok).collect();
    assert_eq!(fine, [true, false, false, true], "{answers:?}");
    for (owner, fine) in owners.iter().zip(fine) {
        assert_eq!(owner.stored().await.len(), if fine { 2 } else { 1 });
    }
}

pub async fn appends_of_one_run_may_share_a_commit(store: Arc<dyn Store>) {
    let first = Owner::new(&store, "s", "r");
    let second = Owner { seq: Seq(1), ..first.clone() };
    let third = Owner { seq: Seq(2), entry: EntryNo(1), ..first.clone() };
    let answers = join_all([
        store.append(first.creation()),
        store.append(second.append(RunStatus::Preparing, vec![input(EntryNo(1), "hello")])),
        store.append(third.append(RunStatus::Completed, vec![assistant(EntryNo(2), "hi"), finished()])),
        store.append(third.append(RunStatus::ModelRunning, vec![plain(1)])),
    ])
    .await;
    let fine: Vec<bool> = answers.iter().map(Result::is_ok).collect();
    assert_eq!(fine, [true, true, true, false], "{answers:?}");
    assert_eq!(first.stored().await.len(), 4);
    let row = store.run(&first.tenant, &first.run).await.unwrap().unwrap();
    assert_eq!((row.last_seq, row.summary.status), (Seq(4), RunStatus::Completed));
    let row = store.session(&first.tenant, &first.session).await.unwrap().unwrap();
    assert_eq!((row.last_entry, row.live_run), (EntryNo(2), None));
}
