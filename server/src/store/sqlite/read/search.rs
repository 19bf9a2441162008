//! Full-text search.

use agentloop_core::id::{SessionId, TenantId};
use sqlx::sqlite::SqliteRow;
use sqlx::{Error, Row as _, SqlitePool};

use super::sessions::{Place, entry, place};
use super::{all, rows};
use crate::store::search::Terms;
use crate::store::{SearchFilter, SearchHit, StoreError};

/// Hits of one search.
const HITS_MAX: u32 = 100;

/// The best documents that the filter lets through, each with the entry that it is shown as: that of the session that
/// was asked for, else the one that is no fork's, else any fork's.
///
/// Every document that matches is ranked, and looked up until there are enough. So each is looked up by its number and
/// that of the session: whoever has few sessions or many, or asks for one, pays about the same. To go from a session's
/// entries to the index would cost much more, as for each of them the index counts anew how rare the words are.
pub(in crate::store::sqlite) const SEARCH: &str = "
    WITH found AS MATERIALIZED (
        SELECT f.rowid AS search_no, f.rank AS rank
        FROM search_index AS f
        WHERE f.text MATCH ?1
          AND iif(?3 IS NULL,
              EXISTS (
                  SELECT 1 FROM session_entries AS o INDEXED BY session_entries_searched
                  CROSS JOIN sessions AS s ON s.session_no = o.session_no
                  WHERE o.search_no = f.rowid AND s.tenant = ?2),
              EXISTS (
                  SELECT 1 FROM session_entries AS o INDEXED BY session_entries_searched
                  WHERE o.search_no = f.rowid
                    AND o.session_no = (SELECT session_no FROM sessions WHERE tenant = ?2 AND session_id = ?3)))
          AND NOT EXISTS (
              SELECT 1 FROM session_entries AS o INDEXED BY session_entries_searched
              WHERE o.search_no = f.rowid
                AND o.session_no = (SELECT session_no FROM sessions WHERE tenant = ?2 AND session_id = ?4))
        ORDER BY f.rank LIMIT ?5)
    SELECT found.rank, s.session_id, i.entry_no, coalesce(r.run_id, k.run_id) AS run_id, i.seq,
           coalesce(e.at, k.at) AS at, coalesce(e.status, k.status) AS status,
           coalesce(e.version, k.version) AS version, coalesce(e.payload, k.payload) AS payload
    FROM found
    CROSS JOIN session_entries AS i INDEXED BY session_entries_searched
        ON i.search_no = found.search_no
       AND i.session_no = (
           SELECT o.session_no FROM session_entries AS o INDEXED BY session_entries_searched
           CROSS JOIN sessions AS s ON s.session_no = o.session_no
           WHERE o.search_no = found.search_no AND s.tenant = ?2 AND s.session_id = coalesce(?3, s.session_id)
           ORDER BY o.owner IS NOT NULL OR o.keep IS NOT NULL, s.session_id LIMIT 1)
    CROSS JOIN sessions AS s ON s.session_no = i.session_no
    LEFT JOIN runs AS r ON i.keep IS NULL AND r.run_no = i.run_no
    LEFT JOIN run_events AS e ON i.keep IS NULL AND e.run_no = i.run_no AND e.seq = i.seq
    LEFT JOIN kept_events AS k ON k.keep = i.keep AND k.run_no = i.run_no AND k.seq = i.seq";

/// The entries that fit best, the best first.
pub(in crate::store::sqlite) async fn search(
    db: &SqlitePool,
    tenant: &TenantId,
    query: &str,
    filter: &SearchFilter,
    limit: u32,
) -> Result<Vec<SearchHit>, StoreError> {
    let Some(terms) = Terms::of(query) else { return Ok(Vec::new()) };
    let sql = sqlx::query(SEARCH)
        .bind(terms.expression())
        .bind(tenant.as_str())
        .bind(filter.session.as_ref().map(SessionId::as_str))
        .bind(filter.not_session.as_ref().map(SessionId::as_str))
        .bind(limit.min(HITS_MAX));
    let mut found = all(db, sql, found)
        .await
        .map_err(|error| rows::failure(format_args!("search in {tenant}"), &error))?
        .into_iter()
        .map(|found| hit(tenant, found, &terms))
        .collect::<Result<Vec<_>, _>>()?;
    found.sort_by(|a, b| b.score.total_cmp(&a.score).then_with(|| b.at.cmp(&a.at)));
    Ok(found)
}

/// An entry that was found, and how badly it fits.
struct Found {
    session: SessionId,
    place: Place,
    rank: f64,
}

fn found(row: &SqliteRow) -> Result<Found, Error> {
    Ok(Found {
        session: rows::session_id(row, "session_id")?,
        place: place(row)?,
        rank: row.try_get("rank")?,
    })
}

fn hit(tenant: &TenantId, found: Found, terms: &Terms) -> Result<SearchHit, StoreError> {
    let Found { session, place, rank } = found;
    let row = entry(tenant, place)?;
    let Some(message) = row.content.message() else {
        let what = format!("entry {} of {tenant}/{session}: is indexed and no message", row.entry.0);
        return Err(StoreError::Corrupt { what });
    };
    let snippet = terms.snippet(&message.plain_text());
    Ok(SearchHit {
        session,
        entry: row.entry,
        role: message.role,
        snippet,
        run: row.run,
        at: row.at,
        score: -rank,
    })
}
