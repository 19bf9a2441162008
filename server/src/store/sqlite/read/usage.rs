//! Adds up the usage of runs. Nothing is counted while runs go on: each row of `runs` has the sums of its run, and an index
//! finds the runs that were at work in a time. A run whose events are all in one bucket counts by its row. Of one that spans
//! several, the journal says what belongs to which. Runs of deleted sessions are in `usage_kept`, by the minute.

use std::collections::BTreeMap;

use agentloop_core::id::TenantId;
use agentloop_core::message::Usage;
use agentloop_core::run::state::CallCounts;
use agentloop_core::run::status::RunErrorCode;
use futures_util::TryStreamExt as _;
use sqlx::sqlite::SqliteRow;
use sqlx::{Error, Row as _, SqlitePool};

use super::dialect::SqliteDialect;
use super::prepared;
use crate::store::sql::query::Query;
use crate::store::sql::reader::Dialect as _;
use crate::store::sqlite::rows;
use crate::store::support::number::int;
use crate::store::{StoreError, UsageKey, UsageQuery, UsageRow};

/// The sums of a run, in the order of the column `usage`.
const SUMS: [&str; 11] = [
    "input_tokens",
    "output_tokens",
    "cached_input_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "cost_micros",
    "unpriced_calls",
    "model_calls",
    "failed_model_attempts",
    "tool_calls",
    "failed_tool_calls",
];

/// The amounts that an event adds to each of [`SUMS`]. `kind` and `payload` are the event's, `usage` the column of its run.
/// Calls of older servers do not say if there was a price: those without a cost count as calls without one.
const EVENT_SUMS: &str = "
    coalesce(payload ->> '$.usage.input_tokens', 0) AS input_tokens,
    coalesce(payload ->> '$.usage.output_tokens', 0) AS output_tokens,
    coalesce(payload ->> '$.usage.cached_input_tokens', 0) AS cached_input_tokens,
    coalesce(payload ->> '$.usage.cache_write_tokens', 0) AS cache_write_tokens,
    coalesce(payload ->> '$.usage.reasoning_tokens', 0) AS reasoning_tokens,
    coalesce(payload ->> '$.usage.cost_micros', 0) AS cost_micros,
    coalesce(payload ->> '$.usage.unpriced_calls',
             kind IN ('answer', 'summary') AND is_old AND payload ->> '$.usage.cost_micros' IS NULL, 0)
        AS unpriced_calls,
    kind IN ('answer', 'summary') AS model_calls,
    kind = 'failure' AS failed_model_attempts,
    kind = 'result' AS tool_calls,
    kind = 'result' AND coalesce(payload ->> '$.message.parts[0].status', '') NOT IN ('succeeded', 'answered')
        AS failed_tool_calls";

/// The kind of an event `e`, if it counts. The kind comes first in each payload. Damaged payloads are not counted.
const EVENT_KIND: &str = "
    CASE
        WHEN e.payload GLOB '{\"kind\":\"assistant_message\"*' THEN iif(json_valid(e.payload), 'answer', NULL)
        WHEN e.payload GLOB '{\"kind\":\"call_settled\"*' THEN iif(json_valid(e.payload), 'result', NULL)
        WHEN e.payload GLOB '{\"kind\":\"finished\"*' THEN iif(json_valid(e.payload), 'end', NULL)
        WHEN e.payload GLOB '{\"kind\":\"model_call_failed\"*' THEN iif(json_valid(e.payload), 'failure', NULL)
        WHEN e.payload GLOB '{\"kind\":\"compact*' AND json_valid(e.payload)
            THEN iif(e.payload ->> '$.usage.output_tokens' > 0, 'summary', NULL)
    END";

/// True if the run `r` has all sums in its row. Servers before schema 24 counted less.
const HAS_ALL_SUMS: &str = "
    (json_valid(r.usage) AND json_array_length(r.usage) >= 11)";

/// Adds up the rows of a tenant. They come by time, then by group.
pub(in crate::store::sqlite) async fn usage(
    db: &SqlitePool,
    tenant: &TenantId,
    query: &UsageQuery,
) -> Result<Vec<UsageRow>, StoreError> {
    let failure = |error: &Error| rows::failure(format_args!("usage of {tenant}"), error);
    let sql = usage_query(tenant, query);
    let mut found = prepared(sql).fetch(db);
    let mut merged: BTreeMap<UsageKey, UsageRow> = BTreeMap::new();
    while let Some(row) = found.try_next().await.map_err(|error| failure(&error))? {
        let part = part(&row).map_err(|error| failure(&error))?;
        let sum = merged
            .entry(part.key.clone())
            .or_insert_with(|| UsageRow { key: part.key.clone(), ..UsageRow::default() });
        add(sum, part);
        if merged.len() > query.rows_max {
            break;
        }
    }
    Ok(merged.into_values().collect())
}

/// The rows of each bucket and group, apart by the error of runs that failed.
pub(in crate::store::sqlite) fn usage_query(tenant: &TenantId, query: &UsageQuery) -> Query {
    let mut sql = Query::new("WITH ");
    push_runs(&mut sql, tenant, query);
    sql.push(", parts AS (");
    push_parts(&mut sql, tenant, query);
    sql.push(") SELECT at / ").bind(int(query.bucket.0)).push(" * ").bind(int(query.bucket.0));
    sql.push(" AS start, ").push(if query.by.agent { "agent" } else { "''" }).push(" AS group_agent, ");
    sql.push(if query.by.model { "model" } else { "''" }).push(" AS group_model, ");
    match &query.by.label {
        Some(key) => {
            sql.push("coalesce((SELECT j.value FROM json_each(labels) AS j WHERE j.key = ");
            sql.bind(key.as_str()).push("), '')")
        }
        None => sql.push("''"),
    };
    sql.push(" AS group_label, ").push(if query.by.created_by { "coalesce(created_by, '')" } else { "''" });
    sql.push(" AS group_author, error, total(ended) AS runs");
    for sum in SUMS {
        sql.push(&format!(", total({sum}) AS {sum}"));
    }
    sql.push(" FROM parts GROUP BY start, group_agent, group_model, group_label, group_author, error");
    sql
}

/// The runs that were at work in the time: those that have ended, by an index, and those that are open. An open run is the
/// live run of a session that was changed since, or has a task, a time to wake at, or waits for an operator.
fn push_runs(sql: &mut Query, tenant: &TenantId, query: &UsageQuery) {
    let (from, before, bucket) = (int(query.from.0), int(query.before.0), int(query.bucket.0));
    sql.push("of AS MATERIALIZED (SELECT run_no FROM runs INDEXED BY runs_by_end WHERE tenant = ");
    sql.bind(tenant.as_str()).push(" AND status >= 9 AND updated_at >= ").bind(from);
    sql.push(" AND created_at < ").bind(before);
    sql.push(" UNION SELECT live_run_no FROM sessions WHERE tenant = ").bind(tenant.as_str());
    sql.push(" AND live_run_no IS NOT NULL AND updated_at >= ").bind(from);
    sql.push(
        " UNION SELECT run_no FROM runs WHERE goes_on = 1
          UNION SELECT run_no FROM runs WHERE wake_at IS NOT NULL
          UNION SELECT run_no FROM runs WHERE status = 8), chosen AS MATERIALIZED (
          SELECT r.run_no, r.status, r.error, r.usage, r.agent, r.model, r.labels, r.created_by, r.updated_at, NOT ",
    );
    sql.push(HAS_ALL_SUMS).push(" AS is_old, ").push(HAS_ALL_SUMS);
    sql.push(" AND r.created_at / ").bind(bucket).push(" = r.updated_at / ").bind(bucket);
    sql.push(" AS is_whole FROM of CROSS JOIN runs AS r ON r.run_no = of.run_no WHERE r.tenant = ");
    sql.bind(tenant.as_str());
    sql.push(" AND r.updated_at >= ").bind(from).push(" AND r.created_at < ").bind(before);
    push_conditions(sql, "r.", query);
    sql.push(")");
}

/// Adds the chosen runs and the deleted ones. A cross join keeps SQLite from going through all events to find those of few
/// runs.
fn push_parts(sql: &mut Query, tenant: &TenantId, query: &UsageQuery) {
    let (from, before) = (int(query.from.0), int(query.before.0));
    sql.push(
        "SELECT updated_at AS at, agent, model, labels, created_by, status >= 9 AS ended,
              iif(status = 10 AND json_valid(error), error ->> '$.code', NULL) AS error",
    );
    for (at, sum) in SUMS.iter().enumerate() {
        sql.push(&format!(", usage ->> {at} AS {sum}"));
    }
    sql.push(
        " FROM chosen WHERE is_whole UNION ALL SELECT at, agent, model, labels, created_by, kind = 'end',
              iif(kind = 'end' AND status = 10 AND json_valid(error), error ->> '$.code', NULL), ",
    );
    sql.push(EVENT_SUMS).push(" FROM (SELECT c.*, e.at, e.payload, ").push(EVENT_KIND);
    sql.push(" AS kind FROM chosen AS c CROSS JOIN run_events AS e ON e.run_no = c.run_no WHERE NOT c.is_whole AND e.at >= ");
    sql.bind(from).push(" AND e.at < ").bind(before);
    sql.push(
        ") WHERE kind IS NOT NULL UNION ALL SELECT minute, agent, model, labels, created_by, ended, error",
    );
    for at in 0..SUMS.len() {
        sql.push(&format!(", sums ->> {at}"));
    }
    sql.push(" FROM usage_kept WHERE tenant = ").bind(tenant.as_str());
    sql.push(" AND minute >= ").bind(from).push(" AND minute < ").bind(before);
    push_conditions(sql, "", query);
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
    SqliteDialect::labels(sql, &format!("{table}labels"), &query.labels);
}

fn part(row: &SqliteRow) -> Result<UsageRow, Error> {
    let key = UsageKey {
        start: rows::time(row, "start")?,
        agent: row.try_get("group_agent")?,
        model: row.try_get("group_model")?,
        label: row.try_get("group_label")?,
        created_by: row.try_get("group_author")?,
    };
    let runs = count(row, "runs")?;
    let error: Option<String> = row.try_get("error")?;
    let code = error.and_then(|code| serde_json::from_value::<RunErrorCode>(code.into()).ok());
    Ok(UsageRow {
        key,
        runs,
        errors: code.map(|code| (code, runs)).into_iter().collect(),
        usage: Usage {
            input_tokens: count(row, "input_tokens")?,
            output_tokens: count(row, "output_tokens")?,
            cached_input_tokens: count(row, "cached_input_tokens")?,
            cache_write_tokens: count(row, "cache_write_tokens")?,
            reasoning_tokens: count(row, "reasoning_tokens")?,
            cost_micros: count(row, "cost_micros")?,
            unpriced_calls: count(row, "unpriced_calls")?,
        },
        calls: CallCounts {
            model_calls: count(row, "model_calls")?,
            failed_model_attempts: count(row, "failed_model_attempts")?,
            tool_calls: count(row, "tool_calls")?,
            failed_tool_calls: count(row, "failed_tool_calls")?,
        },
    })
}

/// A sum. SQLite adds up as a float, which does not overflow, and is exact up to 9·10¹⁵.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast of a float saturates")]
fn count(row: &SqliteRow, column: &str) -> Result<u64, Error> {
    row.try_get::<f64, _>(column).map(|sum| sum as u64)
}

/// Adds the rows of one group that differ in the error of their runs.
fn add(sum: &mut UsageRow, part: UsageRow) {
    sum.runs += part.runs;
    sum.errors.extend(part.errors);
    sum.usage += part.usage;
    sum.calls += part.calls;
}

/// Keeps what the runs of the session of this number have used, which is about to be deleted.
pub(in crate::store::sqlite) fn keep_usage_query(session_no: i64) -> Query {
    let mut sql = Query::new(
        "INSERT INTO usage_kept (tenant, minute, agent, model, labels, created_by, ended, error, sums)
         SELECT tenant, at / 60000 * 60000 AS minute, agent, model, labels, created_by, sum(kind = 'end'),
                iif(kind = 'end' AND status = 10 AND json_valid(error), error ->> '$.code', NULL) AS failed, json_array(",
    );
    for (at, sum) in SUMS.iter().enumerate() {
        sql.push(if at == 0 { "" } else { ", " });
        // A sum of integers may overflow, and a deletion must not fail for that.
        sql.push(&format!("CAST(total({sum}) AS INTEGER)"));
    }
    sql.push(") FROM (SELECT tenant, at, agent, model, labels, created_by, status, error, kind, ");
    sql.push(EVENT_SUMS);
    sql.push(
        " FROM (SELECT r.tenant, r.agent, r.model, r.labels, r.created_by, r.status, r.error, e.at, e.payload, NOT ",
    );
    sql.push(HAS_ALL_SUMS).push(" AS is_old, ").push(EVENT_KIND);
    sql.push(
        " AS kind FROM runs AS r CROSS JOIN run_events AS e ON e.run_no = r.run_no WHERE r.session_no = ",
    );
    sql.bind(session_no);
    sql.push(") WHERE kind IS NOT NULL) GROUP BY tenant, minute, agent, model, labels, created_by, failed");
    sql
}
