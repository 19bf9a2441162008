//! The ports that the store implements, one file each. The one for blobs is beside the blobs.

mod audit;
mod job;
mod journal;
mod queue;
mod request;
mod search;
mod session;
mod tools;

use async_trait::async_trait;

use crate::store::sql::read;
use crate::store::sqlite::SqliteStore;
use crate::store::sqlite::write::own::WriteOp;
use crate::store::{Store, StoreError};

#[async_trait]
impl Store for SqliteStore {
    async fn check(&self) -> Result<(), StoreError> {
        self.writes.done(WriteOp::Check).await?;
        read::check(&self.readers).await
    }
}
