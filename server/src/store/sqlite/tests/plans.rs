//! Tests of query plans: every query goes by a key or an index, so that it stays fast in large tables.

use std::collections::BTreeMap;

use sqlx::{AssertSqlSafe, Row as _};

use agentloop_core::time::Millis;

use super::*;
use crate::store::conformance::fixture::{run, session, tenant};
use crate::store::sql::read;
use crate::store::sql::reader::Dialect as _;
use crate::store::sql::write::sessions as shared;
use crate::store::sqlite::read::{self as own, SqliteDialect};
use crate::store::sqlite::{index, write::jobs, write::sessions, write::statements};
use crate::store::support::page::Cursor;
use crate::store::{RunFilter, SessionFilter, TimeRange};

async fn plan(db: &SqlitePool, sql: &str) -> Vec<String> {
    let explain = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {sql}"));
    let rows = sqlx::query(explain).fetch_all(db).await.unwrap();
    rows.iter().map(|row| row.get("detail")).collect()
}

async fn check(store: &SqliteStore, sql: &str, index: &str) {
    check_search(store, sql, index).await;
    let plan = plan(&store.readers, sql).await;
    // Ids decide between rows of the same millisecond.
    let sorted = plan.iter().any(|step| step.contains("TEMP B-TREE") && !step.contains("FOR LAST TERM"));
    assert!(!sorted, "sorted by hand: {sql}\n{}", plan.join("\n"));
}

async fn check_search(store: &SqliteStore, sql: &str, index: &str) {
    let plan = plan(&store.readers, sql).await;
    let all = plan.join("\n");
    assert!(all.contains(index), "not by {index}: {sql}\n{all}");
    for step in plan.iter().filter(|step| step.starts_with("SCAN ")) {
        // Rows of a stretch have a limit.
        let bounded = [
            "SCAN j VIRTUAL",
            "SCAN j EXISTS VIRTUAL",
            "SCAN 2-ROW VALUES CLAUSE",
            "SCAN v",
            "SCAN CONSTANT",
            "SCAN one",
            "SCAN of",
            "SCAN search_index VIRTUAL TABLE INDEX 0:=",
            "SCAN sizes",
            "SCAN spans",
            "SCAN (subquery-",
        ]
        .iter()
        .any(|known| step.starts_with(known))
            || step.contains("runs_unfinished")
            || step.contains("runs_queued")
            || step.contains("runs_due")
            || step.contains("jobs_due");
        assert!(bounded, "reads a whole table: {sql}\n{all}");
    }
}

#[tokio::test]
async fn no_query_reads_a_whole_table() {
    let store = SqliteStore::in_memory().await.unwrap();
    let cursor = || Some(Cursor { key: 1, id: "r".to_owned() });
    let of_session = RunFilter { session: Some(session("s")), ..RunFilter::default() };
    let runs = |filter: &RunFilter| {
        read::runs_query::<SqliteDialect>(&tenant(), filter, cursor(), None, 9).into_text()
    };
    let listed = |filter: &SessionFilter| {
        read::sessions_query::<SqliteDialect>(&tenant(), filter, cursor(), None, 9).into_text()
    };
    let pending = |columns: &'static str, filter: &RequestFilter| {
        read::pending_query::<SqliteDialect>(columns, &tenant(), filter, cursor(), 9).into_text()
    };
    let of_run = RequestFilter { run: Some(run("r")), ..RequestFilter::default() };

    check(&store, &runs(&RunFilter::default()), "runs_by_creation").await;
    check(&store, &runs(&of_session), "runs_by_session").await;
    let floor = |filter: &RunFilter| read::runs_floor_query(&tenant(), filter, cursor().as_ref()).into_text();
    check(&store, &floor(&RunFilter::default()), "USING COVERING INDEX runs_by_creation").await;
    check(&store, &floor(&of_session), "USING COVERING INDEX runs_by_session").await;
    let created = TimeRange { from: Some(Timestamp(1)), before: Some(Timestamp(9)) };
    let labels = BTreeMap::from([("team".to_owned(), "blue".to_owned())]);
    let (agents, text) = (vec!["a".to_owned()], "x".to_owned());
    let by_row = RunFilter { created, labels, agents, text, ..RunFilter::default() };
    check(&store, &runs(&by_row), "runs_by_creation").await;
    // It sorts numbers of one session's runs.
    check_search(&store, SqliteDialect::SESSION_RUNS, "runs_by_session").await;
    check_search(&store, SqliteDialect::SESSION_RUNS, "runs_queued").await;
    check(&store, SqliteDialect::UNFINISHED, "runs_unfinished").await;
    check(&store, SqliteDialect::DUE, "runs_due").await;
    check(&store, SqliteDialect::DUE_JOBS, "jobs_by_tenant (tenant=? AND due_at<?)").await;
    check(&store, SqliteDialect::TENANTS_WITH_JOBS, "jobs_by_tenant (tenant>?)").await;
    check(&store, SqliteDialect::TENANTS_WITH_JOBS, "jobs_by_tenant (tenant=? AND due_at<?)").await;
    check(&store, read::NEXT_DUE, "jobs_due (due_at>?)").await;
    check(&store, SqliteDialect::STRETCH, "run_events_by_run").await;
    check(&store, read::UNVERIFIED, "run_events_by_run").await;
    check(&store, jobs::RETRY, "PRIMARY KEY").await;
    check(&store, jobs::FINISH, "PRIMARY KEY").await;
    check(&store, shared::SET_NOTES, "sqlite_autoindex_sessions_1").await;
    check(&store, sessions::UPDATE, "sqlite_autoindex_sessions_1").await;
    check(&store, SqliteDialect::NEXT_QUEUED, "runs_queued").await;
    check(&store, SqliteDialect::ANY_QUEUED, "runs_queued").await;
    check(&store, SqliteDialect::QUEUE_HEADS, "runs_queued").await;
    check(&store, SqliteDialect::INTERRUPTED, "runs_queued").await;
    check(&store, SqliteDialect::INTERRUPTED_IN, "runs_queued").await;
    check(&store, read::STEERED, "PRIMARY KEY").await;
    check(&store, SqliteDialect::FIRST_QUEUED, "runs_queued").await;
    check(&store, &listed(&SessionFilter::default()), "sessions_by_update").await;
    check(&store, SqliteDialect::ENTRIES, "PRIMARY KEY").await;
    check(&store, SqliteDialect::ENTRIES, "run_events_by_run").await;
    check(&store, SqliteDialect::CALL_TITLES, "run_events_by_run").await;
    check(&store, shared::SHARE_ENTRIES, "PRIMARY KEY").await;
    check(&store, shared::SHARE_TODOS, "PRIMARY KEY").await;
    check(&store, read::TODOS, "PRIMARY KEY").await;
    check(&store, read::SESSION_COUNT, "(tenant=?)").await;
    check(&store, read::SESSION_COUNT_OF, "sessions_by_author").await;
    check(&store, SqliteDialect::STORED_BYTES, "(tenant=?)").await;
    check(&store, SqliteDialect::STORED_BYTES_OF, "runs_by_author").await;
    check(&store, read::IDLE_SESSIONS, "sessions_by_update").await;
    check(&store, &statements::INSERT_TODOS.sql(2), "").await;
    check(&store, shared::KEEP_EVENTS, "session_entries_lent").await;
    check(&store, sessions::REFER_TO_KEPT, "session_entries_lent").await;
    check(&store, SqliteDialect::RECORDS, "run_events_by_run").await;
    check(&store, sessions::DROP_SPECS, "runs_by_spec").await;
    check(&store, &statements::INSERT_SPECS.sql(2), "").await;
    check(&store, sessions::DROP_KEPT, "session_entries_kept").await;
    for columns in [read::SIZES, read::REQUESTS] {
        check(&store, &pending(columns, &RequestFilter::default()), "human_requests_open").await;
    }
    let request = read::request_query(&tenant(), &run("r"), "1.0:0").into_text();
    check(&store, &request, "SEARCH q USING PRIMARY KEY (run_no=? AND question=?)").await;
    check(&store, read::RULES, "remembered_rules_by_session").await;
    check(&store, read::RULES_OF_SESSION, "remembered_rules_by_session").await;
    check(&store, read::RULES_FOR_RUN, "remembered_rules_by_session (tenant=? AND session_id=?)").await;
    check(&store, &statements::INSERT_RULES.sql(2), "").await;
    check(&store, index::UNINDEXED, "session_entries_searched").await;
    check(&store, index::STATE, "session_entries_searched (search_no>? AND search_no<?)").await;
    check(&store, sessions::DELETE_DOCUMENTS, "session_entries_searched").await;
    check(&store, statements::SELECT_HEADS, "session_entries_searched").await;
    check(&store, statements::SELECT_HEADS, "PRIMARY KEY").await;
    check(&store, &statements::INSERT_SESSIONS.sql(2), "").await;
    check(&store, &statements::UPDATE_SESSIONS.sql(2), "PRIMARY KEY").await;
    check(&store, &statements::INSERT_STEERS.sql(2), "").await;
    check(&store, &statements::INSERT_RUNS.sql(2), "sqlite_autoindex_specs_1").await;
    check(&store, &statements::INSERT_ENTRIES.sql(2), "").await;
    check(&store, &statements::INSERT_REQUESTS.sql(2), "").await;
    check(&store, &statements::INSERT_JOBS.sql(2), "").await;
    check(&store, &statements::UPDATE_RUNS.sql(2), "PRIMARY KEY").await;
    check(&store, &statements::ANSWER_REQUESTS.sql(2), "PRIMARY KEY").await;

    let searchers = store.index.as_ref().unwrap().filled().await.unwrap().pool;
    for sql in [own::MATCHES, own::LENGTHS, own::HITS] {
        let found = plan(&searchers, sql).await;
        // Documents come in the order of the index; what is sorted by hand are the forks of one.
        let whole = |step: &&String| {
            let is_list = ["SCAN scope", "SCAN (subquery-"].iter().any(|list| step.starts_with(list));
            step.starts_with("SCAN ") && !step.contains("VIRTUAL TABLE INDEX") && !is_list
        };
        assert_eq!(found.iter().find(whole), None, "{found:#?}");
    }
    let found = plan(&searchers, own::MATCHES).await.join("\n");
    for index in ["sessions_by_author (tenant=? AND created_by=?)", "sessions_by_update (tenant=?)"] {
        assert!(found.contains(&format!("USING COVERING INDEX {index}")), "not by {index}: {found}");
    }
    let found = plan(&searchers, own::HITS).await;
    let all_sessions = |step: &&String| step.ends_with("(tenant=?)");
    assert_eq!(found.iter().find(all_sessions), None, "goes through the tenant for each match: {found:#?}");

    for label in ["user", "project"] {
        let filter =
            SessionFilter { labels: [(label.to_owned(), "x".to_owned())].into(), ..SessionFilter::default() };
        let labelled = plan(&store.readers, &listed(&filter)).await.join("\n");
        assert!(
            labelled.contains(&format!("sessions_by_{label} (tenant=? AND <expr>=?)")),
            "{label}: {labelled}"
        );
    }
    let floor =
        read::sessions_floor_query(&tenant(), &SessionFilter::default(), cursor().as_ref()).into_text();
    check(&store, &floor, "COVERING INDEX sessions_by_update").await;
    let of_user = read::session_of_user_query::<SqliteDialect>(&tenant(), &BTreeMap::new(), None).into_text();
    let of_user = plan(&store.readers, &of_user).await.join("\n");
    assert!(of_user.contains("sessions_by_user (tenant=? AND <expr>=?)"), "not one user's: {of_user}");

    let tenants = plan(&store.readers, read::TENANTS).await.join("\n");
    assert!(tenants.contains("(tenant>?)"), "goes through every session: {tenants}");

    let of_run = plan(&store.readers, &pending(read::REQUESTS, &of_run)).await.join("\n");
    assert!(!of_run.contains("SCAN"), "{of_run}");
    assert!(of_run.contains("SEARCH q USING PRIMARY KEY (run_no=?)"), "not the whole inbox: {of_run}");
}

#[tokio::test]
async fn usage_reads_the_runs_of_its_time_and_their_journals() {
    let store = SqliteStore::in_memory().await.unwrap();
    let query = crate::store::UsageQuery { bucket: Millis(60_000), ..Default::default() };
    let plan = plan(&store.readers, &own::usage_query(&tenant(), &query).into_text()).await;
    let all = plan.join("\n");
    for index in [
        "runs_by_end",
        "sessions_by_update",
        "runs_unfinished",
        "runs_due",
        "runs_paused",
        "usage_kept_by_time",
        "run_events_by_run",
    ] {
        assert!(all.contains(index), "not by {index}:\n{all}");
    }
    assert_no_scans(&plan, &["runs_paused"]);
    let keeps = self::plan(&store.readers, &own::keep_usage_query(1).into_text()).await;
    let all = keeps.join("\n");
    assert!(all.contains("runs_by_session") && all.contains("run_events_by_run"), "{all}");
    assert_no_scans(&keeps, &[]);
}

/// Fails for a step that goes through all runs, events or kept rows, unless by one of these small indexes.
#[track_caller]
fn assert_no_scans(plan: &[String], small: &[&str]) {
    for step in plan {
        let mut words = step.split(' ');
        let scans = words.next() == Some("SCAN");
        let table =
            words.next().is_some_and(|table| ["r", "e", "runs", "run_events", "usage_kept"].contains(&table));
        let is_small = small.iter().any(|index| step.contains(index));
        assert!(!(scans && table) || is_small, "reads a whole table: {}", plan.join("\n"));
    }
}
