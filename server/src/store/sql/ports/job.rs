//! Jobs that follow runs.

use agentloop_core::id::TenantId;
use agentloop_core::time::Timestamp;
use async_trait::async_trait;

use crate::store::sql::read;
use crate::store::sql::store::SqlStore;
use crate::store::support::write::WriteOp;
use crate::store::{Job, JobId, JobStore, StoreError};

#[async_trait]
impl<S: SqlStore> JobStore for S {
    async fn due_jobs(
        &self,
        now: Timestamp,
        after: Option<&TenantId>,
        limit: u32,
    ) -> Result<(Vec<Job>, Option<Timestamp>), StoreError> {
        read::due_jobs(self.readers(), now, after, limit).await
    }

    async fn retry_job(&self, job: &JobId, due_at: Timestamp, error: &str) -> Result<(), StoreError> {
        self.writes().done(WriteOp::RetryJob { job: job.clone(), due_at, error: error.to_owned() }).await
    }

    async fn finish_job(&self, job: &JobId) -> Result<(), StoreError> {
        self.writes().done(WriteOp::FinishJob { job: job.clone() }).await
    }
}
