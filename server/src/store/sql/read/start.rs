//! The query that a request to start a run begins with.

use agentloop_core::id::{EntryNo, RunId, SessionId, TenantId};
use sqlx::Error;

use super::one;
use crate::store::sql::column::{SqlRow, live_run, number_if_any, owned_text_if_any, run_id_if_any};
use crate::store::sql::query::Query;
use crate::store::sql::reader::{Dialect, SqlReader};
use crate::store::{SessionToEnter, StartIds, StartView, StoreError};

/// The state of a run that is to start, and of its session, at one time.
pub(in crate::store) async fn start_view<R: SqlReader>(
    db: &R,
    tenant: &TenantId,
    ids: StartIds<'_>,
) -> Result<StartView, StoreError> {
    // No run and no session has the empty id. With NULL in its place, PostgreSQL would plan each query of its own.
    let query = Query::new(R::Dialect::START_VIEW)
        .with(tenant.as_str())
        .with(ids.run.map_or("", RunId::as_str))
        .with(ids.session.map_or("", SessionId::as_str));
    one(db, query, view)
        .await
        .and_then(|view| view.ok_or(Error::RowNotFound))
        .map_err(|error| R::failure(format_args!("a run that is to start in {tenant}"), &error))
}

fn view(row: &impl SqlRow) -> Result<StartView, Error> {
    let session = match number_if_any(row, "last_entry")? {
        None => None,
        Some(last_entry) => Some(SessionToEnter {
            created_by: owned_text_if_any(row, "created_by")?,
            last_entry: EntryNo(last_entry),
            live_run: live_run(row)?,
            next_queued: run_id_if_any(row, "next_queued")?,
        }),
    };
    Ok(StartView { is_known: row.flag("is_known")?, session, has_rules: row.flag("has_rules")? })
}
