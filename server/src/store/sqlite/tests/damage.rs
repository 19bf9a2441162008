//! Tests of rows that changed after they were written: they are noticed wherever they are read.

use agentloop_core::id::{EntryNo, RuleId, Seq};
use agentloop_core::run::human::RememberScope;
use agentloop_core::time::Millis;
use agentloop_core::tool::{EffectClass, ToolDeclaration};

use super::*;
use crate::store::conformance::fixture::*;
use crate::store::{ListedEntry, ToolRow};

/// A store with two finished sessions, of which a row of the first one's journal was changed while it was stopped.
async fn changed(sql: &str) -> (Arc<SqliteStore>, TempDir) {
    let (store, directory) = fresh().await;
    let shared: Arc<dyn Store> = store.clone();
    for name in ["a", "b"] {
        let mut owner = Owner::started(&shared, &format!("s-{name}"), &format!("r-{name}")).await;
        owner.says("transfer 1000 to Bergen").await.unwrap();
        owner.ends().await.unwrap();
    }
    store.fork(new_fork("s-a", 0, "f-a", Timestamp(9))).await.unwrap();
    store.close().await;
    let mut shell = shell(&directory).await;
    let changed = sqlx::query(sqlx::AssertSqlSafe(sql.to_owned())).execute(&mut shell).await.unwrap();
    assert!(changed.rows_affected() > 0);
    sqlx::Connection::close(shell).await.unwrap();
    (reopened(&directory).await, directory)
}

fn is_damage<T>(answer: Result<T, StoreError>) -> bool {
    answer.is_err_and(|error| error.is_damage())
}

const DIGIT: &str =
    "UPDATE run_events SET payload = replace(payload, '1000', '9000') WHERE run_no = 1 AND seq > 1";

#[tokio::test]
async fn a_changed_digit_is_noticed_in_that_run_alone() {
    let changes = [
        DIGIT,
        "UPDATE run_events SET at = at + 1 WHERE run_no = 1 AND seq = 2",
        "UPDATE run_events SET status = 4 WHERE run_no = 1 AND seq = 2",
        "UPDATE run_events SET payload = (SELECT replace(payload, '1000', '10') FROM run_events WHERE run_no = 2 AND seq = 2)
         WHERE run_no = 1 AND seq = 2",
        "UPDATE run_events SET checksum = (SELECT checksum FROM run_events WHERE run_no = 2 AND seq = 2)
         WHERE run_no = 1 AND seq = 2",
    ];
    for change in changes {
        let (store, _directory) = changed(change).await;
        let max = StretchMax { records: 9, bytes: usize::MAX };
        assert!(is_damage(store.records(&tenant(), &run("r-a"), Seq(0), 9).await), "{change}");
        assert!(is_damage(store.stretch(&tenant(), &run("r-a"), Seq(0), max).await), "{change}");
        assert!(is_damage(store.claim(&tenant(), &run("r-a")).await), "{change}");
        for id in ["s-a", "f-a"] {
            let read = store.entries(&tenant(), &session(id), EntryNo(0), 9).await.unwrap_err();
            let StoreError::DamagedEntry { session: named, entry, .. } = read else {
                panic!("{change}: {read}")
            };
            assert_eq!((named, entry), (session(id), EntryNo(1)), "{change}");
        }
        assert_eq!(store.records(&tenant(), &run("r-b"), Seq(0), 9).await.unwrap().len(), 3);
        assert_eq!(store.entries(&tenant(), &session("s-b"), EntryNo(0), 9).await.unwrap().len(), 1);
    }
}

#[tokio::test]
async fn a_changed_spec_is_noticed() {
    const SPEC: &str = "UPDATE specs SET spec = json_set(spec, '$.system_prompt', 'Obey.')";
    const WITHOUT_CHECKSUM: &str = "UPDATE run_events SET checksum = NULL; ";
    for sql in [SPEC.to_owned(), format!("{WITHOUT_CHECKSUM}{SPEC}")] {
        let (store, _directory) = changed(&sql).await;
        assert!(is_damage(store.records(&tenant(), &run("r-a"), Seq(0), 1).await), "{sql}");
    }
}

#[tokio::test]
async fn an_error_that_cannot_be_read_hides_no_usage() {
    const ERROR: &str = "UPDATE runs SET status = 10, error = '{'";
    // The journal says what a run used that spans several buckets.
    for also in ["", ", updated_at = updated_at + 3600000"] {
        let (store, _directory) = changed(&format!("{ERROR}{also} WHERE run_no = 1")).await;
        let query = UsageQuery {
            before: Timestamp(36_000_000),
            bucket: Millis(3_600_000),
            rows_max: 9,
            ..UsageQuery::default()
        };
        let rows = store.usage(&tenant(), &query).await.unwrap();
        assert_eq!(rows.iter().map(|row| row.runs).sum::<u64>(), 2, "{also}: {rows:?}");
        assert!(rows.iter().all(|row| row.errors.is_empty()), "{rows:?}");
    }
}

/// A session with three entries, of which the second one is damaged, and a fork up to the third.
async fn second_of_three() -> (Arc<SqliteStore>, TempDir) {
    let (store, directory) = fresh().await;
    let shared: Arc<dyn Store> = store.clone();
    for (name, words) in [("s", "transfer"), ("other", "untouched transfer")] {
        let mut owner = Owner::started(&shared, name, &format!("r-{name}")).await;
        for amount in ["1000", "2000", "3000"] {
            owner.says(&format!("{words} {amount}")).await.unwrap();
        }
        owner.ends().await.unwrap();
    }
    store.close().await;
    let sql = "UPDATE run_events SET payload = replace(payload, '2000', '9000') WHERE run_no = 1";
    let mut shell = shell(&directory).await;
    sqlx::query(sql).execute(&mut shell).await.unwrap();
    sqlx::Connection::close(shell).await.unwrap();
    (reopened(&directory).await, directory)
}

#[tokio::test]
async fn a_damaged_entry_is_named_and_the_rest_can_be_read_and_forked() {
    let (store, directory) = second_of_three().await;
    let numbers = |store: Arc<SqliteStore>, id: &'static str, limit| async move {
        store.damaged_entries(&tenant(), &session(id), limit).await.unwrap()
    };
    let max = StretchMax { records: 9, bytes: usize::MAX };
    assert_eq!(numbers(store.clone(), "s", 9).await, [], "nobody has read it");
    let listed = store.listed_entries(&tenant(), &session("s"), EntryNo(0), max).await.unwrap();
    let [ListedEntry::Whole(first), ListedEntry::Damaged { entry, run: by, seq }, ListedEntry::Whole(third)] =
        &listed.rows[..]
    else {
        panic!("{:?}", listed.rows)
    };
    assert_eq!((first.entry, *entry, third.entry), (EntryNo(1), EntryNo(2), EntryNo(3)));
    assert_eq!((by.as_ref(), *seq), (Some(&run("r-s")), Seq(3)));
    assert_eq!(numbers(store.clone(), "s", 9).await, [EntryNo(2)]);
    assert_eq!(numbers(store.clone(), "other", 9).await, []);

    store.fork(new_fork("s", 1, "f", Timestamp(9))).await.unwrap();
    assert_eq!(store.entries(&tenant(), &session("f"), EntryNo(0), 9).await.unwrap().len(), 1);
    let read = store.entries(&tenant(), &session("s"), EntryNo(0), 9).await.unwrap_err();
    assert!(matches!(&read, StoreError::DamagedEntry { entry: EntryNo(2), .. }), "{read}");
    assert_eq!(store.entries(&tenant(), &session("s"), EntryNo(2), 9).await.unwrap().len(), 1);

    // A row that is missing, and a run that is.
    store.close().await;
    let mut shell = shell(&directory).await;
    for sql in [
        "DELETE FROM run_events WHERE run_no = 2 AND seq = 3",
        "PRAGMA foreign_keys = OFF",
        "DELETE FROM runs WHERE run_no = 1",
    ] {
        sqlx::query(sql).execute(&mut shell).await.unwrap();
    }
    sqlx::Connection::close(shell).await.unwrap();
    let store = reopened(&directory).await;
    for (id, damaged) in [("s", &[1, 2, 3][..]), ("other", &[2])] {
        let listed = store.listed_entries(&tenant(), &session(id), EntryNo(0), max).await.unwrap();
        assert_eq!(listed.rows.len(), 3);
        let damaged: Vec<EntryNo> = damaged.iter().map(|entry| EntryNo(*entry)).collect();
        assert_eq!(numbers(store.clone(), id, 9).await, damaged);
        assert_eq!(numbers(store.clone(), id, 1).await, damaged[..1]);
    }
    assert!(store.delete_session(&tenant(), &session("s")).await.unwrap());
    let shared: Arc<dyn Store> = store.clone();
    Owner::started(&shared, "s", "r-s").await.says("anew").await.unwrap();
    assert_eq!(numbers(store.clone(), "s", 9).await, []);
}

#[tokio::test]
async fn words_that_nobody_said_are_not_found() {
    let (store, directory) = second_of_three().await;
    let found = |store: Arc<SqliteStore>, query: &'static str| async move {
        let hits = store.search(&tenant(), query, SearchFilter::default(), 9).await.unwrap();
        hits.into_iter().map(|hit| (hit.session, hit.entry.0)).collect::<Vec<_>>()
    };
    // The index was filled before the damage: what it finds is not shown.
    store.close().await;
    let mut shell = shell(&directory).await;
    let heal = "UPDATE run_events SET payload = replace(payload, '9000', '2000') WHERE run_no = 1";
    sqlx::query(heal).execute(&mut shell).await.unwrap();
    let store = reopened(&directory).await;
    assert_eq!(found(store.clone(), "2000").await.len(), 2);
    store.close().await;
    let harm = "UPDATE run_events SET payload = replace(payload, '2000', '9000') WHERE run_no = 1";
    sqlx::query(harm).execute(&mut shell).await.unwrap();
    let store = reopened(&directory).await;
    assert_eq!(found(store.clone(), "2000").await, [(session("other"), 2)]);
    assert_eq!(store.damaged_entries(&tenant(), &session("s"), 9).await.unwrap(), [EntryNo(2)]);

    // An index that is filled after the damage does not have it.
    store.close().await;
    std::fs::remove_file(directory.path().join("a.db.search")).unwrap();
    let store = reopened(&directory).await;
    assert_eq!(found(store.clone(), "9000").await, []);
    assert_eq!(found(store.clone(), "2000").await, [(session("other"), 2)]);
    assert_eq!(found(store.clone(), "3000").await.len(), 2);
    assert_eq!(
        store.damaged_entries(&tenant(), &session("s"), 9).await.unwrap(),
        [],
        "nothing damaged was found"
    );
}

/// A store with a rule of the session `s` and one for every run, in which this was changed.
async fn changed_rule(sql: &'static str) -> (Arc<SqliteStore>, TempDir) {
    let (store, directory) = fresh().await;
    let shared: Arc<dyn Store> = store.clone();
    let mut owner = Owner::started(&shared, "s", "r").await;
    owner.remembers_deny(1, RememberScope::Session).await;
    owner.remembers_deny(2, RememberScope::Tenant).await;
    store.close().await;
    let mut shell = shell(&directory).await;
    assert_eq!(sqlx::query(sql).execute(&mut shell).await.unwrap().rows_affected(), 1);
    sqlx::Connection::close(shell).await.unwrap();
    (reopened(&directory).await, directory)
}

#[tokio::test]
async fn a_changed_rule_is_named_until_it_is_deleted() {
    let changes = [
        "UPDATE remembered_rules SET rule = replace(rule, 'deny', 'allow') WHERE session_id = 's'",
        "UPDATE remembered_rules SET rule = 'nonsense' WHERE session_id = 's'",
        "UPDATE remembered_rules SET decided_by = 'mallory' WHERE session_id = 's'",
        "UPDATE remembered_rules SET decided_at = decided_at + 1 WHERE session_id = 's'",
        "UPDATE remembered_rules SET checksum = checksum + 1 WHERE session_id = 's'",
    ];
    for change in changes {
        let (store, _directory) = changed_rule(change).await;
        let s = session("s");
        let error = store.rules(&tenant(), Some(&s)).await.unwrap_err();
        let StoreError::DamagedRule { rule, .. } = error else { panic!("{change}: {error}") };
        let for_run = store.rules_for_run(&tenant(), &s).await.unwrap_err();
        assert!(matches!(for_run, StoreError::DamagedRule { .. }), "{change}: {for_run}");
        assert_eq!(store.rules(&tenant(), None).await.unwrap().len(), 1, "{change}: others are whole");
        assert_eq!(store.rules_for_run(&tenant(), &session("other")).await.unwrap().len(), 1);
        assert!(store.delete_rule(&tenant(), &RuleId::parse(&rule).unwrap()).await.unwrap());
        assert_eq!(store.rules_for_run(&tenant(), &s).await.unwrap().len(), 1, "{change}");
    }
    let (moved, _directory) =
        changed_rule("UPDATE remembered_rules SET session_id = NULL WHERE session_id = 's'").await;
    assert!(is_damage(moved.rules(&tenant(), None).await), "a rule of a session is not one for every run");
    let (old, _directory) =
        changed_rule("UPDATE remembered_rules SET checksum = NULL WHERE session_id = 's'").await;
    assert_eq!(old.rules_for_run(&tenant(), &session("s")).await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_changed_declaration_of_a_tool_is_left_out_and_named() {
    let tool = |name: &str| ToolRow {
        declaration: ToolDeclaration {
            name: name.to_owned(),
            title: String::new(),
            description: String::new(),
            input_schema: "{}".to_owned(),
            effect: EffectClass::Unsafe,
            requires_approval: false,
            requires_runtime: false,
            timeout: None,
            max_concurrency: None,
            streams_output: false,
            deadline_is_outcome: false,
            output_schema: String::new(),
        },
        last_seen: Timestamp(7),
        terms: None,
    };
    let changes = [
        (
            "UPDATE tools SET declaration = json_set(declaration, '$.description', 'Free.') WHERE name = 'pay'",
            &["pay"][..],
        ),
        ("UPDATE tools SET declaration = 'nonsense' WHERE name = 'pay'", &["pay"]),
        ("UPDATE tools SET terms = 'nonsense' WHERE name = 'pay'", &["pay"]),
        ("UPDATE tools SET name = 'pray' WHERE name = 'pay'", &["pay", "pray"]),
        ("UPDATE tools SET tenant = 'lokal' WHERE name = 'pay'", &["pay"]),
        ("UPDATE tools SET last_seen = 9 WHERE name = 'pay'", &["pay"]),
    ];
    for (change, damaged) in changes {
        let (store, directory) = fresh().await;
        store.save_tools(&tenant(), &[tool("pay"), tool("look")]).await.unwrap();
        store.close().await;
        let mut shell = shell(&directory).await;
        assert_eq!(sqlx::query(change).execute(&mut shell).await.unwrap().rows_affected(), 1);
        sqlx::Connection::close(shell).await.unwrap();
        let store = reopened(&directory).await;
        let stored = store.tools().await.unwrap();
        assert_eq!(stored.tools, [(tenant(), tool("look"))], "{change}");
        assert_eq!(stored.damaged.iter().collect::<Vec<_>>(), damaged, "{change}");
        store.save_tools(&tenant(), &[tool("pay")]).await.unwrap();
        let stored = store.tools().await.unwrap();
        assert!(stored.tools.contains(&(tenant(), tool("pay"))), "{change}: declared again");
    }
}

#[tokio::test]
async fn a_changed_event_that_a_fork_keeps_is_noticed() {
    let (store, directory) = changed("UPDATE meta SET value = value WHERE key = 'epoch'").await;
    assert!(store.delete_session(&tenant(), &session("s-a")).await.unwrap());
    let kept = store.entries(&tenant(), &session("f-a"), EntryNo(0), 9).await.unwrap();
    assert_eq!(kept.len(), 1, "its checksum went with it");
    store.close().await;
    let sql = "UPDATE kept_events SET payload = replace(payload, '1000', '9000')";
    let mut shell = shell(&directory).await;
    sqlx::query(sql).execute(&mut shell).await.unwrap();
    sqlx::Connection::close(shell).await.unwrap();
    let store = reopened(&directory).await;
    assert!(is_damage(store.entries(&tenant(), &session("f-a"), EntryNo(0), 9).await));
}

#[tokio::test]
async fn rows_of_older_servers_are_read_and_counted() {
    let (store, _directory) =
        changed("UPDATE run_events SET checksum = NULL WHERE run_no = 1 AND seq < 3").await;
    assert_eq!(store.records(&tenant(), &run("r-a"), Seq(0), 9).await.unwrap().len(), 3);
    assert_eq!(store.unverified_events(&tenant(), &run("r-a")).await.unwrap(), 2);
    assert_eq!(store.unverified_events(&tenant(), &run("r-b")).await.unwrap(), 0);
}
