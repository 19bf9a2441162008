//! Queries for queues of sessions.

use agentloop_core::id::{RunId, RunKey, SessionId, TenantId};
use agentloop_core::run::event::Event;
use agentloop_core::tool::Digest;
use sqlx::postgres::PgRow;

use super::{all, one, rows, runs};
use crate::store::append::ORDINARY_QUEUE_NO;
use crate::store::codec;
use crate::store::postgres::reader_pool::ReaderPool;
use crate::store::postgres::scope::Scope;
use crate::store::{Interrupted, StoreError};

const NEXT_QUEUED: &str = "
    SELECT r.run_id FROM sessions AS s
    JOIN run_states AS t ON t.session_no = s.session_no
    JOIN runs AS r ON r.run_no = t.run_no
    WHERE s.tenant = $1 AND s.session_id = $2 AND t.queue_no IS NOT NULL AND s.live_run_no IS NULL
    ORDER BY t.queue_no LIMIT 1";

const QUEUE_HEADS: &str = "
    SELECT r.tenant, r.run_id FROM run_states AS t
    JOIN runs AS r ON r.run_no = t.run_no
    JOIN sessions AS s ON s.session_no = t.session_no
    WHERE t.queue_no IS NOT NULL AND s.live_run_no IS NULL AND ($1::bigint[] IS NULL OR t.shard = ANY ($1))
      AND NOT EXISTS (
          SELECT 1 FROM run_states AS before
          WHERE before.session_no = t.session_no
            AND before.queue_no IS NOT NULL AND before.queue_no < t.queue_no)
    ORDER BY t.session_no";

/// The number is [`ORDINARY_QUEUE_NO`]: statements are constants.
const INTERRUPTED: &str = "
    SELECT r.tenant, live.run_id AS live_run, r.run_id FROM run_states AS t
    JOIN runs AS r ON r.run_no = t.run_no
    JOIN sessions AS s ON s.session_no = t.session_no
    JOIN runs AS live ON live.run_no = s.live_run_no
    WHERE t.queue_no IS NOT NULL AND t.queue_no < 1099511627776 AND ($1::bigint[] IS NULL OR t.shard = ANY ($1))
      AND NOT EXISTS (
          SELECT 1 FROM run_states AS before
          WHERE before.session_no = t.session_no
            AND before.queue_no IS NOT NULL AND before.queue_no < t.queue_no)";

const INTERRUPTED_IN: &str = "
    SELECT r.tenant, live.run_id AS live_run, r.run_id FROM sessions AS s
    JOIN runs AS live ON live.run_no = s.live_run_no
    JOIN run_states AS t ON t.session_no = s.session_no
    JOIN runs AS r ON r.run_no = t.run_no
    WHERE s.tenant = $1 AND s.session_id = $2 AND t.queue_no IS NOT NULL AND t.queue_no < 1099511627776
    ORDER BY t.queue_no LIMIT 1";

const _: () = assert!(ORDINARY_QUEUE_NO == 1_099_511_627_776, "the number in the statements");

/// The event is taken apart here: PostgreSQL does not read every text that JSON may have.
const STEERED: &str = "
    SELECT r.run_id, e.seq, e.at, e.status, e.version, e.payload, e.checksum
    FROM steers AS t
    JOIN runs AS r ON r.run_no = t.run_no
    JOIN run_events AS e ON e.run_no = t.run_no AND e.seq = t.seq
    WHERE t.tenant = $1 AND t.request_id = $2";

/// The run that may enter this session now.
pub(in crate::store::postgres) async fn next_queued(
    db: &ReaderPool,
    tenant: &TenantId,
    session: &SessionId,
) -> Result<Option<RunId>, StoreError> {
    let query = sqlx::query(NEXT_QUEUED).bind(tenant.as_str()).bind(session.as_str());
    one(db, query, |row| rows::run_id(row, "run_id"))
        .await
        .map_err(|error| rows::failure(format_args!("queue of {tenant}/{session}"), &error))
}

/// The runs that may enter their sessions now, one for each session.
pub(in crate::store::postgres) async fn queue_heads(
    db: &ReaderPool,
    scope: &Scope,
) -> Result<Vec<RunKey>, StoreError> {
    let found = all(db, sqlx::query(QUEUE_HEADS).bind(scope.listed()), runs::key).await;
    found.map_err(|error| rows::failure("queues", &error))
}

/// Every live run that a queued run interrupts.
pub(in crate::store::postgres) async fn interrupted(
    db: &ReaderPool,
    scope: &Scope,
) -> Result<Vec<Interrupted>, StoreError> {
    let found = all(db, sqlx::query(INTERRUPTED).bind(scope.listed()), row).await;
    found.map_err(|error| rows::failure("interrupted runs", &error))
}

/// The live run of one session, if a queued run interrupts it.
pub(in crate::store::postgres) async fn interrupted_in(
    db: &ReaderPool,
    tenant: &TenantId,
    session: &SessionId,
) -> Result<Option<Interrupted>, StoreError> {
    let query = sqlx::query(INTERRUPTED_IN).bind(tenant.as_str()).bind(session.as_str());
    one(db, query, row)
        .await
        .map_err(|error| rows::failure(format_args!("queue of {tenant}/{session}"), &error))
}

fn row(row: &PgRow) -> Result<Interrupted, sqlx::Error> {
    Ok(Interrupted {
        tenant: rows::tenant_id(row, "tenant")?,
        run: rows::run_id(row, "live_run")?,
        by: rows::run_id(row, "run_id")?,
    })
}

/// The run that a request handed its messages to, and the digest of the request.
pub(in crate::store::postgres) async fn steered(
    db: &ReaderPool,
    tenant: &TenantId,
    id: &RunId,
) -> Result<Option<(RunId, Digest)>, StoreError> {
    let query = sqlx::query(STEERED).bind(tenant.as_str()).bind(id.as_str());
    let found = one(db, query, |row| Ok((rows::run_id(row, "run_id")?, rows::event(row)?)))
        .await
        .map_err(|error| rows::failure(format_args!("request {tenant}/{id}"), &error))?;
    let Some((run, event)) = found else { return Ok(None) };
    match codec::decode(tenant, &run, &event)?.event {
        Event::InputHeld { steer: Some(steer), .. } => Ok(Some((run, steer.digest))),
        _ => Err(StoreError::Corrupt { what: format!("event {tenant}/{run}/{}: steers nothing", event.seq) }),
    }
}
