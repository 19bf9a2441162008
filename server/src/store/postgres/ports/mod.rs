//! PostgreSQL's own part of the ports: the search, and the parts from which the others follow.

mod search;

use std::borrow::Cow;

use agentloop_core::cluster::shard::shard_of;
use agentloop_core::id::{Epoch, SessionId, TenantId};

use crate::store::postgres::PostgresStore;
use crate::store::postgres::connect::readers::Readers;
use crate::store::postgres::write::blobs::BlobOp;
use crate::store::postgres::write::own::WriteSender;
use crate::store::postgres::{read, rows};
use crate::store::sql::store::SqlStore;
use crate::store::support::damaged::{DamagedQuestions, DamagedSessions};
use crate::store::support::features_used::FeaturesUsed;
use crate::store::{StartIds, StartView, StoreError, UsageQuery, UsageRow};

impl SqlStore for PostgresStore {
    type Reader = Readers;
    type Own = BlobOp;

    const BLIND_WRITES_LOOK: bool = true;

    fn readers(&self) -> &Readers {
        &self.readers
    }

    fn writes(&self) -> &WriteSender {
        &self.writes
    }

    fn epoch(&self) -> Epoch {
        self.epoch
    }

    fn used(&self) -> &FeaturesUsed {
        &self.used
    }

    fn gains(&self) -> u64 {
        self.scope.additions()
    }

    fn damaged(&self) -> &DamagedSessions {
        &self.damaged
    }

    fn damaged_questions(&self) -> &DamagedQuestions {
        &self.damaged_questions
    }

    fn clean(text: &str) -> Cow<'_, str> {
        rows::clean(text)
    }

    fn is_own(&self, tenant: &TenantId, session: &SessionId) -> bool {
        self.scope.is_all() || self.scope.keeps(shard_of(tenant, session))
    }

    fn note_messages(&self, messages: usize) {
        if let Some(index) = &self.index {
            index.note(messages);
        }
    }

    /// The words went with the session, or with its row, without which no search finds them. The writing task has the rest of a
    /// large session deleted.
    async fn after_deletion(&self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn look_up_start(&self, tenant: &TenantId, ids: StartIds<'_>) -> Result<StartView, StoreError> {
        read::start_view(&self.readers, tenant, ids).await
    }

    async fn add_up(&self, tenant: &TenantId, query: &UsageQuery) -> Result<Vec<UsageRow>, StoreError> {
        let _turn = self.adding_up.lock().await;
        self.readers.in_time(read::usage(&self.readers, tenant, query)).await?
    }
}
