//! The query for titles of tool calls.

use agentloop_core::id::{SessionId, TenantId};

use super::all;
use crate::store::sql::column::run_id;
use crate::store::sql::query::Query;
use crate::store::sql::reader::{Dialect, SqlReader};
use crate::store::sql::row::event;
use crate::store::support::call_titles::{self, EVENTS_BEHIND};
use crate::store::support::number::int;
use crate::store::{CallTitles, EntrySpan, StoreError};

/// Titles of the calls that were proposed between these entries.
pub(in crate::store) async fn call_titles<R: SqlReader>(
    db: &R,
    tenant: &TenantId,
    session: &SessionId,
    span: EntrySpan,
) -> Result<CallTitles, StoreError> {
    let query = Query::new(R::Dialect::CALL_TITLES).with(tenant.as_str()).with(session.as_str());
    let query = query.with(int(span.after.0)).with(int(span.upto.0)).with(EVENTS_BEHIND);
    let found = all(db, query, |row| Ok((run_id(row, "run_id")?, event(row)?)))
        .await
        .map_err(|error| R::failure(format_args!("titles of calls of {tenant}/{session}"), &error))?;
    Ok(call_titles::titles(tenant, found))
}
