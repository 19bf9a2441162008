//! The search: a query of the words that the index has.

use agentloop_core::id::TenantId;
use async_trait::async_trait;

use crate::store::postgres::PostgresStore;
use crate::store::postgres::read::{self, DamagedHit, Hits};
use crate::store::{SearchFilter, SearchHit, SearchStore, StoreError};

#[async_trait]
impl SearchStore for PostgresStore {
    async fn search(
        &self,
        tenant: &TenantId,
        query: &str,
        filter: SearchFilter,
        limit: u32,
    ) -> Result<Vec<SearchHit>, StoreError> {
        let Some(index) = &self.index else { return Err(StoreError::SearchOff) };
        let Some(search) = read::Search::new(tenant, query, &filter, limit) else { return Ok(Vec::new()) };
        index.filled().await?;
        let Hits { hits, damaged } = search.hits(self.readers.in_time(search.find(&self.readers)).await?)?;
        for DamagedHit { session, entry, why } in damaged {
            tracing::error!(session.id = %session, entry = entry.0, why, "a damaged entry is left out of a search");
            self.damaged.note(tenant, &session);
        }
        Ok(hits)
    }
}
