//! The query that a request to start a run begins with. One query is less work than five, each of which is a
//! trip to the database.

use agentloop_core::id::{EntryNo, RunId, SessionId, TenantId};
use sqlx::Error;

use crate::store::postgres::connect::readers::Readers;
use crate::store::sql::column::{SqlRow, live_run, number_if_any, owned_text_if_any, run_id_if_any};
use crate::store::sql::query::Query;
use crate::store::sql::read::one;
use crate::store::sql::reader::SqlReader as _;
use crate::store::{SessionToEnter, StartIds, StartView, StoreError};

/// One row. `$1` is the tenant, `$2` the run and `$3` the session.
const START_VIEW: &str = "
    SELECT EXISTS (SELECT 1 FROM run_rows WHERE tenant = $1 AND run_id = $2)
           OR EXISTS (SELECT 1 FROM steers WHERE tenant = $1 AND request_id = $2) AS is_known,
           EXISTS (SELECT 1 FROM remembered_rules WHERE tenant = $1 AND session_id IS NULL)
           OR EXISTS (SELECT 1 FROM remembered_rules WHERE tenant = $1 AND session_id = $3) AS has_rules,
           s.created_by, s.last_entry, live.run_id AS live_run,
           (SELECT r.run_id FROM run_states AS t JOIN runs AS r ON r.run_no = t.run_no
            WHERE t.session_no = s.session_no AND t.queue_no IS NOT NULL AND s.live_run_no IS NULL
            ORDER BY t.queue_no LIMIT 1) AS next_queued
    FROM (SELECT 1) AS one
    LEFT JOIN sessions AS s ON s.tenant = $1 AND s.session_id = $3
    LEFT JOIN runs AS live ON live.run_no = s.live_run_no";

/// The state of a run that is to start, and of its session, at one time.
pub(in crate::store::postgres) async fn start_view(
    db: &Readers,
    tenant: &TenantId,
    ids: StartIds<'_>,
) -> Result<StartView, StoreError> {
    // No run and no session has the empty id. With NULL in its place, PostgreSQL would plan each query of its own.
    let query = Query::new(START_VIEW)
        .with(tenant.as_str())
        .with(ids.run.map_or("", RunId::as_str))
        .with(ids.session.map_or("", SessionId::as_str));
    one(db, query, view)
        .await
        .and_then(|view| view.ok_or(Error::RowNotFound))
        .map_err(|error| Readers::failure(format_args!("a run that is to start in {tenant}"), &error))
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
    let rules = (!row.flag("has_rules")?).then(Vec::new);
    Ok(StartView { is_blind: false, is_known: row.flag("is_known")?, session, rules })
}
