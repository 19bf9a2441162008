//! Tests of durability, group commit, and of writes that fail beside others.

use agentloop_core::id::{Attempt, EntryNo};
use agentloop_core::run::status::RunStatus;
use futures_util::future::join_all;
use sqlx::Row as _;

use super::*;
use crate::store::conformance::fixture::*;

fn dynamic(store: &Arc<SqliteStore>) -> Arc<dyn Store> {
    store.clone()
}

#[tokio::test]
async fn concurrent_appends_share_commits() {
    let (store, _directory) = fresh().await;
    let shared = dynamic(&store);
    let mut owners = Vec::new();
    for index in 0..64 {
        owners.push(Owner::started(&shared, &format!("s{index}"), &format!("r{index}")).await);
    }
    let before = store.stats();
    let work = owners.iter_mut().map(|owner| async {
        for _ in 0..10 {
            owner.says("hello").await.unwrap();
        }
    });
    join_all(work).await;
    let after = store.stats();
    assert_eq!(after.appends - before.appends, 640);
    let commits = after.commits - before.commits;
    assert!((10..=64).contains(&commits), "{commits} commits for 640 appends");
    assert!(after.bytes - before.bytes > 640 * 50);
    for owner in &owners {
        assert_eq!(owner.stored().await.len(), 11);
    }
}

#[tokio::test]
async fn a_lone_append_does_not_wait_for_company() {
    let (store, _directory) = fresh().await;
    let mut owner = Owner::started(&dynamic(&store), "s", "r").await;
    for _ in 0..10 {
        owner.says("hello").await.unwrap();
    }
    assert_eq!(store.stats().commits, store.stats().appends);
}

#[tokio::test]
async fn closing_and_opening_keeps_everything() {
    let (store, directory) = fresh().await;
    let mut owner = Owner::started(&dynamic(&store), "s", "r").await;
    owner.says("hello").await.unwrap();
    let (records, epoch) = (owner.stored().await, store.epoch());
    store.close().await;
    store.close().await;
    assert!(matches!(owner.says("too late").await, Err(StoreError::Unavailable { .. })));
    let answer = store.run(&owner.tenant, &owner.run).await;
    assert!(matches!(answer, Err(StoreError::Unavailable { .. })), "{answer:?}");
    assert!(!directory.path().join("a.db-wal").exists(), "the write-ahead log was moved into the file");

    let store = reopened(&directory).await;
    assert!(store.epoch() > epoch);
    let claimed = store.claim(&owner.tenant, &owner.run).await.unwrap().unwrap();
    assert_eq!(claimed.records, records);
    assert!(claimed.epoch >= store.epoch());
}

#[tokio::test]
async fn what_waits_when_it_is_closed_is_written() {
    let (store, directory) = fresh().await;
    let shared = dynamic(&store);
    let mut owner = Owner::started(&shared, "s", "r").await;
    let (said, ()) = tokio::join!(owner.says("hello"), store.close());
    said.unwrap();
    let store = dynamic(&reopened(&directory).await);
    assert_eq!(store.run(&owner.tenant, &owner.run).await.unwrap().unwrap().last_seq, owner.seq);
}

#[tokio::test]
async fn what_was_acknowledged_survives_an_end_without_a_close() {
    let (store, directory) = fresh().await;
    let shared = dynamic(&store);
    let mut owners = Vec::new();
    for index in 0..8 {
        owners.push(Owner::started(&shared, &format!("s{index}"), &format!("r{index}")).await);
    }
    for round in 1..=5 {
        join_all(owners.iter_mut().map(|owner| owner.says("hello")))
            .await
            .into_iter()
            .for_each(Result::unwrap);
        let copy = tempfile::tempdir().unwrap();
        for name in ["a.db", "a.db-wal"] {
            std::fs::copy(directory.path().join(name), copy.path().join(name)).unwrap();
        }
        let store = reopened(&copy).await;
        for owner in &owners {
            let claimed = store.claim(&owner.tenant, &owner.run).await.unwrap().unwrap();
            assert_eq!(claimed.records, owner.stored().await, "after round {round}");
        }
        assert_eq!(store.unfinished().await.unwrap().len(), owners.len());
    }
}

#[tokio::test]
async fn a_full_file_refuses_writes_until_there_is_room() {
    let directory = tempfile::tempdir().unwrap();
    let options = SqliteOptions { max_bytes: Some(1024 * 1024), ..SqliteOptions::default() };
    let store = Arc::new(SqliteStore::open(directory.path().join("a.db"), &options).await.unwrap());
    let shared = dynamic(&store);
    let mut old = Owner::started(&shared, "old", "old").await;
    old.says(&"x".repeat(400 * 1024)).await.unwrap();
    old.ends().await.unwrap();

    let mut owner = Owner::started(&shared, "s", "r").await;
    let large = "y".repeat(400 * 1024);
    while owner.says(&large).await.is_ok() {
        assert!(owner.seq.0 < 9, "the file is bounded");
    }
    for _ in 0..3 {
        let answer = owner.says(&large).await;
        assert!(
            matches!(&answer, Err(StoreError::Unavailable { what }) if what.contains("full")),
            "{answer:?}"
        );
        assert_eq!(owner.stored().await.last().unwrap().seq, owner.seq, "reading goes on");
    }
    assert!(store.delete_session(&old.tenant, &old.session).await.unwrap());
    owner.says(&large).await.unwrap();
    owner.says("and on").await.unwrap();
    store.check().await.unwrap();
}

#[tokio::test]
async fn one_broken_run_does_not_fail_those_beside_it() {
    let (store, directory) = fresh().await;
    let shared = dynamic(&store);
    let mut owners = Vec::new();
    for name in ["a", "b", "c"] {
        owners.push(Owner::started(&shared, name, name).await);
    }
    let stray = "INSERT INTO run_events (run_no, seq, at, status, version, payload)
                 SELECT run_no, 2, 1, 8, 1, '{}' FROM runs WHERE run_id = 'b'";
    sqlx::query(stray).execute(&mut shell(&directory).await).await.unwrap();

    let answers = join_all(owners.iter_mut().map(|owner| owner.says("hello"))).await;
    assert!(answers[0].is_ok() && answers[2].is_ok(), "{answers:?}");
    assert!(
        matches!(&answers[1], Err(StoreError::Corrupt { what }) if what.contains("local/b after 1")),
        "{answers:?}"
    );
    owners[0].says("and on").await.unwrap();
}

#[tokio::test]
async fn what_cannot_be_read_is_named() {
    let (store, directory) = fresh().await;
    let mut owner = Owner::started(&dynamic(&store), "s", "r").await;
    owner.says("hello").await.unwrap();
    let mut shell = shell(&directory).await;
    // Rows that fit their checksum, or have none, may still make no sense.
    sqlx::query("UPDATE run_events SET checksum = NULL").execute(&mut shell).await.unwrap();
    for (broken, why) in [
        ("version = 9", "version 9"),
        ("version = 1, status = 99", "status 99"),
        ("status = 1, payload = '{\"kind\":\"slept\"}'", "slept"),
        ("payload = '[]'", "missing field"),
    ] {
        let sql = format!("UPDATE run_events SET {broken} WHERE seq = 2");
        sqlx::query(sqlx::AssertSqlSafe(sql)).execute(&mut shell).await.unwrap();
        let records = store.records(&owner.tenant, &owner.run, Seq(0), 9).await.map(|_| ());
        let entries = store.entries(&owner.tenant, &owner.session, EntryNo(0), 9).await.map(|_| ());
        let claimed = store.claim(&owner.tenant, &owner.run).await.map(|_| ());
        for answer in [records, entries, claimed] {
            let (StoreError::Corrupt { what } | StoreError::DamagedEntry { why: what, .. }) =
                answer.unwrap_err()
            else {
                panic!("{broken}")
            };
            assert!(what.contains("local/r/2") && what.contains(why), "{what}");
        }
    }
    sqlx::query("DELETE FROM run_events WHERE seq = 1").execute(&mut shell).await.unwrap();
    sqlx::query("UPDATE run_events SET payload = '{\"kind\":\"input_added\",\"entry\":1,\"message\":{\"role\":\"user\",\"parts\":[]}}'")
        .execute(&mut shell)
        .await
        .unwrap();
    let claimed = store.claim(&owner.tenant, &owner.run).await.map(|_| ());
    assert!(
        matches!(&claimed, Err(StoreError::Corrupt { what }) if what.contains("not dense")),
        "{claimed:?}"
    );
}

#[tokio::test]
async fn a_message_is_stored_once() {
    let (store, directory) = fresh().await;
    let mut owner = Owner::started(&dynamic(&store), "s", "r").await;
    owner.says("once-and-only-once").await.unwrap();
    owner.hears("another").await.unwrap();
    owner.ends().await.unwrap();
    store.close().await;
    let file = std::fs::read(directory.path().join("a.db")).unwrap();
    let found = file.windows(18).filter(|window| window == b"once-and-only-once").count();
    assert_eq!(found, 1);
}

#[tokio::test]
async fn the_views_show_the_journal_and_tool_calls() {
    use agentloop_core::id::{CallSlot, HostId};
    use agentloop_core::message::{Message, Part, Role, ToolResult, ToolStatus};
    use agentloop_core::run::event::Event;
    use agentloop_core::time::Millis;
    use agentloop_core::tool::EffectClass;

    let (store, directory) = fresh().await;
    let mut owner = Owner::started(&dynamic(&store), "s", "r").await;
    let proposed = |index| Event::CallProposed {
        slot: CallSlot::from((1, index)),
        tool: format!("tool-{index}"),
        effect: EffectClass::Keyed,
        timeout: Millis(1),
        deadline_is_outcome: false,
        needs_approval: false,
        asks_human: false,
        arguments: None,
        needs_runtime: false,
        title: String::new(),
        terms: None,
    };
    let result = ToolResult {
        slot: CallSlot::from((1, 1)),
        provider_id: "c".to_owned(),
        name: "tool-1".to_owned(),
        status: ToolStatus::Succeeded,
        output: "22".to_owned(),
        images: vec![],
        attachments: Default::default(),
    };
    let settled = Event::CallSettled {
        slot: CallSlot::from((1, 1)),
        attempt: Attempt(2),
        host: Some(HostId::parse("h").unwrap()),
        entry: EntryNo(1),
        message: Message { role: Role::Tool, parts: vec![Part::ToolResult(result)] }.into(),
        duration: Millis(30),
        outcome: None,
    };
    owner.tell(RunStatus::ToolRunning, vec![proposed(0), proposed(1), settled]).await.unwrap();

    let sql = "SELECT call || ' ' || tool || ' ' || effect || ' ' || coalesce(
                   status || ' ' || host || ' ' || attempts || ' ' || duration_ms || ' ' || output, 'open') AS line
               FROM tool_calls WHERE tenant = 'local' AND run_id = 'r' ORDER BY call";
    let rows = sqlx::query(sql).fetch_all(&mut shell(&directory).await).await.unwrap();
    let lines: Vec<String> = rows.iter().map(|row| row.get("line")).collect();
    assert_eq!(lines, ["1.0 tool-0 keyed open", "1.1 tool-1 keyed succeeded h 2 30 22"]);

    let sql = "SELECT session_id || ' ' || run_id || ' ' || seq || ' ' || kind || ' ' || status AS line FROM journal
               WHERE tenant = 'local' ORDER BY seq";
    let rows = sqlx::query(sql).fetch_all(&mut shell(&directory).await).await.unwrap();
    let lines: Vec<String> = rows.iter().map(|row| row.get("line")).collect();
    assert_eq!(lines[1..3], ["s r 2 call_proposed tool_running", "s r 3 call_proposed tool_running"]);
}

#[tokio::test]
async fn an_append_larger_than_any_text_is_written_whole() {
    let (store, _directory) = fresh().await;
    let mut owner = Owner::started(&dynamic(&store), "s", "r").await;
    let first = owner.entry.next().0;
    let events = (first..first + 600).map(|entry| input(EntryNo(entry), "hello")).collect();
    owner.tell(RunStatus::Preparing, events).await.unwrap();
    assert_eq!(owner.stored().await.len(), 601);
    let hits = store.search(&owner.tenant, "hello", SearchFilter::default(), 9).await.unwrap();
    assert_eq!(hits.len(), 9);
    assert_eq!(store.entries(&owner.tenant, &owner.session, EntryNo(0), 1_000).await.unwrap().len(), 600);
    let all = store.search(&owner.tenant, "hello", SearchFilter::default(), 100).await.unwrap();
    assert_eq!(all.len(), 100);
    owner.says("and on").await.unwrap();
}

#[tokio::test]
async fn ids_that_were_made_and_are_there_all_the_same_are_refused() {
    let (store, _directory) = fresh().await;
    let shared = dynamic(&store);
    let mut owner = Owner::started(&shared, "s", "r").await;
    // The writer's memory has nothing that is over.
    owner.ends().await.unwrap();
    let before = owner.stored().await;
    let twice = || {
        let mut append = Owner::new(&shared, "s", "r").creation();
        append.create.as_mut().unwrap().made_ids = true;
        append
    };
    let other = Owner::new(&shared, "s2", "r2");
    let (beside, first, second) =
        tokio::join!(store.append(other.creation()), store.append(twice()), store.append(twice()));
    assert!(matches!(first, Err(StoreError::RunExists)), "{first:?}");
    assert!(matches!(second, Err(StoreError::RunExists)), "{second:?}");
    beside.unwrap();
    assert_eq!(owner.stored().await, before);
    assert_eq!(other.stored().await.len(), 1);
}
