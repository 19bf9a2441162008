//! Journals: appends, claims, and reads of runs.

use agentloop_core::id::{Epoch, RunId, RunKey, Seq, SessionId, TenantId};
use agentloop_core::run::event::Record;
use agentloop_core::time::Timestamp;
use async_trait::async_trait;

use crate::store::sql::read;
use crate::store::sql::store::SqlStore;
use crate::store::support::append::EncodedAppend;
use crate::store::support::write::WriteOp;
use crate::store::{
    Append, Claimed, ClaimedRow, JournalStore, Page, PageRequest, RunFilter, RunRow, SessionRuns, StoreError,
    Stretch, StretchMax, UsageQuery, UsageRow,
};

#[async_trait]
impl<S: SqlStore> JournalStore for S {
    async fn append(&self, append: Append) -> Result<(), StoreError> {
        let encoded = EncodedAppend::new(append);
        self.used().mark(&encoded);
        let messages = encoded.entries.iter().filter(|entry| entry.is_searched).count();
        self.writes().done(WriteOp::Append(Box::new(encoded))).await?;
        self.note_messages(messages);
        Ok(())
    }

    async fn claim(&self, tenant: &TenantId, run: &RunId) -> Result<Option<Claimed>, StoreError> {
        let Some(ClaimedRow { epoch, row }) = self.claim_row(tenant, run).await? else { return Ok(None) };
        match read::journal(self.readers(), tenant, &row).await {
            Ok(records) => Ok(Some(Claimed { epoch, row, records })),
            // The run may have been deleted since the claim.
            Err(_) if self.run(tenant, run).await?.is_none() => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn claim_row(&self, tenant: &TenantId, run: &RunId) -> Result<Option<ClaimedRow>, StoreError> {
        self.writes().claim(tenant, run).await
    }

    fn owns(&self, tenant: &TenantId, session: &SessionId) -> bool {
        self.is_own(tenant, session)
    }

    fn epoch(&self) -> Epoch {
        SqlStore::epoch(self)
    }

    async fn run(&self, tenant: &TenantId, run: &RunId) -> Result<Option<RunRow>, StoreError> {
        read::run(self.readers(), tenant, run).await
    }

    async fn records(
        &self,
        tenant: &TenantId,
        run: &RunId,
        after: Seq,
        limit: u32,
    ) -> Result<Vec<Record>, StoreError> {
        read::records(self.readers(), tenant, run, after, limit).await
    }

    async fn stretch(
        &self,
        tenant: &TenantId,
        run: &RunId,
        after: Seq,
        max: StretchMax,
    ) -> Result<Stretch, StoreError> {
        read::stretch(self.readers(), tenant, run, after, max).await
    }

    async fn unverified_events(&self, tenant: &TenantId, run: &RunId) -> Result<u64, StoreError> {
        read::unverified(self.readers(), tenant, run).await
    }

    async fn runs(
        &self,
        tenant: &TenantId,
        filter: RunFilter,
        page: PageRequest,
    ) -> Result<Page<RunRow>, StoreError> {
        read::runs(self.readers(), tenant, &filter, &page).await
    }

    async fn session_runs(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        after: Option<u64>,
    ) -> Result<SessionRuns, StoreError> {
        read::session_runs(self.readers(), tenant, session, after).await
    }

    async fn usage(&self, tenant: &TenantId, query: &UsageQuery) -> Result<Vec<UsageRow>, StoreError> {
        self.add_up(tenant, query).await
    }

    async fn unfinished(&self) -> Result<Vec<RunKey>, StoreError> {
        read::unfinished(self.readers()).await
    }

    async fn due(&self, now: Timestamp, limit: u32) -> Result<(Vec<RunKey>, Option<Timestamp>), StoreError> {
        read::due(self.readers(), now, limit).await
    }
}
