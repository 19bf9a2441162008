//! Small writes that are executed one at a time: claims, jobs, tools, rules, checks and the epoch.

use agentloop_core::cluster::shard::ShardNo;
use agentloop_core::id::{Epoch, HostId, RuleId, RunId, TenantId};
use agentloop_core::time::Timestamp;
use sqlx::postgres::PgArguments;
use sqlx::query::Query;
use sqlx::{Error, PgConnection, Postgres, Row as _};

use crate::store::postgres::owner::{Owner, ServerKind};
use crate::store::postgres::rows::{self, clean};
use crate::store::postgres::scope::Scope;
use crate::store::sql::write::WriteError;
use crate::store::support::append::LastNumbers;
use crate::store::support::checksum;
use crate::store::support::codec::text;
use crate::store::support::features_used::{Features, FeaturesUsed};
use crate::store::support::number::int;
use crate::store::{ClaimedRow, HostClaim, JobId, StoreError, ToolRow};

/// Numbers of one block, for rows of each kind.
pub(in crate::store) const BLOCK_NUMBERS: i64 = 1 << 24;
/// Numbers of search documents begin here. Those of earlier versions are below.
const DOCUMENTS_FROM: i64 = 1 << 56;
/// Epochs of one start of a server.
const START_EPOCHS: i64 = 1 << 20;

/// Raises the run's epoch above that of its earlier owner. `None`: there is no such run.
///
/// # Errors
/// [`StoreError::Elsewhere`] for a run of a session that is not in the scope, or the failure of a statement.
pub(in crate::store::postgres) async fn claim(
    db: &mut PgConnection,
    scope: &Scope,
    tenant: &TenantId,
    run: &RunId,
    least: Epoch,
) -> Result<Option<ClaimedRow>, WriteError> {
    if !scope.is_all() {
        let sql = "SELECT shard FROM runs WHERE tenant = $1 AND run_id = $2";
        let found =
            sqlx::query(sql).bind(tenant.as_str()).bind(run.as_str()).fetch_optional(&mut *db).await?;
        let Some(row) = found else { return Ok(None) };
        let shard = u16::try_from(rows::number(&row, "shard")?).unwrap_or(u16::MAX);
        if !scope.keeps(ShardNo(shard)) {
            return Err(WriteError::Refused(StoreError::Elsewhere));
        }
    }
    let sql = "UPDATE run_states SET epoch = greatest(epoch + 1, $3)
               WHERE run_no = (SELECT run_no FROM runs WHERE tenant = $1 AND run_id = $2)";
    let claimed =
        sqlx::query(sql).bind(tenant.as_str()).bind(run.as_str()).bind(int(least.0)).execute(&mut *db);
    if claimed.await?.rows_affected() == 0 {
        return Ok(None);
    }
    let sql = "SELECT r.*, s.session_id FROM run_rows AS r JOIN sessions AS s ON s.session_no = r.session_no
               WHERE r.tenant = $1 AND r.run_id = $2";
    let row = sqlx::query(sql).bind(tenant.as_str()).bind(run.as_str()).fetch_one(db).await?;
    Ok(Some(ClaimedRow { epoch: Epoch(rows::number(&row, "epoch")?), row: rows::run(&row)? }))
}

/// Stores declarations of tools. A later one of the same name replaces the earlier one.
pub(in crate::store::postgres) async fn save_tools(
    db: &mut PgConnection,
    tenant: &TenantId,
    tools: &[ToolRow],
) -> Result<(), Error> {
    let sql = "INSERT INTO tools (tenant, name, declaration, last_seen, terms, checksum)
               SELECT DISTINCT ON (v.name) $1, v.name, v.declaration, v.last_seen, v.terms, v.checksum
               FROM unnest($2::text[], $3::text[], $4::bigint[], $5::text[], $6::bigint[])
                   WITH ORDINALITY AS v (name, declaration, last_seen, terms, checksum, place)
               ORDER BY v.name, v.place DESC
               ON CONFLICT (tenant, name) DO UPDATE
               SET declaration = excluded.declaration, last_seen = excluded.last_seen, terms = excluded.terms,
                   checksum = excluded.checksum";
    let declarations: Vec<String> = tools.iter().map(|tool| text(&tool.declaration)).collect();
    let sum = |(tool, declaration): (&ToolRow, &String)| checksum::of_tool(tenant, tool, declaration);
    let checksums: Vec<i64> = tools.iter().zip(&declarations).map(sum).collect();
    sqlx::query(sql)
        .bind(tenant.as_str())
        .bind(tools.iter().map(|tool| clean(&tool.declaration.name).into_owned()).collect::<Vec<_>>())
        .bind(&declarations)
        .bind(tools.iter().map(|tool| int(tool.last_seen.0)).collect::<Vec<_>>())
        .bind(tools.iter().map(|tool| tool.terms.as_ref().map(text)).collect::<Vec<_>>())
        .bind(checksums)
        .execute(db)
        .await
        .map(|_| ())
}

/// Gives a host its id. `false`: it is another principal's.
pub(in crate::store::postgres) async fn claim_host(
    db: &mut PgConnection,
    claim: &HostClaim,
) -> Result<bool, Error> {
    let sql = "INSERT INTO hosts AS h (tenant, host, principal, last_seen) VALUES ($1, $2, $3, $4)
               ON CONFLICT (tenant, host) DO UPDATE
               SET principal = excluded.principal, last_seen = greatest(h.last_seen, excluded.last_seen)
               WHERE h.principal = excluded.principal OR h.last_seen < $5";
    let query = sqlx::query(sql).bind(claim.tenant.as_str()).bind(claim.host.as_str()).bind(&claim.principal);
    let done = query.bind(int(claim.at.0)).bind(int(claim.free_before.0)).execute(db).await?;
    Ok(done.rows_affected() > 0)
}

/// Notes when hosts were there, and forgets those that are gone for long.
pub(in crate::store::postgres) async fn see_hosts(
    db: &mut PgConnection,
    hosts: &[(TenantId, HostId)],
    at: Timestamp,
    free_before: Timestamp,
) -> Result<(), Error> {
    let sql = "UPDATE hosts AS h SET last_seen = greatest(h.last_seen, $3)
               FROM unnest($1::text[], $2::text[]) AS v (tenant, host)
               WHERE h.tenant = v.tenant AND h.host = v.host";
    sqlx::query(sql)
        .bind(hosts.iter().map(|(tenant, _)| tenant.as_str()).collect::<Vec<_>>())
        .bind(hosts.iter().map(|(_, host)| host.as_str()).collect::<Vec<_>>())
        .bind(int(at.0))
        .execute(&mut *db)
        .await?;
    let sql = "DELETE FROM hosts WHERE last_seen < $1";
    sqlx::query(sql).bind(int(free_before.0)).execute(db).await.map(|_| ())
}

/// Forgets a tool. `false`: there was none.
pub(in crate::store::postgres) async fn forget_tool(
    db: &mut PgConnection,
    tenant: &TenantId,
    name: &str,
) -> Result<bool, Error> {
    let sql = "DELETE FROM tools WHERE tenant = $1 AND name = $2";
    let done = sqlx::query(sql).bind(tenant.as_str()).bind(clean(name)).execute(db).await?;
    Ok(done.rows_affected() > 0)
}

/// Deletes a remembered rule. `false`: there was none.
pub(in crate::store::postgres) async fn delete_rule(
    db: &mut PgConnection,
    tenant: &TenantId,
    rule: &RuleId,
) -> Result<bool, Error> {
    let sql = "DELETE FROM remembered_rules WHERE tenant = $1 AND rule_id = $2";
    let done = sqlx::query(sql).bind(tenant.as_str()).bind(rule.as_str()).execute(db).await?;
    Ok(done.rows_affected() > 0)
}

/// Records a failed attempt of a job, and when the next one is due.
pub(in crate::store::postgres) async fn retry_job(
    db: &mut PgConnection,
    job: &JobId,
    due_at: Timestamp,
    error: &str,
) -> Result<(), Error> {
    let sql = "UPDATE jobs SET due_at = $4, attempts = attempts + 1, error = $5
               WHERE run_no = (SELECT run_no FROM runs WHERE tenant = $1 AND run_id = $2) AND kind = $3";
    of_job(sql, job).bind(int(due_at.0)).bind(clean(error)).execute(db).await.map(|_| ())
}

/// Deletes a job that is done or given up.
pub(in crate::store::postgres) async fn finish_job(db: &mut PgConnection, job: &JobId) -> Result<(), Error> {
    let sql = "DELETE FROM jobs
               WHERE run_no = (SELECT run_no FROM runs WHERE tenant = $1 AND run_id = $2) AND kind = $3";
    of_job(sql, job).execute(db).await.map(|_| ())
}

/// A query whose first three parameters are a job's key.
fn of_job<'q>(sql: &'static str, job: &'q JobId) -> Query<'q, Postgres, PgArguments> {
    sqlx::query(sql).bind(job.tenant.as_str()).bind(job.run.as_str()).bind(job.kind.to_string())
}

/// Writes a row, because only a write shows that writing works. The transaction of a replica has written its own row already,
/// and this one would be everybody's.
pub(in crate::store::postgres) async fn check(
    db: &mut PgConnection,
    server: ServerKind,
) -> Result<(), Error> {
    if server == ServerKind::Replica {
        return Ok(());
    }
    sqlx::query("UPDATE meta SET value = value + 1 WHERE key = 'checks'").execute(db).await.map(|_| ())
}

/// Begins an epoch, higher than any before it. Parked runs whose last event lies in the future, because the clock was set back,
/// are made due: their waits are measured anew. Not those of other replicas: their clocks are others.
pub(in crate::store::postgres) async fn begin_epoch(
    db: &mut PgConnection,
    server: ServerKind,
    now: Timestamp,
) -> Result<Epoch, Error> {
    let sql = "UPDATE meta SET value = value + 1 WHERE key = 'epoch' RETURNING value";
    let starts: i64 = sqlx::query(sql).fetch_one(&mut *db).await?.try_get("value")?;
    if server == ServerKind::Alone {
        let sql = "UPDATE run_states SET wake_at = $1 WHERE wake_at > $1 AND greatest(updated_at, last_event_at) > $1";
        sqlx::query(sql).bind(int(now.0)).execute(db).await?;
    }
    Ok(Epoch(starts.saturating_mul(START_EPOCHS).unsigned_abs()))
}

/// Gives jobs their tenant that a server of an earlier version has written without.
pub(in crate::store::postgres) async fn complete_jobs(db: &mut PgConnection) -> Result<(), Error> {
    let sql = "UPDATE jobs AS j SET tenant = r.tenant FROM runs AS r WHERE r.run_no = j.run_no AND j.tenant IS NULL";
    sqlx::query(sql).execute(db).await.map(|_| ())
}

/// The features that the database has used. Each part looks for one row and stops.
pub(in crate::store::postgres) async fn features_used(
    db: &mut PgConnection,
    server: ServerKind,
) -> Result<FeaturesUsed, Error> {
    if server == ServerKind::Replica {
        return Ok(FeaturesUsed::beside_others());
    }
    let sql = "SELECT EXISTS (SELECT 1 FROM steers) AS steers,
                      EXISTS (SELECT 1 FROM remembered_rules) AS rules,
                      EXISTS (SELECT 1 FROM run_states WHERE queue_no IS NOT NULL) AS queues";
    let row = sqlx::query(sql).fetch_one(db).await?;
    let (steers, rules) = (row.try_get("steers")?, row.try_get("rules")?);
    Ok(FeaturesUsed::of(Features { steers, rules, queues: row.try_get("queues")? }))
}

/// Takes a block of numbers for this owner. The numbers after these are free. The search index is told of the numbers of
/// documents, which are above those of earlier versions.
pub(in crate::store::postgres) async fn number_block(
    db: &mut PgConnection,
    owner: Owner,
) -> Result<LastNumbers, Error> {
    let sql = "WITH block AS MATERIALIZED (SELECT nextval('number_blocks') AS no),
               listed AS (
                   INSERT INTO search_blocks (first, until, upto, owner_no)
                   SELECT $1 + no * $2, $1 + (no + 1) * $2, $1 + no * $2, $3 FROM block)
               SELECT no FROM block";
    let query = sqlx::query(sql).bind(DOCUMENTS_FROM).bind(BLOCK_NUMBERS).bind(owner.no);
    let first = query.fetch_one(db).await?.try_get::<i64, _>("no")? * BLOCK_NUMBERS;
    Ok(LastNumbers { run: first, session: first, document: DOCUMENTS_FROM + first })
}
