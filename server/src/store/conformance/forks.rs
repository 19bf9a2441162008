use std::collections::BTreeMap;
use std::sync::Arc;

use agentloop_core::id::{EntryNo, RunId, Seq};
use agentloop_core::message::{Message, Role};
use agentloop_core::run::event::Event;
use agentloop_core::run::status::RunStatus;
use agentloop_core::time::Timestamp;

use super::fixture::*;
use crate::store::{NewFork, NewSession, PageRequest, RunFilter, SessionRow, Store, StoreError};

/// Time of every fork.
const FORKED: Timestamp = Timestamp(7_000);

async fn fork(store: &Arc<dyn Store>, source: &str, at: u64, new: &str) -> Result<SessionRow, StoreError> {
    store.fork(new_fork(source, at, new, FORKED)).await
}

/// A finished run with a message of the user and one of the model.
async fn talks(store: &Arc<dyn Store>, session_name: &str, run_name: &str) -> Owner {
    let mut owner = Owner::started(store, session_name, run_name).await;
    owner.says(&format!("{run_name} asks")).await.unwrap();
    owner.hears(&format!("{run_name} hears")).await.unwrap();
    owner.ends().await.unwrap();
    owner
}

async fn told(store: &Arc<dyn Store>, session_name: &str) -> Vec<String> {
    let found = store.entries(&tenant(), &session(session_name), EntryNo(0), 99).await.unwrap();
    let dense = found.iter().zip(1..).all(|(row, entry)| row.entry == EntryNo(entry));
    assert!(dense, "{found:?}");
    found.iter().map(plain_text).collect()
}

async fn deleted(store: &Arc<dyn Store>, session_name: &str) {
    assert!(store.delete_session(&tenant(), &session(session_name)).await.unwrap());
    assert_eq!(store.session(&tenant(), &session(session_name)).await.unwrap(), None);
    assert_eq!(told(store, session_name).await, [] as [&str; 0]);
}

pub async fn a_fork_begins_like_its_source(store: Arc<dyn Store>) {
    let labels = BTreeMap::from([("team".to_owned(), "blue".to_owned())]);
    let new = NewSession { title: "A title".to_owned(), ..new_session("s", &labels, Timestamp(500)) };
    store.create_session(new).await.unwrap();
    talks(&store, "s", "a").await;
    talks(&store, "s", "b").await;
    let row = fork(&store, "s", 3, "f").await.unwrap();
    let expected = SessionRow {
        session: session("f"),
        title: "A title".to_owned(),
        labels,
        created_at: FORKED,
        updated_at: FORKED,
        last_entry: EntryNo(3),
        live_run: None,
        forked_from: Some((session("s"), EntryNo(3))),
        summary: String::new(),
        summary_upto: EntryNo(0),
        created_by: None,
        preview: "Preview of a".to_owned(),
        last_run: None,
    };
    assert_eq!(row, expected);
    assert_eq!(store.session(&tenant(), &session("f")).await.unwrap(), Some(expected));
    let theirs = store.entries(&tenant(), &session("s"), EntryNo(0), 3).await.unwrap();
    assert_eq!(store.entries(&tenant(), &session("f"), EntryNo(0), 9).await.unwrap(), theirs);
    assert_eq!(theirs[2].run, run("b"), "an entry names the run that added it");
    let of_fork = RunFilter { session: Some(session("f")), ..RunFilter::default() };
    let page = PageRequest { size: 9, after: None };
    assert_eq!(store.runs(&tenant(), of_fork, page).await.unwrap().rows, [], "runs stay where they were");
}

pub async fn without_an_entry_a_fork_shares_all(store: Arc<dyn Store>) {
    talks(&store, "s", "a").await;
    let row = fork(&store, "s", 0, "f").await.unwrap();
    assert_eq!((row.last_entry, row.forked_from), (EntryNo(2), Some((session("s"), EntryNo(2)))));
    assert_eq!(told(&store, "f").await, ["a asks", "a hears"]);
    let nothing = Owner::started(&store, "empty", "e").await;
    let row = fork(&store, "empty", 0, "of-empty").await.unwrap();
    assert_eq!((row.last_entry, row.forked_from), (EntryNo(0), Some((nothing.session, EntryNo(0)))));
}

pub async fn branches_go_on_by_themselves(store: Arc<dyn Store>) {
    let mut live = Owner::started(&store, "s", "a").await;
    live.says("a asks").await.unwrap();
    fork(&store, "s", 1, "f").await.unwrap();
    live.hears("a hears").await.unwrap();
    talks(&store, "f", "b").await;
    live.ends().await.unwrap();
    talks(&store, "s", "c").await;
    assert_eq!(told(&store, "s").await, ["a asks", "a hears", "c asks", "c hears"]);
    assert_eq!(told(&store, "f").await, ["a asks", "b asks", "b hears"]);
    let row = store.session(&tenant(), &session("f")).await.unwrap().unwrap();
    assert_eq!((row.last_entry, row.forked_from), (EntryNo(3), Some((session("s"), EntryNo(1)))));
}

pub async fn what_cannot_be_forked_is_refused(store: Arc<dyn Store>) {
    talks(&store, "s", "a").await;
    let answer = fork(&store, "none", 0, "f").await;
    assert!(matches!(answer, Err(StoreError::NoSession)), "{answer:?}");
    for beyond in [3, u64::MAX] {
        let answer = fork(&store, "s", beyond, "f").await;
        assert!(matches!(answer, Err(StoreError::EntryAhead { last: EntryNo(2) })), "{answer:?}");
    }
    assert_eq!(store.session(&tenant(), &session("f")).await.unwrap(), None);
    talks(&store, "taken", "b").await;
    for taken in ["taken", "s"] {
        let answer = fork(&store, "s", 1, taken).await;
        assert!(matches!(answer, Err(StoreError::SessionExists)), "{answer:?}");
    }
    assert_eq!(told(&store, "taken").await, ["b asks", "b hears"]);
}

pub async fn forking_twice_is_forking_once(store: Arc<dyn Store>) {
    talks(&store, "s", "a").await;
    let one = fork(&store, "s", 1, "one").await.unwrap();
    let all = fork(&store, "s", 0, "all").await.unwrap();
    talks(&store, "s", "b").await;
    assert_eq!(fork(&store, "s", 1, "one").await.unwrap(), one);
    assert_eq!(fork(&store, "s", 0, "all").await.unwrap(), all);
    assert_eq!(fork(&store, "s", 2, "all").await.unwrap(), all);
    talks(&store, "other", "c").await;
    for (source, at, new) in [("s", 2, "one"), ("s", 0, "one"), ("s", 4, "all"), ("other", 1, "one")] {
        let answer = fork(&store, source, at, new).await;
        assert!(matches!(answer, Err(StoreError::SessionExists)), "{answer:?}");
    }
    let created = store.create_session(new_session("one", &BTreeMap::new(), FORKED)).await;
    assert!(matches!(created, Err(StoreError::SessionExists)), "{created:?}");
    deleted(&store, "s").await;
    assert_eq!(fork(&store, "s", 1, "one").await.unwrap(), one);
    assert_eq!(told(&store, "one").await, ["a asks"]);
}

pub async fn a_fork_outlives_its_source(store: Arc<dyn Store>) {
    talks(&store, "s", "a").await;
    fork(&store, "s", 0, "f").await.unwrap();
    talks(&store, "f", "b").await;
    fork(&store, "f", 3, "g").await.unwrap();
    let before = store.entries(&tenant(), &session("f"), EntryNo(0), 9).await.unwrap();
    deleted(&store, "s").await;
    assert_eq!(store.run(&tenant(), &run("a")).await.unwrap(), None);
    assert_eq!(store.entries(&tenant(), &session("f"), EntryNo(0), 9).await.unwrap(), before);
    deleted(&store, "f").await;
    assert_eq!(told(&store, "g").await, ["a asks", "a hears", "b asks"]);
    fork(&store, "g", 2, "h").await.unwrap();
    deleted(&store, "g").await;
    talks(&store, "h", "c").await;
    assert_eq!(told(&store, "h").await, ["a asks", "a hears", "c asks", "c hears"]);
}

pub async fn a_source_outlives_its_forks(store: Arc<dyn Store>) {
    let owner = talks(&store, "s", "a").await;
    for name in ["f", "g"] {
        fork(&store, "s", 2, name).await.unwrap();
    }
    deleted(&store, "f").await;
    deleted(&store, "g").await;
    assert_eq!(told(&store, "s").await, ["a asks", "a hears"]);
    assert_eq!(owner.stored().await.len(), 4);
}

pub async fn ids_of_a_deleted_source_are_free(store: Arc<dyn Store>) {
    talks(&store, "s", "a").await;
    fork(&store, "s", 0, "first").await.unwrap();
    deleted(&store, "s").await;
    let mut again = Owner::started(&store, "s", "a").await;
    again.says("anew").await.unwrap();
    again.ends().await.unwrap();
    fork(&store, "s", 0, "second").await.unwrap();
    deleted(&store, "s").await;
    assert_eq!(told(&store, "first").await, ["a asks", "a hears"]);
    assert_eq!(told(&store, "second").await, ["anew"]);
    deleted(&store, "first").await;
    assert_eq!(told(&store, "second").await, ["anew"]);
    assert_eq!(store.run(&tenant(), &RunId::parse("a").unwrap()).await.unwrap(), None);
}

pub async fn what_was_held_before_it_entered_is_shared_too(store: Arc<dyn Store>) {
    let mut owner = Owner::queued(&store, "s", "a").await;
    let message = Arc::new(Message::text(Role::User, "held"));
    owner.tell(RunStatus::Queued, vec![Event::MessageHeld { message, steer: None }]).await.unwrap();
    let mut append = owner.append(
        RunStatus::Preparing,
        vec![Event::MessageEntered { entry: EntryNo(1), held: Seq(2) }, assistant(EntryNo(2), "heard")],
    );
    append.enter = Some(EntryNo(0));
    owner.write(append).await.unwrap();
    owner.ends().await.unwrap();
    fork(&store, "s", 1, "f").await.unwrap();
    assert_eq!(told(&store, "s").await, ["held", "heard"]);
    let entries = store.entries(&tenant(), &session("f"), EntryNo(0), 9).await.unwrap();
    assert_eq!(entries.iter().map(|row| row.seq).collect::<Vec<_>>(), [Seq(2)], "where the message is");
    deleted(&store, "s").await;
    assert_eq!(told(&store, "f").await, ["held"]);
}

pub async fn forks_stay_with_their_tenant(store: Arc<dyn Store>) {
    talks(&store, "s", "a").await;
    let mut theirs = Owner::new(&store, "s", "a").of("other");
    theirs.create().await.unwrap();
    theirs.says("theirs").await.unwrap();
    theirs.ends().await.unwrap();
    fork(&store, "s", 0, "f").await.unwrap();
    let of_theirs =
        store.fork(NewFork { tenant: theirs.tenant.clone(), ..new_fork("s", 0, "f", FORKED) }).await.unwrap();
    assert_eq!(of_theirs.last_entry, EntryNo(1));
    deleted(&store, "s").await;
    assert_eq!(told(&store, "f").await, ["a asks", "a hears"]);
    let entries = store.entries(&theirs.tenant, &session("f"), EntryNo(0), 9).await.unwrap();
    assert_eq!(entries.iter().map(plain_text).collect::<Vec<_>>(), ["theirs"]);
    let stranger = NewFork { tenant: theirs.tenant.clone(), ..new_fork("none", 0, "g", FORKED) };
    let stranger = store.fork(stranger).await;
    assert!(matches!(stranger, Err(StoreError::NoSession)), "{stranger:?}");
}

/// The id of a session that is deleted may be used again, by somebody else.
pub async fn a_fork_shares_only_what_its_maker_may_read(store: Arc<dyn Store>) {
    let by = |name: &str| Some(name.to_owned());
    let create = async |name: &str| {
        let new = NewSession { created_by: by(name), ..new_session("s", &BTreeMap::new(), FORKED) };
        store.create_session(new).await.unwrap();
    };
    let fork = async |name: &str| {
        let new = NewFork { created_by: by(name), source_of: by(name), ..new_fork("s", 0, "f", FORKED) };
        store.fork(new).await
    };
    create("ada").await;
    let others = fork("ben").await;
    assert!(matches!(others, Err(StoreError::NoSession)), "{others:?}");
    let made = fork("ada").await.unwrap();
    deleted(&store, "s").await;
    create("ben").await;
    assert_eq!(fork("ada").await.unwrap(), made, "it is confirmed");
    deleted(&store, "f").await;
    let others = fork("ada").await;
    assert!(matches!(others, Err(StoreError::NoSession)), "{others:?}");
    assert!(store.session(&tenant(), &session("f")).await.unwrap().is_none());
    fork("ben").await.unwrap();
}
