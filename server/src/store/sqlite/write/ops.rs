//! The small writes, one at a time.

use agentloop_core::id::{Epoch, RuleId, RunId, TenantId};
use sqlx::{Error, Row as _, SqliteConnection};

use crate::store::codec::{int, text};
use crate::store::sqlite::rows;
use crate::store::{RunRow, ToolRow};

/// A claim that succeeded, without the journal.
#[derive(Debug)]
pub(in crate::store::sqlite) struct Claim {
    pub(in crate::store::sqlite) epoch: Epoch,
    pub(in crate::store::sqlite) row: RunRow,
}

/// Raises the run's epoch above that of whoever had it. `None`: no such run.
pub(in crate::store::sqlite) async fn claim(
    db: &mut SqliteConnection,
    tenant: &TenantId,
    run: &RunId,
    least: Epoch,
) -> Result<Option<Claim>, Error> {
    let sql = "UPDATE runs SET epoch = max(epoch + 1, ?3) WHERE tenant = ?1 AND run_id = ?2
               RETURNING *, (SELECT session_id FROM sessions WHERE session_no = runs.session_no) AS session_id";
    let query = sqlx::query(sql).bind(tenant.as_str()).bind(run.as_str()).bind(int(least.0));
    let Some(row) = query.fetch_optional(db).await? else { return Ok(None) };
    Ok(Some(Claim { epoch: Epoch(rows::number(&row, "epoch")?), row: rows::run(&row)? }))
}

/// Remembers tools by name.
pub(in crate::store::sqlite) async fn save_tools(
    db: &mut SqliteConnection,
    tenant: &TenantId,
    tools: &[ToolRow],
) -> Result<(), Error> {
    let sql = "INSERT INTO tools (tenant, name, declaration, last_seen)
               SELECT ?1, j.value ->> 0, j.value ->> 1, j.value ->> 2 FROM json_each(?2) AS j WHERE true
               ON CONFLICT (tenant, name) DO UPDATE
               SET declaration = excluded.declaration, last_seen = excluded.last_seen";
    let rows: Vec<_> = tools
        .iter()
        .map(|tool| (&tool.declaration.name, text(&tool.declaration), int(tool.last_seen.0)))
        .collect();
    sqlx::query(sql).bind(tenant.as_str()).bind(text(&rows)).execute(db).await?;
    Ok(())
}

/// Forgets a remembered rule, if there is one.
pub(in crate::store::sqlite) async fn delete_rule(
    db: &mut SqliteConnection,
    tenant: &TenantId,
    rule: &RuleId,
) -> Result<bool, Error> {
    let sql = "DELETE FROM remembered_rules WHERE tenant = ?1 AND rule_id = ?2";
    let done = sqlx::query(sql).bind(tenant.as_str()).bind(rule.as_str()).execute(db).await?;
    Ok(done.rows_affected() > 0)
}

/// Writes something, since only a write tells whether one can be made.
pub(in crate::store::sqlite) async fn check(db: &mut SqliteConnection) -> Result<(), Error> {
    sqlx::query("UPDATE meta SET value = value + 1 WHERE key = 'checks'").execute(db).await?;
    Ok(())
}

/// Opens an epoch: higher than any before it. What is not closed from here on is not clean.
pub(in crate::store::sqlite) async fn begin_epoch(db: &mut SqliteConnection) -> Result<Epoch, Error> {
    sqlx::query(
        "UPDATE meta SET value = CASE key WHEN 'epoch' THEN value + 1 ELSE 0 END WHERE key IN ('epoch', 'clean')",
    )
    .execute(&mut *db)
    .await?;
    let row = sqlx::query("SELECT value FROM meta WHERE key = 'epoch'").fetch_one(db).await?;
    Ok(Epoch(row.try_get("value")?))
}

/// Says that the file was closed in order.
pub(in crate::store::sqlite) async fn end_epoch(db: &mut SqliteConnection) -> Result<(), Error> {
    sqlx::query("UPDATE meta SET value = 1 WHERE key = 'clean'").execute(&mut *db).await?;
    sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").execute(db).await?;
    Ok(())
}

/// The number that the database was given when it was made, or when the migration that gives it ran.
pub(in crate::store::sqlite) async fn identity(db: &mut SqliteConnection) -> Result<i64, Error> {
    let row = sqlx::query("SELECT value FROM meta WHERE key = 'identity'").fetch_one(db).await?;
    row.try_get("value")
}

/// The last number that was given to a document.
pub(in crate::store::sqlite) async fn last_document(db: &mut SqliteConnection) -> Result<i64, Error> {
    let sql =
        "SELECT max((SELECT coalesce(max(search_no), 0) FROM session_entries WHERE search_no IS NOT NULL),
                          coalesce((SELECT value FROM meta WHERE key = 'last_document'), 0)) AS last";
    sqlx::query(sql).fetch_one(db).await?.try_get("last")
}

/// Forgets documents of deleted sessions, which the index has no more.
pub(in crate::store::sqlite) async fn forget_deleted(
    db: &mut SqliteConnection,
    numbers: &[i64],
) -> Result<(), Error> {
    let sql = "DELETE FROM search_deleted WHERE search_no IN (SELECT value FROM json_each(?1))";
    sqlx::query(sql).bind(text(&numbers)).execute(db).await.map(|_| ())
}
