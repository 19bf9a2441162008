//! A full-text search, and its matches as hits.

use agentloop_core::id::{SessionId, TenantId};

use super::entry::{StoredEntry, decoded};
use crate::store::support::damaged::DamagedSessions;
use crate::store::support::search_terms::Terms;
use crate::store::{SearchFilter, SearchHit};

/// Hits of one search, at most.
const HITS_MAX: u32 = 100;

/// A search: its terms and its filter.
pub(in crate::store) struct EntrySearch<'a> {
    pub(in crate::store) tenant: &'a TenantId,
    pub(in crate::store) terms: Terms,
    pub(in crate::store) filter: &'a SearchFilter,
    pub(in crate::store) limit: u32,
}

impl<'a> EntrySearch<'a> {
    /// `None`: the query has no words, so it finds nothing.
    pub(in crate::store) fn new(
        tenant: &'a TenantId,
        query: &str,
        filter: &'a SearchFilter,
        limit: u32,
    ) -> Option<Self> {
        Some(Self { tenant, terms: Terms::of(query)?, filter, limit: limit.min(HITS_MAX) })
    }

    /// The matches as hits, the best first; of equal ones the newest first. Damaged entries are no hits. They are noted and
    /// logged, since the other sessions are not affected.
    pub(in crate::store) fn hits(&self, found: Vec<Found>, damaged: &DamagedSessions) -> Vec<SearchHit> {
        let mut hits = Vec::new();
        for Found { session, stored, score } in found {
            let entry = stored.entry;
            match hit(self.tenant, &session, stored, score, &self.terms) {
                Ok(hit) => hits.push(hit),
                Err(why) => {
                    tracing::error!(
                        session.id = %session, entry = entry.0, why,
                        "a damaged entry is left out of a search"
                    );
                    damaged.note(self.tenant, &session);
                }
            }
        }
        hits.sort_by(|a, b| b.score.total_cmp(&a.score).then_with(|| b.at.cmp(&a.at)));
        hits
    }
}

/// A matching entry. A higher score is a better match.
pub(in crate::store) struct Found {
    pub(in crate::store) session: SessionId,
    pub(in crate::store) stored: StoredEntry,
    pub(in crate::store) score: f64,
}

fn hit(
    tenant: &TenantId,
    session: &SessionId,
    stored: StoredEntry,
    score: f64,
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
        score,
    })
}
