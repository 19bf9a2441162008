//! The search: a query of the words that the index has.

use agentloop_core::id::TenantId;
use async_trait::async_trait;

use crate::store::postgres::PostgresStore;
use crate::store::postgres::{read, rows};
use crate::store::sql::search::EntrySearch;
use crate::store::support::write::closed;
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
        let Some(search) = EntrySearch::new(tenant, query, &filter, limit) else { return Ok(Vec::new()) };
        index.filled().await?;
        let _place = self.searching.acquire().await.map_err(|_| closed())?;
        let found = read::find(&search, &self.readers).await;
        let found = found.map_err(|error| rows::failure(format_args!("search in {tenant}"), &error))?;
        Ok(search.hits(found, &self.damaged))
    }
}
