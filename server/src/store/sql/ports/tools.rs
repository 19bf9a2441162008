//! Tools that hosts have declared, and ids of hosts.

use agentloop_core::id::{HostId, TenantId};
use agentloop_core::time::Timestamp;
use async_trait::async_trait;

use crate::store::sql::read;
use crate::store::sql::store::SqlStore;
use crate::store::support::write::WriteOp;
use crate::store::{HostClaim, StoreError, StoredTools, ToolRow, ToolStore};

#[async_trait]
impl<S: SqlStore> ToolStore for S {
    async fn save_tools(&self, tenant: &TenantId, tools: &[ToolRow]) -> Result<(), StoreError> {
        self.writes().done(WriteOp::SaveTools { tenant: tenant.clone(), tools: tools.to_vec() }).await
    }

    async fn forget_tool(&self, tenant: &TenantId, name: &str) -> Result<bool, StoreError> {
        let op = WriteOp::ForgetTool { tenant: tenant.clone(), name: name.to_owned() };
        self.writes().existed(op).await
    }

    async fn tools(&self) -> Result<StoredTools, StoreError> {
        read::tools(self.readers()).await
    }

    async fn claim_host(&self, claim: &HostClaim) -> Result<bool, StoreError> {
        self.writes().existed(WriteOp::ClaimHost(claim.clone())).await
    }

    async fn see_hosts(
        &self,
        hosts: &[(TenantId, HostId)],
        at: Timestamp,
        free_before: Timestamp,
    ) -> Result<(), StoreError> {
        self.writes().done(WriteOp::SeeHosts { hosts: hosts.to_vec(), at, free_before }).await
    }
}
