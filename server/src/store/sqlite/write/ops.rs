//! Small writes that are executed one at a time: claims, tools, rules, checks and the epoch.

use agentloop_core::id::{Epoch, HostId, RuleId, RunId, TenantId};
use agentloop_core::time::Timestamp;
use sqlx::{Connection as _, Error, Row as _, SqliteConnection};

use crate::clock::{Clock as _, SystemClock};
use crate::store::sqlite::rows;
use crate::store::support::checksum;
use crate::store::support::codec::text;
use crate::store::support::number::int;
use crate::store::{ClaimedRow, HostClaim, ToolRow};

/// Raises the run's epoch above that of its earlier owner. `None`: there is no such run.
pub(in crate::store::sqlite) async fn claim(
    db: &mut SqliteConnection,
    tenant: &TenantId,
    run: &RunId,
    least: Epoch,
) -> Result<Option<ClaimedRow>, Error> {
    let sql = "UPDATE runs SET epoch = max(epoch + 1, ?3) WHERE tenant = ?1 AND run_id = ?2
               RETURNING *, (SELECT session_id FROM sessions WHERE session_no = runs.session_no) AS session_id";
    let query = sqlx::query(sql).bind(tenant.as_str()).bind(run.as_str()).bind(int(least.0));
    let Some(row) = query.fetch_optional(db).await? else { return Ok(None) };
    Ok(Some(ClaimedRow { epoch: Epoch(rows::number(&row, "epoch")?), row: rows::run(&row)? }))
}

/// Stores declarations of tools. A later one of the same name replaces the earlier one.
pub(in crate::store::sqlite) async fn save_tools(
    db: &mut SqliteConnection,
    tenant: &TenantId,
    tools: &[ToolRow],
) -> Result<(), Error> {
    let sql = "INSERT INTO tools (tenant, name, declaration, last_seen, terms, checksum)
               SELECT ?1, j.value ->> 0, j.value ->> 1, j.value ->> 2, j.value ->> 3, j.value ->> 4
               FROM json_each(?2) AS j WHERE true
               ON CONFLICT (tenant, name) DO UPDATE
               SET declaration = excluded.declaration, last_seen = excluded.last_seen, terms = excluded.terms,
                   checksum = excluded.checksum";
    let row = |tool: &ToolRow| {
        let (declaration, terms) = (text(&tool.declaration), tool.terms.as_ref().map(text));
        let checksum = checksum::of_tool(tenant, tool, &declaration);
        (tool.declaration.name.clone(), declaration, int(tool.last_seen.0), terms, checksum)
    };
    let rows: Vec<_> = tools.iter().map(row).collect();
    sqlx::query(sql).bind(tenant.as_str()).bind(text(&rows)).execute(db).await?;
    Ok(())
}

/// Gives a host its id. `false`: it is another principal's.
pub(in crate::store::sqlite) async fn claim_host(
    db: &mut SqliteConnection,
    claim: &HostClaim,
) -> Result<bool, Error> {
    let sql = "INSERT INTO hosts (tenant, host, principal, last_seen) VALUES (?1, ?2, ?3, ?4)
               ON CONFLICT (tenant, host) DO UPDATE
               SET principal = excluded.principal, last_seen = max(last_seen, excluded.last_seen)
               WHERE principal = excluded.principal OR last_seen < ?5";
    let query = sqlx::query(sql).bind(claim.tenant.as_str()).bind(claim.host.as_str()).bind(&claim.principal);
    let done = query.bind(int(claim.at.0)).bind(int(claim.free_before.0)).execute(db).await?;
    Ok(done.rows_affected() > 0)
}

/// Notes when hosts were there, and forgets those that are gone for long.
pub(in crate::store::sqlite) async fn see_hosts(
    db: &mut SqliteConnection,
    hosts: &[(TenantId, HostId)],
    at: Timestamp,
    free_before: Timestamp,
) -> Result<(), Error> {
    let sql = "UPDATE hosts SET last_seen = max(last_seen, ?2)
               WHERE (tenant, host) IN (SELECT j.value ->> 0, j.value ->> 1 FROM json_each(?1) AS j)";
    sqlx::query(sql).bind(text(&hosts)).bind(int(at.0)).execute(&mut *db).await?;
    let sql = "DELETE FROM hosts WHERE last_seen < ?1";
    sqlx::query(sql).bind(int(free_before.0)).execute(db).await?;
    Ok(())
}

/// Counts a deletion, for `files::last_state`: a deletion that is lost is a loss, too.
const COUNT_DELETION: &str = "
    INSERT INTO meta (key, value) VALUES ('deletions', 1)
    ON CONFLICT (key) DO UPDATE SET value = value + 1";

/// Forgets a tool. `false`: there was none.
pub(in crate::store::sqlite) async fn forget_tool(
    db: &mut SqliteConnection,
    tenant: &TenantId,
    name: &str,
) -> Result<bool, Error> {
    let sql = "DELETE FROM tools WHERE tenant = ?1 AND name = ?2";
    let done = sqlx::query(sql).bind(tenant.as_str()).bind(name).execute(&mut *db).await?;
    let existed = done.rows_affected() > 0;
    if existed {
        sqlx::query(COUNT_DELETION).execute(db).await?;
    }
    Ok(existed)
}

/// Deletes a remembered rule. `false`: there was none.
pub(in crate::store::sqlite) async fn delete_rule(
    db: &mut SqliteConnection,
    tenant: &TenantId,
    rule: &RuleId,
) -> Result<bool, Error> {
    let sql = "DELETE FROM remembered_rules WHERE tenant = ?1 AND rule_id = ?2";
    let done = sqlx::query(sql).bind(tenant.as_str()).bind(rule.as_str()).execute(&mut *db).await?;
    let existed = done.rows_affected() > 0;
    if existed {
        sqlx::query(COUNT_DELETION).execute(db).await?;
    }
    Ok(existed)
}

/// Writes a row, because only a write shows that writing works.
pub(in crate::store::sqlite) async fn check(db: &mut SqliteConnection) -> Result<(), Error> {
    sqlx::query("UPDATE meta SET value = value + 1 WHERE key = 'checks'").execute(db).await?;
    Ok(())
}

/// Begins an epoch, higher than any before it. The file is marked as not cleanly closed until [`end_epoch`].
async fn begin_epoch(db: &mut SqliteConnection) -> Result<Epoch, Error> {
    sqlx::query(
        "UPDATE meta SET value = CASE key WHEN 'epoch' THEN value + 1 ELSE 0 END WHERE key IN ('epoch', 'clean')",
    )
    .execute(&mut *db)
    .await?;
    let row = sqlx::query("SELECT value FROM meta WHERE key = 'epoch'").fetch_one(db).await?;
    Ok(Epoch(row.try_get("value")?))
}

/// Makes parked runs due whose last event lies in the future, because the clock was set back: their waits are measured
/// anew. The search through the index of sessions spares the runs on every other start.
async fn wake_from_the_future(db: &mut SqliteConnection, now: Timestamp) -> Result<(), Error> {
    let sql = "
        UPDATE runs SET wake_at = ?1
        WHERE wake_at > ?1 AND updated_at > ?1 AND EXISTS (SELECT 1 FROM sessions WHERE updated_at > ?1)";
    sqlx::query(sql).bind(int(now.0)).execute(db).await?;
    Ok(())
}

/// Begins an epoch with everything that belongs to a start, in one transaction.
pub(in crate::store::sqlite) async fn write_epoch(db: &mut SqliteConnection) -> Result<Epoch, Error> {
    let mut transaction = db.begin_with("BEGIN IMMEDIATE").await?;
    let epoch = begin_epoch(&mut transaction).await?;
    wake_from_the_future(&mut transaction, SystemClock.now()).await?;
    transaction.commit().await?;
    Ok(epoch)
}

/// The epoch that [`write_epoch`] would begin.
pub(in crate::store::sqlite) async fn next_epoch(db: &mut SqliteConnection) -> Result<Epoch, Error> {
    let row = sqlx::query("SELECT value + 1 AS next FROM meta WHERE key = 'epoch'").fetch_one(db).await?;
    Ok(Epoch(row.try_get("next")?))
}

/// Marks the file as cleanly closed, and moves the write-ahead log into it.
pub(in crate::store::sqlite) async fn end_epoch(db: &mut SqliteConnection) -> Result<(), Error> {
    sqlx::query("UPDATE meta SET value = 1 WHERE key = 'clean'").execute(&mut *db).await?;
    sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").execute(db).await?;
    Ok(())
}

/// The random number by which the search index recognises its database.
pub(in crate::store::sqlite) async fn identity(db: &mut SqliteConnection) -> Result<i64, Error> {
    let row = sqlx::query("SELECT value FROM meta WHERE key = 'identity'").fetch_one(db).await?;
    row.try_get("value")
}

/// Gives a database another random number, because files beside it are about what it had before.
pub(in crate::store::sqlite) async fn renew_identity(db: &mut SqliteConnection) -> Result<(), Error> {
    let sql = "UPDATE meta SET value = random() WHERE key = 'identity'";
    sqlx::query(sql).execute(db).await.map(|_| ())
}

/// The last number that was given to a document of the search index.
pub(in crate::store::sqlite) async fn last_document(db: &mut SqliteConnection) -> Result<i64, Error> {
    let sql =
        "SELECT max((SELECT coalesce(max(search_no), 0) FROM session_entries WHERE search_no IS NOT NULL),
                          coalesce((SELECT value FROM meta WHERE key = 'last_document'), 0)) AS last";
    sqlx::query(sql).fetch_one(db).await?.try_get("last")
}

/// Forgets documents of deleted sessions, which the index has deleted by now.
pub(in crate::store::sqlite) async fn forget_deleted(
    db: &mut SqliteConnection,
    numbers: &[i64],
) -> Result<(), Error> {
    let sql = "DELETE FROM search_deleted WHERE search_no IN (SELECT value FROM json_each(?1))";
    sqlx::query(sql).bind(text(&numbers)).execute(db).await.map(|_| ())
}
