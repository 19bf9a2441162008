//! Plans of the statements that write.

use std::collections::BTreeMap;

use agentloop_core::id::TenantId;
use agentloop_core::time::Millis;
use sqlx::Row as _;

use super::*;
use crate::store::UsageQuery;
use crate::store::postgres::connect::settings;
use crate::store::postgres::read::PostgresDialect;
use crate::store::postgres::read::usage::runs_query;
use crate::store::postgres::write::append::{SELECT_HEADS, SELECT_HEADS_OF_BLIND};
use crate::store::postgres::write::connection::with_new_plans;
use crate::store::postgres::write::statement::GUESSED;
use crate::store::sql::read::session_of_user_query;

/// A schema with all tables, and a connection to it with the settings of the writer.
async fn to_plan_in() -> Option<(Schema, PgConnection)> {
    let schema = Schema::new().await?;
    let _migrated = schema.open().await;
    let mut db = schema.shell().await;
    settings::to_write(&mut db).await.unwrap();
    Some((schema, db))
}

/// The plan of the statement that was prepared as `heads`, as lines.
async fn plan(db: &mut PgConnection) -> String {
    let sql = "EXPLAIN EXECUTE heads ('{local}', '{run-7}', '{session-7}')";
    let lines = sqlx::raw_sql(sql).fetch_all(db).await.unwrap();
    lines.iter().map(|line| line.get::<String, _>(0)).collect::<Vec<_>>().join("\n")
}

/// The columns of a session that come from its runs cost more than the rest of its row.
#[tokio::test]
async fn of_a_users_sessions_only_the_one_that_is_wanted_is_completed() {
    let Some((_schema, mut db)) = to_plan_in().await else { return };
    let query = session_of_user_query::<PostgresDialect>(&TenantId::local(), &BTreeMap::new(), None);
    let sql = format!("PREPARE of_user AS {}", query.into_text());
    db.execute(sqlx::AssertSqlSafe(sql)).await.unwrap();
    let explain = "EXPLAIN EXECUTE of_user ('local', 'local', '')";
    let lines = sqlx::raw_sql(explain).fetch_all(&mut db).await.unwrap();
    let lines: Vec<String> = lines.iter().map(|line| line.get(0)).collect();
    let plan = lines.join("\n");
    let found = lines.iter().position(|line| line.contains("sessions_by_user")).expect("by its index");
    let sorted = lines.iter().position(|line| line.contains("updated_at")).expect("it is sorted");
    let inner = lines.iter().position(|line| line.contains("InitPlan")).expect("before the rest");
    assert!(inner < sorted && sorted < found, "{plan}");
    let pad = |at: usize| lines[at].len() - lines[at].trim_start().len();
    assert!(lines[inner..=found].iter().all(|line| !line.contains("runs")), "{plan}");
    assert!(pad(inner) < pad(sorted), "{plan}");
}

/// The tables are empty, so their indexes are used only where there is no other way.
#[tokio::test]
async fn usage_reads_the_runs_of_its_time() {
    let Some((_schema, mut db)) = to_plan_in().await else { return };
    db.execute("SET enable_seqscan = off").await.unwrap();
    let query = UsageQuery { bucket: Millis(60_000), ..UsageQuery::default() };
    let sql = format!("PREPARE usage AS {}", runs_query(&TenantId::local(), &query).into_text());
    db.execute(sqlx::AssertSqlSafe(sql)).await.unwrap();
    let explain = "EXPLAIN EXECUTE usage ('local', 0, 'local', 0, 0)";
    let lines = sqlx::raw_sql(explain).fetch_all(&mut db).await.unwrap();
    let plan = lines.iter().map(|line| line.get::<String, _>(0)).collect::<Vec<_>>().join("\n");
    for index in ["runs_at_rest", "runs_unfinished"] {
        assert!(plan.contains(index), "not by {index}: {plan}");
    }
}

#[tokio::test]
async fn what_a_blind_start_may_have_overlooked_is_found_by_its_key() {
    let Some((_schema, mut db)) = to_plan_in().await else { return };
    let guessed = GUESSED.replace("$107", "$1").replace("$108", "$2");
    for sql in [SELECT_HEADS_OF_BLIND.to_owned(), format!("SELECT true{guessed}")] {
        let sql = format!("PREPARE heads (text[], text[], text[]) AS {sql}");
        db.execute(sqlx::AssertSqlSafe(sql)).await.unwrap();
        let plan = plan(&mut db).await;
        for by_key in [
            "(tenant = j.tenant) AND (request_id = j.run_id)",
            "(tenant = j.tenant) AND (session_id IS NULL)",
        ] {
            assert!(plan.contains(by_key), "{plan}");
        }
        assert!(!plan.contains("hashed SubPlan"), "{plan}");
        db.execute("DEALLOCATE heads").await.unwrap();
    }
}

/// The tables have 20,000 rows of one tenant, and no statistics.
#[tokio::test]
async fn a_plan_of_empty_tables_is_not_kept_once_they_are_filled() {
    let Some((schema, mut db)) = to_plan_in().await else { return };
    let mut shell = schema.shell().await;
    for table in ["runs", "sessions"] {
        let sql = format!("ALTER TABLE {table} SET (autovacuum_enabled = off)");
        shell.execute(sqlx::AssertSqlSafe(sql)).await.unwrap();
    }
    db.execute(sqlx::AssertSqlSafe(format!("PREPARE heads AS {SELECT_HEADS}"))).await.unwrap();
    plan(&mut db).await;
    let filled = "
        INSERT INTO sessions (session_no, tenant, session_id, shard, created_at, updated_at)
        SELECT n, 'local', 'session-' || n, 0, n, n FROM generate_series(1, 20000) AS n;
        INSERT INTO runs (run_no, tenant, run_id, session_no, shard, request_digest, agent, model, labels, preview, created_at)
        SELECT n, 'local', 'run-' || n, n, 0, '', '', '', '{}', '', n FROM generate_series(1, 20000) AS n";
    sqlx::raw_sql(filled).execute(&mut shell).await.unwrap();
    let mut db = with_new_plans(db).await.unwrap();
    let plan = plan(&mut db).await;
    for index in ["runs_tenant_run_id_key", "sessions_tenant_session_id_key"] {
        assert!(plan.contains(index), "{plan}");
    }
}
