//! SQLite's own part of the ports: the search, and the parts from which the others follow.

mod search;

use std::borrow::Cow;

use agentloop_core::id::{Epoch, SessionId, TenantId};
use sqlx::SqlitePool;

use crate::store::sql::store::SqlStore;
use crate::store::sqlite::SqliteStore;
use crate::store::sqlite::read;
use crate::store::sqlite::write::own::{SqliteOp, WriteSender};
use crate::store::support::damaged::{DamagedQuestions, DamagedSessions};
use crate::store::support::features_used::FeaturesUsed;
use crate::store::{StartIds, StartView, StoreError, UsageQuery, UsageRow, start_in_parts};

impl SqlStore for SqliteStore {
    type Reader = SqlitePool;
    type Own = SqliteOp;

    /// There is no other server: this one knows which features were ever used.
    const BLIND_WRITES_LOOK: bool = false;

    fn readers(&self) -> &SqlitePool {
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

    /// A server alone owns everything from the start.
    fn gains(&self) -> u64 {
        0
    }

    fn damaged(&self) -> &DamagedSessions {
        &self.damaged
    }

    fn damaged_questions(&self) -> &DamagedQuestions {
        &self.damaged_questions
    }

    fn clean(text: &str) -> Cow<'_, str> {
        text.into()
    }

    fn is_own(&self, _tenant: &TenantId, _session: &SessionId) -> bool {
        true
    }

    fn note_messages(&self, messages: usize) {
        if let Some(index) = &self.index {
            index.note(messages);
        }
    }

    /// The words of the session are gone before the deletion is acknowledged.
    async fn after_deletion(&self) -> Result<(), StoreError> {
        match &self.index {
            Some(index) => index.delete().await,
            None => Ok(()),
        }
    }

    /// Most reads are left out, since nothing of their kind is stored.
    async fn look_up_start(&self, tenant: &TenantId, ids: StartIds<'_>) -> Result<StartView, StoreError> {
        start_in_parts(self, tenant, ids).await
    }

    async fn add_up(&self, tenant: &TenantId, query: &UsageQuery) -> Result<Vec<UsageRow>, StoreError> {
        let _turn = self.adding_up.lock().await;
        read::usage(&self.readers, tenant, query).await
    }
}
