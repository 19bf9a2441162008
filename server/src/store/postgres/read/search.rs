//! The query of a full-text search.

use agentloop_core::id::{EntryNo, SessionId, TenantId};
use sqlx::postgres::PgRow;
use sqlx::{Error, PgPool, Row as _};

use super::sessions::{StoredEntry, decoded, stored_entry};
use super::{all, rows};
use crate::store::postgres::words;
use crate::store::search::Terms;
use crate::store::{SearchFilter, SearchHit, StoreError};

/// Hits of one search, at most.
const HITS_MAX: u32 = 100;

/// The best documents that pass the filter, each with the entry that it is shown as. That is the entry of the session
/// that was asked for, else the original one, else that of any fork. A short text ranks above a long one with the same words.
const SEARCH: &str = "
    WITH asked AS MATERIALIZED (SELECT to_tsquery('agentloop', $1) AS query),
    of AS MATERIALIZED (
        SELECT (SELECT session_no FROM sessions WHERE tenant = $2 AND session_id = $3) AS session_no,
               (SELECT session_no FROM sessions WHERE tenant = $2 AND session_id = $4) AS not_session_no),
    found AS MATERIALIZED (
        SELECT d.search_no, ts_rank(d.words, asked.query, 1) AS rank
        FROM asked, of, search_documents AS d
        WHERE d.words @@ asked.query
          AND EXISTS (
              SELECT 1 FROM session_entries AS o
              JOIN sessions AS s ON s.session_no = o.session_no
              WHERE o.search_no = d.search_no AND s.tenant = $2
                AND ($3::text IS NULL OR o.session_no = of.session_no)
                AND ($6::text IS NULL OR $3::text IS NOT NULL OR s.created_by = $6))
          AND NOT EXISTS (
              SELECT 1 FROM session_entries AS o
              WHERE o.search_no = d.search_no AND o.session_no = of.not_session_no)
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

/// A search: its terms and its filter.
pub(in crate::store::postgres) struct Search<'a> {
    tenant: &'a TenantId,
    terms: Terms,
    filter: &'a SearchFilter,
    limit: u32,
}

impl<'a> Search<'a> {
    /// `None`: the query has no words, so it finds nothing.
    pub(in crate::store::postgres) fn new(
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
    pub(in crate::store::postgres) async fn find(&self, db: &PgPool) -> Result<Vec<Found>, Error> {
        let sql = sqlx::query(SEARCH)
            .bind(words::query(&self.terms))
            .bind(self.tenant.as_str())
            .bind(self.filter.session.as_ref().map(SessionId::as_str))
            .bind(self.filter.not_session.as_ref().map(SessionId::as_str))
            .bind(i64::from(self.limit))
            .bind(self.filter.created_by.as_deref().map(rows::clean));
        all(db, sql, found).await
    }

    /// The matches as hits, the best first; of equal ones the newest first. Damaged entries are no hits. They are apart, since
    /// the other sessions are not affected.
    pub(in crate::store::postgres) fn hits(
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

/// A matching entry. A higher rank is a better match.
pub(in crate::store::postgres) struct Found {
    session: SessionId,
    stored: StoredEntry,
    rank: f64,
}

fn found(row: &PgRow) -> Result<Found, Error> {
    Ok(Found {
        session: rows::session_id(row, "session_id")?,
        stored: stored_entry(row)?,
        rank: row.try_get("rank")?,
    })
}

/// What a search found.
pub(in crate::store::postgres) struct Hits {
    pub(in crate::store::postgres) hits: Vec<SearchHit>,
    pub(in crate::store::postgres) damaged: Vec<DamagedHit>,
}

/// A match that cannot be shown because its entry is damaged.
pub(in crate::store::postgres) struct DamagedHit {
    pub(in crate::store::postgres) session: SessionId,
    pub(in crate::store::postgres) entry: EntryNo,
    pub(in crate::store::postgres) why: String,
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
        score: rank,
    })
}
