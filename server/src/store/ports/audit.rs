//! The port for the audit log: who did what, in a chain of hashes. A store may keep none.

use async_trait::async_trait;

use super::{Page, PageRequest, StoreError};
use crate::audit::{AuditEntry, AuditFilter, AuditRow, ChainCheck, ChainOutcome};

/// The audit log. Reads and writes of a store that keeps none are [`StoreError::Unavailable`].
#[async_trait]
pub trait AuditStore: Send + Sync + 'static {
    /// Writes rows behind the last one of the audit log, in one commit. A write of an act takes the act's row along by itself.
    async fn write_audit(&self, _entries: Vec<AuditEntry>) -> Result<(), StoreError> {
        Err(no_audit())
    }

    /// A page of the audit log, newest first.
    async fn audit(&self, _filter: AuditFilter, _page: PageRequest) -> Result<Page<AuditRow>, StoreError> {
        Err(no_audit())
    }

    /// The next rows of the audit log after this number, oldest first; of all tenants.
    async fn audit_after(&self, _no: u64) -> Result<Vec<AuditRow>, StoreError> {
        Err(no_audit())
    }

    /// Number of the last row of the audit log; 0 if it has none.
    async fn last_audit(&self) -> Result<u64, StoreError> {
        Err(no_audit())
    }

    /// Checks the whole chain of the audit log, which must have a row of this hash, if it is not empty.
    async fn verify_audit(&self, known_hash: &str) -> Result<ChainOutcome, StoreError> {
        let (mut check, mut last) = (ChainCheck::knowing(known_hash), 0);
        loop {
            let rows = self.audit_after(last).await?;
            let Some(newest) = rows.last() else { return Ok(check.verdict().into()) };
            last = newest.no;
            if let Err(broken) = rows.iter().try_for_each(|row| check.check(row)) {
                return Ok(ChainOutcome::Broken(broken));
            }
        }
    }
}

fn no_audit() -> StoreError {
    StoreError::Unavailable { what: "this store keeps no audit log".to_owned() }
}
