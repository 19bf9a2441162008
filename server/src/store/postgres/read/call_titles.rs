//! The query for titles of tool calls.

use agentloop_core::id::{SessionId, TenantId};

use super::{all, rows};
use crate::store::call_titles::{self, EVENTS_BEHIND};
use crate::store::number::int;
use crate::store::postgres::reader_pool::ReaderPool;
use crate::store::{CallTitles, EntrySpan, StoreError};

/// The proposals of calls between the events of a session's entries, and shortly behind the last one of each run. Journals that
/// were deleted while forks share their entries are not there. The kind comes first in each payload.
const CALL_TITLES: &str = "
    WITH spans AS (
        SELECT run_no, seq,
               CASE WHEN lead(run_no) OVER stretch = run_no THEN lead(seq) OVER stretch ELSE seq + $5 + 1 END
                   AS upto
        FROM session_entries
        WHERE session_no = (SELECT session_no FROM sessions WHERE tenant = $1 AND session_id = $2)
          AND entry_no > $3 AND entry_no <= $4 AND keep IS NULL
        WINDOW stretch AS (ORDER BY entry_no))
    SELECT r.run_id, e.seq, e.at, e.status, e.version, e.payload, e.checksum
    FROM spans
    JOIN runs AS r ON r.run_no = spans.run_no
    JOIN run_events AS e ON e.run_no = spans.run_no AND e.seq > spans.seq AND e.seq < spans.upto
    WHERE e.payload LIKE '{\"kind\":\"call\\_proposed\"%'";

/// Titles of the calls that were proposed between these entries.
pub(in crate::store::postgres) async fn call_titles(
    db: &ReaderPool,
    tenant: &TenantId,
    session: &SessionId,
    span: EntrySpan,
) -> Result<CallTitles, StoreError> {
    let query = sqlx::query(CALL_TITLES).bind(tenant.as_str()).bind(session.as_str());
    let query = query.bind(int(span.after.0)).bind(int(span.upto.0)).bind(i64::from(EVENTS_BEHIND));
    let found = all(db, query, |row| Ok((rows::run_id(row, "run_id")?, rows::event(row)?)))
        .await
        .map_err(|error| rows::failure(format_args!("titles of calls of {tenant}/{session}"), &error))?;
    Ok(call_titles::titles(tenant, found))
}
