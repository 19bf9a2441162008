//! Rows that are written in place, and the change of the tables that lets them be.

use std::collections::BTreeMap;

use agentloop_core::run::status::RunStatus;
use agentloop_core::time::Timestamp;
use sqlx::Row as _;

use super::*;
use crate::store::conformance::fixture::*;

/// The values of all columns that indexes of a table name, also in their conditions, by the names of the columns.
async fn indexed(db: &mut PgConnection, table: &str) -> BTreeMap<String, Option<String>> {
    let sql = "SELECT DISTINCT a.attname::text AS name FROM pg_index AS i
               JOIN pg_depend AS d ON d.classid = 'pg_class'::regclass AND d.objid = i.indexrelid AND d.refobjsubid > 0
               JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = d.refobjsubid
               WHERE i.indrelid = $1::text::regclass AND d.refobjid = i.indrelid
               UNION
               SELECT a.attname::text FROM pg_index AS i
               JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey::int2[])
               WHERE i.indrelid = $1::text::regclass";
    let names = sqlx::query(sql).bind(table).fetch_all(&mut *db).await.unwrap();
    let mut values = BTreeMap::new();
    for name in names.iter().map(|row| row.get::<String, _>("name")) {
        let value = sqlx::AssertSqlSafe(format!("SELECT {name}::text AS value FROM {table}"));
        let row = sqlx::query(value).fetch_one(&mut *db).await.unwrap();
        values.insert(name, row.get("value"));
    }
    values
}

async fn indexes(db: &mut PgConnection) -> Vec<String> {
    let sql = "SELECT c.relname::text AS name FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
               WHERE i.indrelid IN ('run_states'::regclass, 'sessions'::regclass) AND i.indisvalid ORDER BY 1";
    let rows = sqlx::query(sql).fetch_all(db).await.unwrap();
    rows.iter().map(|row| row.get("name")).collect()
}

#[tokio::test]
async fn a_run_that_goes_on_changes_no_indexed_column_within_a_second() {
    let Some(schema) = Schema::new().await else { return };
    let opened = schema.open().await;
    let store: Arc<dyn Store> = opened.clone();
    let mut db = schema.shell().await;
    let mut owner = Owner::started(&store, "s", "r").await;
    owner.says("one").await.unwrap();
    let tables = ["run_states", "sessions"];
    let mut before = Vec::new();
    for table in tables {
        before.push(indexed(&mut db, table).await);
    }
    for (table, column) in [(0, "goes_on"), (0, "updated_at"), (1, "updated_at"), (1, "session_id")] {
        assert!(before[table].contains_key(column), "{column}: {before:?}");
    }
    owner.now = Timestamp(START + 999);
    owner.tell(RunStatus::ToolRunning, vec![plain(1)]).await.unwrap();
    owner.hears("two").await.unwrap();
    for (table, before) in tables.into_iter().zip(&before) {
        assert_eq!(indexed(&mut db, table).await, *before, "{table}");
    }
    owner.now = Timestamp(START + 1_000);
    owner.says("three").await.unwrap();
    for table in tables {
        assert_eq!(indexed(&mut db, table).await["updated_at"], Some("2000".to_owned()), "{table}");
    }
    owner.now = Timestamp(START + 1_001);
    owner.hears("four").await.unwrap();
    owner.ends().await.unwrap();
    for table in tables {
        assert_eq!(indexed(&mut db, table).await["updated_at"], Some("2001".to_owned()), "{table}");
    }
    opened.close().await;
}

/// It knows one time of a row.
#[tokio::test]
async fn the_time_that_an_earlier_version_writes_counts() {
    let Some(schema) = Schema::new().await else { return };
    let opened = schema.open().await;
    let store: Arc<dyn Store> = opened.clone();
    let mut owner = Owner::started(&store, "s", "r").await;
    owner.says("one").await.unwrap();
    let mut shell = schema.shell().await;
    for table in ["run_states", "sessions"] {
        let sql = format!("UPDATE {table} SET updated_at = 7000");
        shell.execute(sqlx::AssertSqlSafe(sql)).await.unwrap();
    }
    let times = async || {
        let run = store.run(&tenant(), &run("r")).await.unwrap().unwrap();
        (run.updated_at, store.session(&tenant(), &session("s")).await.unwrap().unwrap().updated_at)
    };
    assert_eq!(times().await, (Timestamp(7_000), Timestamp(7_000)));
    owner.now = Timestamp(7_010);
    owner.hears("two").await.unwrap();
    assert_eq!(times().await, (Timestamp(7_010), Timestamp(7_010)));
    opened.close().await;
}

/// Their indexed times are in the past, as those of runs that go on can be.
#[tokio::test]
async fn parked_runs_whose_last_event_lies_in_the_future_are_made_due() {
    let Some(schema) = Schema::new().await else { return };
    let mut shell = schema.shell().await;
    let mut opened = schema.open().await;
    let store: Arc<dyn Store> = opened.clone();
    for name in ["past", "future"] {
        Owner::started(&store, name, name).await;
    }
    drop(store);
    for starts in [false, true] {
        let parked = "UPDATE run_states SET wake_at = 9000000000000, updated_at = 1, last_event_at = 1;
                      UPDATE run_states AS t SET last_event_at = 8000000000000 FROM runs AS r
                      WHERE r.run_no = t.run_no AND r.run_id = 'future'";
        sqlx::raw_sql(parked).execute(&mut shell).await.unwrap();
        if starts {
            opened.close().await;
            opened = schema.open().await;
        } else {
            opened.wake_runs_of_the_future().await.unwrap();
        }
        let sql = "SELECT r.run_id FROM runs AS r JOIN run_states AS t ON t.run_no = r.run_no
                   WHERE t.wake_at < 8000000000000";
        let due = sqlx::query(sql).fetch_all(&mut shell).await.unwrap();
        let due: Vec<String> = due.iter().map(|row| row.get("run_id")).collect();
        assert_eq!(due, ["future"], "at a start: {starts}");
    }
    opened.close().await;
}

/// With a start that was killed while it made the index, and one that has not begun.
#[tokio::test]
async fn indexes_of_many_runs_are_replaced_beside_the_work_of_others() {
    for is_half_made in [false, true] {
        let Some(schema) = Schema::new().await else { return };
        let mut db = schema.shell().await;
        migrations::apply_up_to(&mut db, 7).await;
        let filled = "
            INSERT INTO run_states (run_no, tenant, session_no, shard, epoch, last_seq, status, goes_on, at_hosts, usage,
                                    iterations, tool_calls, updated_at)
            SELECT n, 'local', n, 0, 1, 1, 9, false, false, '[]', 0, 0, n FROM generate_series(1, 10001) AS n";
        db.execute(filled).await.unwrap();
        if is_half_made {
            migrations::apply_up_to(&mut db, 8).await;
            db.execute("CREATE INDEX runs_at_rest ON run_states (run_no)").await.unwrap();
            let half = "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'runs_at_rest'::regclass";
            db.execute(half).await.unwrap();
        }
        let kept = [
            "run_states_pkey",
            "runs_at_rest",
            "runs_due",
            "runs_queued",
            "runs_unfinished",
            "sessions_by_author",
            "sessions_by_project",
            "sessions_by_update",
            "sessions_by_user",
            "sessions_pkey",
            "sessions_tenant_session_id_key",
        ];
        schema.open().await.close().await;
        assert_eq!(indexes(&mut db).await, kept, "half made: {is_half_made}");
        let sql = "SELECT pg_get_indexdef('runs_at_rest'::regclass) AS made";
        let made: String = sqlx::query(sql).fetch_one(&mut db).await.unwrap().get("made");
        assert!(made.ends_with("(tenant, updated_at) WHERE (NOT goes_on)"), "{made}");
        schema.open().await.close().await;
        assert_eq!(indexes(&mut db).await, kept);
    }
}

/// The start does not wait for it, and the next one looks again.
#[tokio::test]
async fn an_index_that_another_server_makes_is_left_to_it() {
    let Some(schema) = Schema::new().await else { return };
    let mut other = schema.shell().await;
    migrations::apply_up_to(&mut other, 8).await;
    other.execute("DROP INDEX runs_at_rest").await.unwrap();
    other.execute("SELECT pg_advisory_lock('run_states'::regclass::oid::int, 8)").await.unwrap();
    schema.open().await.close().await;
    assert!(!indexes(&mut other).await.contains(&"runs_at_rest".to_owned()));
    other.execute("SELECT pg_advisory_unlock_all()").await.unwrap();
    schema.open().await.close().await;
    assert!(indexes(&mut other).await.contains(&"runs_at_rest".to_owned()));
}

/// A transaction that was there before waits for the start, which waits for all of those. The start gives up, so that the other one
/// goes on, and the next start makes the index.
#[tokio::test]
async fn an_index_that_cannot_be_made_for_now_is_left_to_the_next_start() {
    let Some(schema) = Schema::new().await else { return };
    let mut other = schema.shell().await;
    migrations::apply_up_to(&mut other, 8).await;
    other.execute("DROP INDEX runs_at_rest").await.unwrap();
    other.execute("SET deadlock_timeout = '1h'").await.unwrap();
    let pid: i32 = sqlx::query("SELECT pg_backend_pid()").fetch_one(&mut other).await.unwrap().get(0);
    other.execute("BEGIN; LOCK TABLE run_states IN ROW EXCLUSIVE MODE").await.unwrap();
    let (opened, ()) = tokio::join!(schema.open(), async {
        let mut shell = schema.shell().await;
        let sql =
            "SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE query LIKE 'CREATE INDEX CONCURRENTLY%'
                                    AND $1 = ANY (pg_blocking_pids(pid)))";
        while !sqlx::query(sql).bind(pid).fetch_one(&mut shell).await.unwrap().get::<bool, _>(0) {}
        other.execute("LOCK TABLE run_states IN SHARE UPDATE EXCLUSIVE MODE").await.unwrap();
        other.execute("COMMIT").await.unwrap();
    });
    opened.close().await;
    assert!(!indexes(&mut other).await.contains(&"runs_at_rest".to_owned()));
    schema.open().await.close().await;
    assert!(indexes(&mut other).await.contains(&"runs_at_rest".to_owned()));
}
