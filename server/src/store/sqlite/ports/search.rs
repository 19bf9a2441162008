//! The search: a query of the index, in its own file.

use agentloop_core::id::TenantId;
use async_trait::async_trait;

use crate::store::sqlite::SqliteStore;
use crate::store::sqlite::index;
use crate::store::sqlite::read::{self, DamagedHit, Hits};
use crate::store::{SearchFilter, SearchHit, SearchStore, StoreError};

#[async_trait]
impl SearchStore for SqliteStore {
    async fn search(
        &self,
        tenant: &TenantId,
        query: &str,
        filter: SearchFilter,
        limit: u32,
    ) -> Result<Vec<SearchHit>, StoreError> {
        let Some(index) = &self.index else { return Err(StoreError::SearchOff) };
        let Some(search) = read::Search::new(tenant, query, &filter, limit) else { return Ok(Vec::new()) };
        let searchers = index.filled().await?;
        let mut found = search.find(&searchers.pool).await;
        if let Err(error) = &found
            && index::file::is_damage(error)
        {
            tracing::warn!(%error, "the search index is damaged; it is deleted and filled again");
            index.is_damaged(&searchers).await;
            found = search.find(&index.filled().await?.pool).await;
        }
        let Hits { hits, damaged } = search.hits(found)?;
        for DamagedHit { session, entry, why } in damaged {
            tracing::error!(session.id = %session, entry = entry.0, why, "a damaged entry is left out of a search");
            self.damaged.note(tenant, &session);
        }
        Ok(hits)
    }
}
