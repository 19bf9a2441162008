//! The search: a query of the index, in its own file.

use agentloop_core::id::TenantId;
use async_trait::async_trait;

use crate::store::sql::search::EntrySearch;
use crate::store::sqlite::SqliteStore;
use crate::store::sqlite::{index, read, rows};
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
        let Some(search) = EntrySearch::new(tenant, query, &filter, limit) else { return Ok(Vec::new()) };
        let searchers = index.filled().await?;
        let mut found = read::find(&search, &searchers.pool).await;
        if let Err(error) = &found
            && index::file::is_damage(error)
        {
            tracing::warn!(%error, "the search index is damaged; it is deleted and filled again");
            index.report_damage(&searchers).await;
            found = read::find(&search, &index.filled().await?.pool).await;
        }
        let found = found.map_err(|error| rows::failure(format_args!("search in {tenant}"), &error))?;
        Ok(search.hits(found, &self.damaged))
    }
}
