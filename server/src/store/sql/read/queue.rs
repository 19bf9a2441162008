//! Queries for queues of sessions.

use agentloop_core::id::{RunId, RunKey, SessionId, TenantId};
use agentloop_core::run::event::Event;
use agentloop_core::tool::Digest;
use sqlx::Error;

use super::{all, one, runs};
use crate::store::sql::column::{SqlRow, run_id, tenant_id};
use crate::store::sql::query::Query;
use crate::store::sql::reader::{Dialect, SqlReader};
use crate::store::sql::row::event;
use crate::store::support::append::ORDINARY_QUEUE_NO;
use crate::store::support::codec;
use crate::store::{Interrupted, StoreError};

const _: () = assert!(ORDINARY_QUEUE_NO == 1_099_511_627_776, "the number in the statements of the dialects");

/// The event is decoded here: no database reads every text that JSON may have.
pub(in crate::store) const STEERED: &str = "
    SELECT r.run_id, e.seq, e.at, e.status, e.version, e.payload, e.checksum
    FROM steers AS t
    JOIN runs AS r ON r.run_no = t.run_no
    JOIN run_events AS e ON e.run_no = t.run_no AND e.seq = t.seq
    WHERE t.tenant = $1 AND t.request_id = $2";

/// The run that may enter this session now.
pub(in crate::store) async fn next_queued<R: SqlReader>(
    db: &R,
    tenant: &TenantId,
    session: &SessionId,
) -> Result<Option<RunId>, StoreError> {
    let query = Query::new(R::Dialect::NEXT_QUEUED).with(tenant.as_str()).with(session.as_str());
    one(db, query, |row| run_id(row, "run_id"))
        .await
        .map_err(|error| R::failure(format_args!("queue of {tenant}/{session}"), &error))
}

/// True if any run is in a queue.
pub(in crate::store) async fn any_queued<R: SqlReader>(db: &R) -> Result<bool, StoreError> {
    let found = one(db, Query::new(R::Dialect::ANY_QUEUED), |row| row.flag("queues")).await;
    Ok(found.map_err(|error| R::failure("queues", &error))?.unwrap_or(true))
}

/// The runs that may enter their sessions now, one for each session.
pub(in crate::store) async fn queue_heads<R: SqlReader>(db: &R) -> Result<Vec<RunKey>, StoreError> {
    let found = all(db, db.in_scope(Query::new(R::Dialect::QUEUE_HEADS)), runs::key).await;
    found.map_err(|error| R::failure("queues", &error))
}

/// Every live run that a queued run interrupts.
pub(in crate::store) async fn interrupted<R: SqlReader>(db: &R) -> Result<Vec<Interrupted>, StoreError> {
    let found = all(db, db.in_scope(Query::new(R::Dialect::INTERRUPTED)), row).await;
    found.map_err(|error| R::failure("interrupted runs", &error))
}

/// The live run of one session, if a queued run interrupts it.
pub(in crate::store) async fn interrupted_in<R: SqlReader>(
    db: &R,
    tenant: &TenantId,
    session: &SessionId,
) -> Result<Option<Interrupted>, StoreError> {
    let query = Query::new(R::Dialect::INTERRUPTED_IN).with(tenant.as_str()).with(session.as_str());
    one(db, query, row).await.map_err(|error| R::failure(format_args!("queue of {tenant}/{session}"), &error))
}

fn row(row: &impl SqlRow) -> Result<Interrupted, Error> {
    Ok(Interrupted {
        tenant: tenant_id(row, "tenant")?,
        run: run_id(row, "live_run")?,
        by: run_id(row, "run_id")?,
    })
}

/// The run that a request handed its messages to, and the digest of the request.
pub(in crate::store) async fn steered<R: SqlReader>(
    db: &R,
    tenant: &TenantId,
    id: &RunId,
) -> Result<Option<(RunId, Digest)>, StoreError> {
    let query = Query::new(STEERED).with(tenant.as_str()).with(id.as_str());
    let found = one(db, query, |row| Ok((run_id(row, "run_id")?, event(row)?)))
        .await
        .map_err(|error| R::failure(format_args!("request {tenant}/{id}"), &error))?;
    let Some((run, event)) = found else { return Ok(None) };
    match codec::decode(tenant, &run, &event)?.event {
        Event::MessageHeld { steer: Some(steer), .. } => Ok(Some((run, steer.digest))),
        _ => Err(StoreError::Corrupt { what: format!("event {tenant}/{run}/{}: steers nothing", event.seq) }),
    }
}
