//! The built-in context source `recall`: messages of other sessions that match the prompt.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use agentloop_core::extension::SourceDeclaration;
use agentloop_core::message::Role;
use agentloop_core::time::Millis;
use async_trait::async_trait;

use crate::extension::{ContextItem, ContextRequest, ContextSource, ExtensionError};
use crate::store::{SearchFilter, SearchHit, Store, StoreError};

/// The most entries that a run is given.
const HITS_MAX: u32 = 5;
/// An entry with less than this share of the best entry's score is left out. It matches in common words only.
const SCORE_SHARE_MIN: f64 = 0.25;
/// The longest time for a search.
const TIMEOUT: Millis = Millis::secs(5);

/// Searches the store for the words of the prompt, outside the run's own session.
pub struct Recall {
    store: Arc<dyn Store>,
}

impl Recall {
    /// The name of this source in an agent's configuration.
    pub const NAME: &'static str = "recall";

    /// A source that searches this store.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store }
    }
}

#[async_trait]
impl ContextSource for Recall {
    fn declaration(&self) -> SourceDeclaration {
        SourceDeclaration { timeout: TIMEOUT, remembers: false }
    }

    async fn context(&self, request: ContextRequest) -> Result<Vec<ContextItem>, ExtensionError> {
        let own = request.run.state.session().cloned();
        // A caller is reminded of what it said itself, and of nothing of other callers.
        let created_by = match &own {
            Some(session) => {
                let row = self.store.session(&request.run.tenant, session).await.map_err(failure)?;
                row.and_then(|row| row.created_by)
            }
            None => None,
        };
        let filter = SearchFilter { session: None, not_session: own, created_by };
        let found = self.store.search(&request.run.tenant, &request.query, filter, HITS_MAX).await;
        let hits = found.map_err(failure)?;
        let best = hits.first().map_or(0.0, |hit| hit.score);
        Ok(hits.iter().filter(|hit| hit.score >= best * SCORE_SHARE_MIN).map(context_item).collect())
    }
}

fn context_item(hit: &SearchHit) -> ContextItem {
    let who = if hit.role == Role::Assistant { "Assistant" } else { "User" };
    let at = UNIX_EPOCH + Duration::from_millis(hit.at.0);
    let at = humantime::format_rfc3339_seconds(at);
    ContextItem {
        text: format!("{who}: {}", hit.snippet),
        origin: format!("session {}, entry {}, {at}", hit.session, hit.entry.0),
    }
}

fn failure(error: StoreError) -> ExtensionError {
    let retryable = matches!(error, StoreError::Unavailable { .. });
    ExtensionError::Failed { message: error.to_string(), retryable }
}
