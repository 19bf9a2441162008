//! Tools that hosts have declared, and ids of hosts.

use agentloop_core::id::{HostId, TenantId};
use async_trait::async_trait;

use crate::store::sqlite::SqliteStore;
use crate::store::sqlite::read;
use crate::store::sqlite::write::own::WriteOp;
use crate::store::{HostRow, StoreError, StoredTools, ToolRow, ToolStore};

#[async_trait]
impl ToolStore for SqliteStore {
    async fn save_tools(&self, tenant: &TenantId, tools: &[ToolRow]) -> Result<(), StoreError> {
        self.writes.done(WriteOp::SaveTools { tenant: tenant.clone(), tools: tools.to_vec() }).await
    }

    async fn forget_tool(&self, tenant: &TenantId, name: &str) -> Result<bool, StoreError> {
        let op = WriteOp::ForgetTool { tenant: tenant.clone(), name: name.to_owned() };
        self.writes.existed(op).await
    }

    async fn tools(&self) -> Result<StoredTools, StoreError> {
        read::tools(&self.readers).await
    }

    async fn save_hosts(
        &self,
        hosts: &[HostRow],
        forgotten: &[(TenantId, HostId)],
    ) -> Result<(), StoreError> {
        let op = WriteOp::SaveHosts { hosts: hosts.to_vec(), forgotten: forgotten.to_vec() };
        self.writes.done(op).await
    }

    async fn hosts(&self) -> Result<Vec<HostRow>, StoreError> {
        read::hosts(&self.readers).await
    }
}
