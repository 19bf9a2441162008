//! The query of a full-text search.

use agentloop_core::id::SessionId;
use sqlx::postgres::PgRow;
use sqlx::{Error, Row as _};

use super::rows;
use crate::store::postgres::connect::readers::Readers;
use crate::store::postgres::words;
use crate::store::sql::entry::stored_entry;
use crate::store::sql::query::Query;
use crate::store::sql::read::all;
use crate::store::sql::search::{EntrySearch, Found};

/// Documents that are ranked: the newest that pass the filter. SQLite has the same bound.
const RANKED_MAX: u32 = 50_000;

/// The best documents that pass the filter, each with one of its entries: the one of the session that was requested, else the
/// original one, else that of any fork. A short text ranks above a long one with the same words.
/// To rank a document costs more than to find it, so a word that very many have is ranked in the newest `$7` of them.
const SEARCH: &str = "
    WITH wanted AS MATERIALIZED (SELECT to_tsquery('agentloop', $1) AS query),
    of AS MATERIALIZED (
        SELECT (SELECT session_no FROM sessions WHERE tenant = $2 AND session_id = $3) AS session_no,
               (SELECT session_no FROM sessions WHERE tenant = $2 AND session_id = $4) AS not_session_no),
    matching AS MATERIALIZED (
        SELECT d.search_no FROM wanted, of, search_documents AS d
        WHERE d.words @@ wanted.query
          AND EXISTS (
              SELECT 1 FROM session_entries AS o
              JOIN sessions AS s ON s.session_no = o.session_no
              WHERE o.search_no = d.search_no AND s.tenant = $2
                AND ($3::text IS NULL OR o.session_no = of.session_no)
                AND ($6::text IS NULL OR $3::text IS NOT NULL OR s.created_by = $6))
          AND NOT EXISTS (
              SELECT 1 FROM session_entries AS o
              WHERE o.search_no = d.search_no AND o.session_no = of.not_session_no)
        ORDER BY d.search_no DESC LIMIT $7),
    found AS MATERIALIZED (
        SELECT d.search_no, ts_rank(d.words, wanted.query, 1) AS rank
        FROM wanted, matching JOIN search_documents AS d ON d.search_no = matching.search_no
        ORDER BY rank DESC, d.search_no DESC LIMIT $5)
    SELECT found.rank::float8 AS rank, s.session_id, i.entry_no, coalesce(r.run_id, k.run_id) AS run_id, i.seq,
           coalesce(e.at, k.at) AS at, coalesce(e.status, k.status) AS status,
           coalesce(e.version, k.version) AS version, coalesce(e.payload, k.payload) AS payload,
           CASE WHEN i.keep IS NULL THEN e.checksum ELSE k.checksum END AS checksum,
           coalesce(r.model, k.model) AS model
    FROM found
    CROSS JOIN LATERAL (
        SELECT o.* FROM session_entries AS o
        JOIN sessions AS t ON t.session_no = o.session_no
        WHERE o.search_no = found.search_no AND t.tenant = $2 AND t.session_id = coalesce($3, t.session_id)
          AND ($6::text IS NULL OR t.created_by = $6)
        ORDER BY o.owner IS NOT NULL OR o.keep IS NOT NULL, t.session_id LIMIT 1) AS i
    JOIN sessions AS s ON s.session_no = i.session_no
    LEFT JOIN runs AS r ON i.keep IS NULL AND r.run_no = i.run_no
    LEFT JOIN run_events AS e ON i.keep IS NULL AND e.run_no = i.run_no AND e.seq = i.seq
    LEFT JOIN kept_events AS k ON k.keep = i.keep AND k.run_no = i.run_no AND k.seq = i.seq";

/// The best matches, unordered.
///
/// # Errors
/// SQL's own.
pub(in crate::store::postgres) async fn find(
    search: &EntrySearch<'_>,
    db: &Readers,
) -> Result<Vec<Found>, Error> {
    let Some(words) = words::query(&search.terms) else { return Ok(Vec::new()) };
    let query = Query::new(SEARCH)
        .with(words)
        .with(search.tenant.as_str())
        .with(search.filter.session.as_ref().map(SessionId::as_str))
        .with(search.filter.not_session.as_ref().map(SessionId::as_str))
        .with(search.limit)
        .with(search.filter.created_by.as_deref())
        .with(RANKED_MAX);
    all(db, query, found).await
}
/// A match. A higher rank is a better match.
fn found(row: &PgRow) -> Result<Found, Error> {
    let score = row.try_get::<f64, _>("rank")?;
    Ok(Found { session: rows::session_id(row, "session_id")?, stored: stored_entry(row)?, score })
}
