//! The query of a full-text search.

use agentloop_core::id::{EntryNo, SessionId, TenantId};
use sqlx::sqlite::SqliteRow;
use sqlx::{Error, Row as _, SqlitePool};

use super::sessions::{StoredEntry, decoded, stored_entry};
use super::{all, rows};
use crate::store::search::Terms;
use crate::store::{SearchFilter, SearchHit, StoreError};

/// Hits of one search, at most.
const HITS_MAX: u32 = 100;

/// The best documents that pass the filter, each with the entry that it is shown as. That is the entry of the session
/// that was asked for, else the original one, else that of any fork.
///
/// All matching documents are ranked, and looked up in that order until there are enough. Each look-up goes by the numbers
/// of document and session, so its cost does not depend on how many sessions a tenant has. Going from a session's entries
/// to the index would cost much more: for each entry the index would count anew how rare the words are.
pub(in crate::store::sqlite) const SEARCH: &str = "
    WITH found AS MATERIALIZED (
        SELECT f.rowid AS search_no, f.rank AS rank
        FROM search.search_index AS f
        WHERE f.text MATCH ?1
          AND iif(?3 IS NULL,
              EXISTS (
                  SELECT 1 FROM session_entries AS o INDEXED BY session_entries_searched
                  CROSS JOIN sessions AS s ON s.session_no = o.session_no
                  WHERE o.search_no = f.rowid AND s.tenant = ?2 AND (?6 IS NULL OR s.created_by = ?6)),
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
           coalesce(e.version, k.version) AS version, coalesce(e.payload, k.payload) AS payload,
           iif(i.keep IS NULL, e.checksum, k.checksum) AS checksum, coalesce(r.model, k.model) AS model
    FROM found
    CROSS JOIN session_entries AS i INDEXED BY session_entries_searched
        ON i.search_no = found.search_no
       AND i.session_no = (
           SELECT o.session_no FROM session_entries AS o INDEXED BY session_entries_searched
           CROSS JOIN sessions AS s ON s.session_no = o.session_no
           WHERE o.search_no = found.search_no AND s.tenant = ?2 AND s.session_id = coalesce(?3, s.session_id)
             AND (?6 IS NULL OR s.created_by = ?6)
           ORDER BY o.owner IS NOT NULL OR o.keep IS NOT NULL, s.session_id LIMIT 1)
    CROSS JOIN sessions AS s ON s.session_no = i.session_no
    LEFT JOIN runs AS r ON i.keep IS NULL AND r.run_no = i.run_no
    LEFT JOIN run_events AS e ON i.keep IS NULL AND e.run_no = i.run_no AND e.seq = i.seq
    LEFT JOIN kept_events AS k ON k.keep = i.keep AND k.run_no = i.run_no AND k.seq = i.seq";

/// A search: its terms and its filter.
pub(in crate::store::sqlite) struct Search<'a> {
    tenant: &'a TenantId,
    terms: Terms,
    filter: &'a SearchFilter,
    limit: u32,
}

impl<'a> Search<'a> {
    /// `None`: the query has no words, so it finds nothing.
    pub(in crate::store::sqlite) fn new(
        tenant: &'a TenantId,
        query: &str,
        filter: &'a SearchFilter,
        limit: u32,
    ) -> Option<Self> {
        Some(Self { tenant, terms: Terms::of(query)?, filter, limit: limit.min(HITS_MAX) })
    }

    /// The best matches, unordered.
    ///
    /// # Errors
    /// SQL's own.
    pub(in crate::store::sqlite) async fn find(&self, db: &SqlitePool) -> Result<Vec<Found>, Error> {
        let sql = sqlx::query(SEARCH)
            .bind(self.terms.expression())
            .bind(self.tenant.as_str())
            .bind(self.filter.session.as_ref().map(SessionId::as_str))
            .bind(self.filter.not_session.as_ref().map(SessionId::as_str))
            .bind(self.limit)
            .bind(self.filter.created_by.as_deref());
        all(db, sql, found).await
    }

    /// The matches as hits, the best first; of equal ones the newest first. Damaged entries are no hits. They are apart, since
    /// the other sessions are not affected.
    pub(in crate::store::sqlite) fn hits(
        &self,
        found: Result<Vec<Found>, Error>,
    ) -> Result<Hits, StoreError> {
        let failed = |error| rows::failure(format_args!("search in {}", self.tenant), &error);
        let (mut hits, mut damaged) = (Vec::new(), Vec::new());
        for Found { session, stored, rank } in found.map_err(failed)? {
            let entry = stored.entry;
            match hit(self.tenant, &session, stored, rank, &self.terms) {
                Ok(hit) => hits.push(hit),
                Err(why) => damaged.push(DamagedHit { session, entry, why }),
            }
        }
        hits.sort_by(|a, b| b.score.total_cmp(&a.score).then_with(|| b.at.cmp(&a.at)));
        Ok(Hits { hits, damaged })
    }
}

/// A matching entry. A lower rank is a better match.
pub(in crate::store::sqlite) struct Found {
    session: SessionId,
    stored: StoredEntry,
    rank: f64,
}

fn found(row: &SqliteRow) -> Result<Found, Error> {
    Ok(Found {
        session: rows::session_id(row, "session_id")?,
        stored: stored_entry(row)?,
        rank: row.try_get("rank")?,
    })
}

/// What a search found.
pub(in crate::store::sqlite) struct Hits {
    pub(in crate::store::sqlite) hits: Vec<SearchHit>,
    pub(in crate::store::sqlite) damaged: Vec<DamagedHit>,
}

/// A match that cannot be shown because its entry is damaged.
pub(in crate::store::sqlite) struct DamagedHit {
    pub(in crate::store::sqlite) session: SessionId,
    pub(in crate::store::sqlite) entry: EntryNo,
    pub(in crate::store::sqlite) why: String,
}

fn hit(
    tenant: &TenantId,
    session: &SessionId,
    stored: StoredEntry,
    rank: f64,
    terms: &Terms,
) -> Result<SearchHit, String> {
    let row = decoded(tenant, stored)?;
    let message = row.content.message().ok_or("it is indexed but is not a message")?;
    let snippet = terms.snippet(&message.plain_text());
    Ok(SearchHit {
        session: session.clone(),
        entry: row.entry,
        role: message.role,
        snippet,
        run: row.run,
        at: row.at,
        score: -rank,
    })
}
