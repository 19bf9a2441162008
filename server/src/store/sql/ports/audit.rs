//! The port for the audit log.

use async_trait::async_trait;

use crate::audit::{AuditEntry, AuditFilter, AuditRow};
use crate::store::sql::read;
use crate::store::sql::store::SqlStore;
use crate::store::support::write::WriteOp;
use crate::store::{AuditStore, Page, PageRequest, StoreError};

#[async_trait]
impl<S: SqlStore> AuditStore for S {
    async fn write_audit(&self, entries: Vec<AuditEntry>) -> Result<(), StoreError> {
        self.writes().done(WriteOp::Audit(entries)).await
    }

    async fn audit(&self, filter: AuditFilter, page: PageRequest) -> Result<Page<AuditRow>, StoreError> {
        read::audit::page(self.readers(), &filter, &page).await
    }

    async fn audit_after(&self, no: u64) -> Result<Vec<AuditRow>, StoreError> {
        read::audit::after(self.readers(), no).await
    }

    async fn last_audit(&self) -> Result<u64, StoreError> {
        read::audit::last(self.readers()).await
    }
}
