//! The built-in context source `recall`: what was said about the matter in other sessions.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use agentloop_core::extension::SourceTerms;
use agentloop_core::message::Role;
use agentloop_core::time::Millis;
use async_trait::async_trait;

use crate::extension::{ContextItem, ContextRequest, ContextSource, ExtensionError};
use crate::store::{SearchFilter, SearchHit, Store, StoreError};

/// Entries that a run is given.
const HITS_MAX: u32 = 5;
/// An entry that fits this much worse than the best one is left out: it shares no more than common words.
const SCORE_SHARE_MIN: f64 = 0.25;
/// How long a search may take.
const TIMEOUT: Millis = Millis::secs(5);

/// Searches the store for the words of the prompt, outside of the run's own session.
pub struct Recall {
    store: Arc<dyn Store>,
}

impl Recall {
    /// What agents call it.
    pub const NAME: &'static str = "recall";

    /// In this store.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store }
    }
}

#[async_trait]
impl ContextSource for Recall {
    fn terms(&self) -> SourceTerms {
        SourceTerms { timeout: TIMEOUT, remembers: false }
    }

    async fn context(&self, request: ContextRequest) -> Result<Vec<ContextItem>, ExtensionError> {
        let filter = SearchFilter { session: None, not_session: request.run.state.session.clone() };
        let found = self.store.search(&request.run.tenant, &request.query, filter, HITS_MAX).await;
        let hits = found.map_err(failure)?;
        let best = hits.first().map_or(0.0, |hit| hit.score);
        Ok(hits.iter().filter(|hit| hit.score >= best * SCORE_SHARE_MIN).map(item).collect())
    }
}

fn item(hit: &SearchHit) -> ContextItem {
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
