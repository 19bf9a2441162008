//! Adds up the usage of runs. Nothing is counted while runs go on: each run has the sums in its row, and an index finds the
//! runs that were at work in a time. A run whose events are all in one bucket counts by its row. Of one that spans several, the
//! journal says what belongs to which. Runs of deleted sessions are in `usage_kept`, by the minute.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use agentloop_core::id::TenantId;
use agentloop_core::message::Usage;
use agentloop_core::run::state::CallCounts;
use agentloop_core::run::status::{RunErrorCode, RunStatus};
use agentloop_core::time::{Millis, Timestamp};
use futures_util::TryStreamExt as _;
use sqlx::postgres::PgRow;
use sqlx::{Error, PgConnection, Postgres, QueryBuilder, Row as _};

use super::dialect::PostgresDialect;
use super::prepared;
use crate::store::postgres::connect::reader_pool::ReaderPool;
use crate::store::postgres::rows;
use crate::store::sql::query::Query;
use crate::store::sql::reader::Dialect as _;
use crate::store::support::codec::{self, text, usage_text};
use crate::store::support::number::int;
use crate::store::{GroupedRun, RunRow, StoreError, UsageKey, UsageQuery, UsageRow};

/// Length of the buckets of deleted sessions.
const MINUTE: u64 = 60_000;

/// True for events that may count. The kind comes first in each payload.
const COUNTS: &str = "
    (e.payload LIKE '{\"kind\":\"assistant\\_message\"%' OR e.payload LIKE '{\"kind\":\"call\\_settled\"%'
     OR e.payload LIKE '{\"kind\":\"finished\"%' OR e.payload LIKE '{\"kind\":\"model\\_call\\_failed\"%'
     OR e.payload LIKE '{\"kind\":\"compact%')";

/// Events that may count, of the runs that follow. The output of a tool does not count and may be large, so a result comes
/// without its output, which is behind the status, and without the checksum that is over both. A quote within a value has a
/// backslash before it, so the text is found at no other place.
const EVENTS: &str = "
    SELECT e.run_no, r.run_id, e.seq, e.at, e.status, e.version,
           CASE WHEN o.place > 0 THEN left(e.payload, o.place - 1) || ',\"output\":\"\"}]},\"duration\":0}'
                ELSE e.payload END AS payload,
           CASE WHEN o.place = 0 THEN e.checksum END AS checksum
    FROM run_events AS e
    JOIN runs AS r ON r.run_no = e.run_no
    CROSS JOIN LATERAL (
        SELECT CASE WHEN e.payload LIKE '{\"kind\":\"call\\_settled\"%' THEN strpos(e.payload, ',\"output\":\"')
                    ELSE 0 END AS place) AS o
    WHERE e.run_no = ANY (";

/// Runs whose events are read by one query.
const RUNS_AT_ONCE: usize = 4_096;

/// The runs of a session.
const OF_SESSION: &str = "
    SELECT r.*, s.session_id, r.run_no AS no FROM run_rows AS r
    JOIN sessions AS s ON s.session_no = r.session_no
    WHERE r.session_no = $1 ORDER BY r.run_no";

/// Adds up the rows of a tenant. They come by time, then by group.
pub(in crate::store::postgres) async fn usage(
    db: &ReaderPool,
    tenant: &TenantId,
    query: &UsageQuery,
) -> Result<Vec<UsageRow>, StoreError> {
    let failure = |error: Error| rows::failure(format_args!("usage of {tenant}"), &error);
    let mut sums = BTreeMap::new();
    let (mut spanning, mut groups) = (BTreeMap::new(), BTreeSet::<Arc<UsageKey>>::new());
    {
        let sql = runs_query(tenant, query);
        let mut reader = db.acquire().await.map_err(failure)?;
        let mut found = prepared(sql).fetch(&mut *reader);
        while let Some(row) = found.try_next().await.map_err(failure)? {
            let run = rows::run(&row).map_err(failure)?;
            let bucket = query.bucket.0.max(1);
            let is_whole = run.created_at.0 / bucket == run.updated_at.0 / bucket;
            if is_whole && has_all_sums(&row).map_err(failure)? {
                add_run(&mut sums, query, &run);
            } else {
                let group = Arc::new(query.group(&GroupedRun::of(&run)));
                let group = groups.get(&group).cloned().unwrap_or(group);
                groups.insert(group.clone());
                spanning.insert(row.try_get::<i64, _>("run_no").map_err(failure)?, group);
            }
            if sums.len() > query.rows_max {
                break;
            }
        }
    }
    add_events(db, tenant, query, &spanning, &mut sums).await.map_err(failure)?;
    add_kept(db, tenant, query, &mut sums).await.map_err(failure)?;
    Ok(sums.into_values().take(query.rows_max.saturating_add(1)).collect())
}

/// The runs that were at work in the time: those that go on, and the others by the time of their last event. Each has an index.
pub(in crate::store::postgres) fn runs_query(tenant: &TenantId, query: &UsageQuery) -> Query {
    let (from, before) = (int(query.from.0), int(query.before.0));
    let mut sql =
        Query::new("WITH of AS MATERIALIZED (SELECT run_no FROM run_states WHERE NOT goes_on AND tenant = ");
    sql.bind(tenant.as_str()).push(" AND updated_at >= ").bind(from);
    sql.push(
        " UNION ALL SELECT run_no FROM run_states WHERE goes_on)
          SELECT r.*, s.session_id FROM of JOIN run_rows AS r ON r.run_no = of.run_no
          JOIN sessions AS s ON s.session_no = r.session_no WHERE r.tenant = ",
    );
    sql.bind(tenant.as_str()).push(" AND r.updated_at >= ").bind(from);
    sql.push(" AND r.created_at < ").bind(before);
    push_conditions(&mut sql, "r.", query);
    sql
}

fn push_conditions(sql: &mut Query, table: &str, query: &UsageQuery) {
    for (column, wanted) in [("agent", &query.agent), ("model", &query.model)] {
        if !wanted.is_empty() {
            sql.push(&format!(" AND {table}{column} = ")).bind(wanted.as_str());
        }
    }
    if let Some(by) = &query.created_by {
        sql.push(&format!(" AND {table}created_by = ")).bind(by.as_str());
    }
    PostgresDialect::labels(sql, &format!("{table}labels"), &query.labels);
}

/// True if the run has all sums in its row. Earlier servers counted less.
fn has_all_sums(row: &PgRow) -> Result<bool, Error> {
    rows::json::<Vec<u64>>(row, "usage").map(|sums| sums.len() >= 11)
}

/// The row of a run's group in the bucket of this time.
fn row_of<'a>(
    sums: &'a mut BTreeMap<UsageKey, UsageRow>,
    query: &UsageQuery,
    at: Timestamp,
    run: &GroupedRun<'_>,
) -> &'a mut UsageRow {
    let key = query.group(run).in_bucket(at, query.bucket);
    sums.entry(key.clone()).or_insert_with(|| UsageRow { key, ..UsageRow::default() })
}

fn add_error(row: &mut UsageRow, code: RunErrorCode, runs: u64) {
    match row.errors.iter_mut().find(|(known, _)| *known == code) {
        Some((_, sum)) => *sum += runs,
        None => row.errors.push((code, runs)),
    }
}

/// Adds a run by the sums in its row.
fn add_run(sums: &mut BTreeMap<UsageKey, UsageRow>, query: &UsageQuery, run: &RunRow) {
    if run.updated_at < query.from || run.updated_at >= query.before {
        return;
    }
    let summary = &run.summary;
    let row = row_of(sums, query, run.updated_at, &GroupedRun::of(run));
    row.usage += summary.usage;
    row.calls += summary.calls;
    row.runs += u64::from(summary.status.is_terminal());
    if let Some(error) = summary.error.as_ref().filter(|_| summary.status == RunStatus::Failed) {
        add_error(row, error.code, 1);
    }
}

/// Adds runs by their events, each to its group.
async fn add_events(
    db: &ReaderPool,
    tenant: &TenantId,
    query: &UsageQuery,
    runs: &BTreeMap<i64, Arc<UsageKey>>,
    sums: &mut BTreeMap<UsageKey, UsageRow>,
) -> Result<(), Error> {
    if runs.is_empty() {
        return Ok(());
    }
    let numbers: Vec<i64> = runs.keys().copied().collect();
    let mut reader = db.acquire().await?;
    for numbers in numbers.chunks(RUNS_AT_ONCE) {
        let mut sql = events_of(numbers);
        sql.push(" AND e.at >= ")
            .push_bind(int(query.from.0))
            .push(" AND e.at < ")
            .push_bind(int(query.before.0));
        let mut found = sql.build().fetch(&mut *reader);
        while let Some(row) = found.try_next().await? {
            // Damaged events are not counted.
            let Some(group) = runs.get(&row.try_get("run_no")?) else { continue };
            let run = rows::run_id(&row, "run_id")?;
            let Ok(record) = codec::decode(tenant, &run, &rows::event(&row)?) else { continue };
            query.add(sums, group, &record);
        }
    }
    Ok(())
}

/// The query of the events that may count of these runs.
fn events_of(runs: &[i64]) -> QueryBuilder<Postgres> {
    let mut sql = QueryBuilder::new(EVENTS);
    sql.push_bind(runs.to_vec()).push(") AND ").push(COUNTS);
    sql
}

/// Adds runs of deleted sessions.
async fn add_kept(
    db: &ReaderPool,
    tenant: &TenantId,
    query: &UsageQuery,
    sums: &mut BTreeMap<UsageKey, UsageRow>,
) -> Result<(), Error> {
    let mut sql = Query::new("SELECT * FROM usage_kept WHERE tenant = ");
    sql.bind(tenant.as_str()).push(" AND minute >= ").bind(int(query.from.0));
    sql.push(" AND minute < ").bind(int(query.before.0));
    push_conditions(&mut sql, "", query);
    let mut reader = db.acquire().await?;
    let mut found = prepared(sql).fetch(&mut *reader);
    while let Some(row) = found.try_next().await? {
        let (agent, model): (&str, &str) = (row.try_get("agent")?, row.try_get("model")?);
        let labels = rows::json(&row, "labels")?;
        let grouped = GroupedRun { agent, model, labels: &labels, created_by: row.try_get("created_by")? };
        let sum = row_of(sums, query, rows::time(&row, "minute")?, &grouped);
        let (usage, calls): (Usage, CallCounts) = rows::parsed(&row, "sums", codec::usage)?;
        let ended = rows::number(&row, "ended")?;
        sum.usage += usage;
        sum.calls += calls;
        sum.runs += ended;
        let error: Option<String> = row.try_get("error")?;
        if let Some(code) = error.and_then(|code| serde_json::from_value(code.into()).ok()) {
            add_error(sum, code, ended);
        }
    }
    Ok(())
}

/// A group of `usage_kept`.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct KeptKey {
    minute: u64,
    agent: String,
    model: String,
    labels: String,
    created_by: Option<String>,
    /// The code of the error, of runs that failed.
    error: Option<String>,
}

/// Keeps what the runs of the session of this number have used, which is about to be deleted.
pub(in crate::store::postgres) async fn keep_usage(
    db: &mut PgConnection,
    session_no: i64,
) -> Result<(), Error> {
    let runs = sqlx::query(OF_SESSION).bind(session_no).fetch_all(&mut *db).await?;
    let by_minute = UsageQuery {
        before: Timestamp(u64::MAX),
        bucket: Millis(MINUTE),
        rows_max: usize::MAX,
        ..UsageQuery::default()
    };
    let Some(first) = runs.first() else { return Ok(()) };
    let tenant = rows::tenant_id(first, "tenant")?;
    let mut kept: BTreeMap<KeptKey, UsageRow> = BTreeMap::new();
    for runs in runs.chunks(RUNS_AT_ONCE) {
        let numbers = runs.iter().map(|run| run.try_get("no")).collect::<Result<Vec<i64>, _>>()?;
        let mut of_runs: BTreeMap<i64, BTreeMap<UsageKey, UsageRow>> = BTreeMap::new();
        let mut sql = events_of(&numbers);
        let mut events = sql.build().fetch(&mut *db);
        while let Some(row) = events.try_next().await? {
            let run = rows::run_id(&row, "run_id")?;
            // Damaged events are not counted.
            if let Ok(record) = codec::decode(&tenant, &run, &rows::event(&row)?) {
                let sums = of_runs.entry(row.try_get("run_no")?).or_default();
                by_minute.add(sums, &UsageKey::default(), &record);
            }
        }
        for found in runs {
            let Some(sums) = of_runs.remove(&found.try_get("no")?) else { continue };
            keep_run(&mut kept, &rows::run(found)?, sums);
        }
    }
    if !kept.is_empty() {
        insert_kept(db, tenant.as_str(), &kept).await?;
    }
    Ok(())
}

/// Adds what a run has used, by the minute, to its groups.
fn keep_run(kept: &mut BTreeMap<KeptKey, UsageRow>, run: &RunRow, sums: BTreeMap<UsageKey, UsageRow>) {
    for row in sums.into_values() {
        let code = row.errors.first().map(|(code, _)| serde_json::to_value(code));
        let error = code.and_then(Result::ok).and_then(|code| code.as_str().map(str::to_owned));
        let key = KeptKey {
            minute: row.key.start.0,
            agent: run.agent.clone(),
            model: run.model.clone(),
            labels: text(&run.labels),
            created_by: run.created_by.clone(),
            error,
        };
        let sum = kept.entry(key).or_default();
        sum.runs += row.runs;
        sum.usage += row.usage;
        sum.calls += row.calls;
    }
}

async fn insert_kept(
    db: &mut PgConnection,
    tenant: &str,
    kept: &BTreeMap<KeptKey, UsageRow>,
) -> Result<(), Error> {
    let sql = "INSERT INTO usage_kept (tenant, minute, agent, model, labels, created_by, ended, error, sums)
               SELECT $1, v.* FROM unnest($2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[],
                                          $8::text[], $9::text[]) AS v";
    sqlx::query(sql)
        .bind(tenant)
        .bind(kept.keys().map(|key| int(key.minute)).collect::<Vec<_>>())
        .bind(kept.keys().map(|key| key.agent.as_str()).collect::<Vec<_>>())
        .bind(kept.keys().map(|key| key.model.as_str()).collect::<Vec<_>>())
        .bind(kept.keys().map(|key| key.labels.as_str()).collect::<Vec<_>>())
        .bind(kept.keys().map(|key| key.created_by.as_deref()).collect::<Vec<_>>())
        .bind(kept.values().map(|row| int(row.runs)).collect::<Vec<_>>())
        .bind(kept.keys().map(|key| key.error.as_deref()).collect::<Vec<_>>())
        .bind(kept.values().map(|row| usage_text(&row.usage, &row.calls)).collect::<Vec<_>>())
        .execute(db)
        .await
        .map(|_| ())
}
