//! Rows that belong to no shard: ids that are unique, the audit log, specs, rules and the session of a user.

use std::collections::BTreeMap;

use agentloop_core::id::TenantId;
use agentloop_core::message::{Message, Role};
use agentloop_core::run::event::{Event, Steer};
use agentloop_core::run::human::RememberScope;
use agentloop_core::run::status::RunStatus;
use agentloop_core::time::Timestamp;
use agentloop_core::tool::Digest;
use futures_util::future::join_all;

use super::*;
use crate::audit::{AuditEntry, ChainOutcome};
use crate::store::{
    AuditStore as _, BlobStore as _, PROJECT_LABEL, QueueStore as _, RequestStore as _, SessionStore as _,
    StartIds, USER_LABEL,
};

fn act(no: usize) -> AuditEntry {
    AuditEntry { what: format!("act {no}"), allowed: true, ..AuditEntry::default() }
}

#[tokio::test]
async fn the_audit_log_is_one_chain() {
    let Some(Two { a, b, .. }) = two_stores().await else { return };
    let writes = (0..60).map(|no| [&a, &b][no % 2].write_audit(vec![act(no), act(no)]));
    for written in join_all(writes).await {
        written.unwrap();
    }
    let rows = a.audit_after(0).await.unwrap();
    let nos: Vec<u64> = rows.iter().map(|row| row.no).collect();
    assert_eq!(nos, (1..=120).collect::<Vec<_>>());
    assert!(matches!(b.verify_audit("").await.unwrap(), ChainOutcome::Whole(_)));
}

/// An owner of an earlier version takes no lock.
#[tokio::test]
async fn a_row_of_the_audit_log_that_another_writes_without_the_lock_is_followed() {
    let Some(Two { a, schema, .. }) = two_stores().await else { return };
    a.write_audit(vec![act(1)]).await.unwrap();
    let mut shell = schema.shell().await;
    let sql = "BEGIN;
               INSERT INTO audit SELECT no + 1, at, who, tenant, peer, what, session_id, run_id, request_id, tool, allowed,
                                        why, hash, 'other' FROM audit";
    shell.execute(sql).await.unwrap();
    let (written, ()) = tokio::join!(a.write_audit(vec![act(2)]), release(&schema, shell, 1));
    written.unwrap();
    let rows = a.audit_after(0).await.unwrap();
    assert_eq!(rows.iter().map(|row| row.no).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(rows[2].prev_hash, "other");
}

#[tokio::test]
async fn a_user_gets_one_session_from_two_replicas() {
    let Some(Two { a, b, schema }) = two_stores().await else { return };
    let labels = [(USER_LABEL, "ada"), (PROJECT_LABEL, "x")];
    let labels: BTreeMap<_, _> =
        labels.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    let get = async |store: &PostgresStore, id: &str| {
        store.get_or_create_session(new_session(id, &labels, Timestamp(1))).await.unwrap()
    };
    let shell = lock(&schema, "sessions").await;
    let both = async { tokio::join!(get(&a, "s1"), get(&b, "s2"), release(&schema, shell, 2)) };
    let (first, second, ()) = tokio::time::timeout(BOUND, both).await.expect("in time");
    assert_eq!(first.session, second.session);
    assert_eq!(count(&schema, "sessions").await, 1);
}

#[tokio::test]
async fn a_run_id_is_taken_once_and_the_neighbours_of_the_other_are_written() {
    let Some(Two { a, b, schema }) = two_stores().await else { return };
    let mut neighbour = Owner::started(&shared(&b), "n", "n").await;
    let (mut first, mut second) = (Owner::new(&shared(&a), "s1", "r"), Owner::new(&shared(&b), "s2", "r"));
    let mut other = Owner::new(&shared(&b), "s3", "r3");
    let shell = lock(&schema, "runs").await;
    let all = async {
        tokio::join!(
            first.create(),
            second.create(),
            neighbour.says("hello"),
            other.create(),
            release(&schema, shell, 2)
        )
    };
    let (first, second, said, made, ()) = tokio::time::timeout(BOUND, all).await.expect("in time");
    let is_taken = |result: &Result<(), StoreError>| matches!(result, Err(StoreError::RunExists));
    assert!(first.is_ok() && is_taken(&second) || is_taken(&first) && second.is_ok(), "{first:?} {second:?}");
    said.unwrap();
    made.unwrap();
    assert_eq!(count(&schema, "runs").await, 3);
}

#[tokio::test]
async fn a_request_that_steers_two_sessions_at_once_is_known_of_one() {
    let Some(Two { a, b, schema }) = two_stores().await else { return };
    let steer = |digest: &str| Event::MessageHeld {
        message: Arc::new(Message::text(Role::User, "hurry")),
        steer: Some(Steer { id: run("q"), digest: Digest::of(&[digest.as_bytes()]) }),
    };
    let mut first = Owner::started(&shared(&a), "s1", "r1").await;
    let mut second = Owner::started(&shared(&b), "s2", "r2").await;
    let shell = lock(&schema, "steers").await;
    let both = async {
        tokio::join!(
            first.tell(RunStatus::Preparing, vec![steer("1")]),
            second.tell(RunStatus::Preparing, vec![steer("2")]),
            release(&schema, shell, 2)
        )
    };
    let (one, two, ()) = tokio::time::timeout(BOUND, both).await.expect("in time");
    one.unwrap();
    two.unwrap();
    // A repetition of the other has another digest, so it is refused and not taken twice.
    let (at_a, at_b) = (a.steered(&tenant(), &run("q")).await, b.steered(&tenant(), &run("q")).await);
    let found = at_a.unwrap().unwrap();
    assert_eq!(Some(&found), at_b.unwrap().as_ref());
    let digest = if found.0 == run("r1") { "1" } else { "2" };
    assert_eq!(found.1, Digest::of(&[digest.as_bytes()]));
}

#[tokio::test]
async fn what_another_replica_uses_first_is_found() {
    let Some(Two { a, b, .. }) = two_stores().await else { return };
    let mut owner = Owner::started(&shared(&a), "s", "r").await;
    owner.remembers_deny(0, RememberScope::Tenant).await;
    assert_eq!(b.rules(&tenant(), None).await.unwrap().len(), 1);
    owner.ends().await.unwrap();
    Owner::queued(&shared(&a), "s", "next").await;
    assert_eq!(b.next_queued(&tenant(), &session("s")).await.unwrap(), Some(run("next")));
}

/// Nothing is read of queues that are known to be empty, until shards come from others.
#[tokio::test]
async fn a_queue_that_an_earlier_owner_has_filled_is_found_by_the_next() {
    let Some(Two { a, b, .. }) = two_stores().await else { return };
    let next = async |name: &str| b.next_queued(&tenant(), &session(name)).await.unwrap();
    assert_eq!(next("s").await, None);
    assert!(!b.used.queues(b.scope.additions()), "no run is queued");
    Owner::queued(&shared(&a), "s", "first").await;
    b.scope.add(shard_of(&tenant(), &session("s")), Term(0));
    assert_eq!(next("s").await, Some(run("first")));

    // Queues of other sessions do not hide it, and it is read as long as somebody has a queue.
    Owner::queued(&shared(&a), "t", "second").await;
    assert_eq!((next("t").await, next("u").await), (Some(run("second")), None));
    assert!(b.used.queues(b.scope.additions()));
}

#[tokio::test]
async fn a_replica_finds_its_own_queues() {
    let Some(Two { b, .. }) = two_stores().await else { return };
    assert_eq!(b.next_queued(&tenant(), &session("s")).await.unwrap(), None);
    Owner::queued(&shared(&b), "s", "own").await;
    assert_eq!(b.next_queued(&tenant(), &session("s")).await.unwrap(), Some(run("own")));
}

#[tokio::test]
async fn a_start_at_one_replica_sees_a_rule_of_another() {
    let Some(Two { a, b, .. }) = two_stores().await else { return };
    let here = session("s");
    let ids = StartIds { run: None, session: Some(&here) };
    assert_eq!(b.start_view(&tenant(), ids).await.unwrap().rules, Some(Vec::new()));
    let mut owner = Owner::started(&shared(&a), "t", "r").await;
    owner.remembers_deny(0, RememberScope::Tenant).await;
    assert!(b.blind_start(&tenant()).is_some(), "the store does not know it yet");
    assert_eq!(b.start_view(&tenant(), ids).await.unwrap().rules, None, "they are to be read");
    assert_eq!(b.blind_start(&tenant()), None);
}

/// After that, starts of its tenant look first, until there is no rule any more.
#[tokio::test]
async fn a_blind_start_at_one_replica_does_not_miss_a_rule_or_an_id_of_another() {
    let Some(Two { a, b, .. }) = two_stores().await else { return };
    let mut owner = Owner::started(&shared(&a), "t", "r").await;
    let starts = async |name: &str| {
        let mut new = Owner::new(&shared(&b), &format!("of-{name}"), name);
        let mut append = new.creation();
        append.create.as_mut().unwrap().is_blind = true;
        new.write(append).await
    };
    starts("new").await.unwrap();
    assert!(matches!(starts("r").await, Err(StoreError::RunExists)));
    owner.remembers_deny(0, RememberScope::Tenant).await;
    assert!(matches!(starts("after").await, Err(StoreError::SessionMoved)));

    assert!(b.blind_start(&tenant()).is_some(), "the store does not know yet why");
    let look = async || b.start_view(&tenant(), StartIds { run: None, session: None }).await.unwrap();
    assert_eq!(look().await.rules, None);
    assert_eq!(b.blind_start(&tenant()), None);
    assert!(b.blind_start(&TenantId::parse("other").unwrap()).is_some());
    for rule in b.rules(&tenant(), None).await.unwrap() {
        a.delete_rule(&tenant(), &rule.id).await.unwrap();
    }
    assert_eq!(look().await.rules, Some(Vec::new()));
    assert!(b.blind_start(&tenant()).is_some());
    starts("after").await.unwrap();
}

/// The numbers of the first replica are lower, since it has started earlier.
#[tokio::test]
async fn a_run_of_a_session_that_has_moved_is_a_later_one() {
    let Some(Two { a, b, .. }) = two_stores().await else { return };
    talks(&a, "other", "r0").await;
    talks(&b, "s", "r1").await;
    let before = a.session_runs(&tenant(), &session("s"), None).await.unwrap().last_no;
    a.scope.add(shard_of(&tenant(), &session("s")), Term(0));
    talks(&a, "s", "r2").await;
    let found = a.session_runs(&tenant(), &session("s"), Some(before)).await.unwrap();
    assert_eq!(found.runs.iter().map(|(_, row)| row.run.as_str()).collect::<Vec<_>>(), ["r2"]);
    assert!(found.last_no > before, "{} {before}", found.last_no);
}

/// Both own its shard, as after a fail-over that has lost a claim. The first one remembers the session as it was before.
#[tokio::test]
async fn a_session_that_another_owner_has_entered_is_not_entered_from_memory() {
    let Some(Two { a, b, .. }) = two_stores().await else { return };
    talks(&a, "s", "r1").await;
    let mut waits = Owner::queued(&shared(&a), "s", "r2").await;
    let mut live = Owner::started(&shared(&b), "s", "r3").await;
    waits.entry = live.entry;
    let refused = waits.enters().await;
    assert!(matches!(&refused, Err(StoreError::SessionBusy { run: by }) if *by == run("r3")), "{refused:?}");
    live.says("goes on").await.unwrap();
}

/// The journal of a run begins with its spec.
async fn is_whole(store: &PostgresStore, name: &str) -> bool {
    store.records(&tenant(), &run(name), agentloop_core::id::Seq(0), 9).await.is_ok()
}

#[tokio::test]
async fn a_spec_stays_while_somebody_may_use_it_and_goes_later() {
    let Some(Two { a, b, schema }) = two_stores().await else { return };
    let deletes = async |store: &PostgresStore, name: &str| {
        assert!(store.delete_session(&tenant(), &session(name)).await.unwrap());
    };
    let ages = async || {
        let sql = "UPDATE unused_specs SET since = now() - interval '3 hours'";
        schema.shell().await.execute(sql).await.unwrap();
        for store in [&a, &b] {
            store.sweep_blobs(Timestamp(0)).await.unwrap();
        }
    };
    talks(&a, "s1", "r1").await;
    deletes(&a, "s1").await;
    a.sweep_blobs(Timestamp(0)).await.unwrap();
    assert_eq!((count(&schema, "specs").await, count(&schema, "unused_specs").await), (1, 1));
    // Another run takes it up.
    talks(&b, "s2", "r2").await;
    assert_eq!(count(&schema, "unused_specs").await, 0);
    talks(&a, "s3", "r3").await;
    deletes(&a, "s3").await;
    ages().await;
    assert!(is_whole(&a, "r2").await, "it has a run");
    deletes(&b, "s2").await;
    ages().await;
    assert_eq!((count(&schema, "specs").await, count(&schema, "unused_specs").await), (0, 0));
    talks(&a, "s4", "r4").await;
    talks(&b, "s5", "r5").await;
    assert!(is_whole(&b, "r4").await && is_whole(&a, "r5").await, "it is stored again");
}

#[tokio::test]
async fn a_spec_that_is_deleted_while_a_run_begins_is_stored_again() {
    let Some(Two { a, b, schema }) = two_stores().await else { return };
    talks(&a, "s1", "r1").await;
    assert!(a.delete_session(&tenant(), &session("s1")).await.unwrap());
    // A sweep of another replica that stands in its middle.
    let mut shell = schema.shell().await;
    shell.execute("BEGIN; DELETE FROM unused_specs; DELETE FROM specs").await.unwrap();
    let begins = async { Owner::started(&shared(&b), "s2", "r2").await };
    let both = async { tokio::join!(begins, release(&schema, shell, 1)) };
    tokio::time::timeout(BOUND, both).await.expect("in time");
    assert!(is_whole(&a, "r2").await);
}
