//! Questions to people, and remembered rules.

use agentloop_core::id::{RequestId, RuleId, RunId, SessionId, TenantId};
use async_trait::async_trait;

use crate::store::sql::read;
use crate::store::sql::store::SqlStore;
use crate::store::support::write::WriteOp;
use crate::store::{Page, PageRequest, RequestFilter, RequestRow, RequestStore, RuleRow, StoreError};

#[async_trait]
impl<S: SqlStore> RequestStore for S {
    async fn request(
        &self,
        tenant: &TenantId,
        request: &RequestId,
    ) -> Result<Option<RequestRow>, StoreError> {
        read::request(self.readers(), tenant, request).await
    }

    async fn pending(
        &self,
        tenant: &TenantId,
        filter: RequestFilter,
        page: PageRequest,
    ) -> Result<Page<RequestRow>, StoreError> {
        read::pending(self.readers(), self.damaged_questions(), tenant, &filter, &page).await
    }

    async fn open_questions(&self, tenant: &TenantId, run: &RunId) -> Result<Vec<RequestId>, StoreError> {
        read::open_questions(self.readers(), tenant, run).await
    }

    async fn rules(
        &self,
        tenant: &TenantId,
        session: Option<&SessionId>,
    ) -> Result<Vec<RuleRow>, StoreError> {
        if !self.used().rules() {
            return Ok(Vec::new());
        }
        read::rules(self.readers(), tenant, session).await
    }

    async fn rules_for_run(
        &self,
        tenant: &TenantId,
        session: &SessionId,
    ) -> Result<Vec<RuleRow>, StoreError> {
        if !self.used().rules() {
            return Ok(Vec::new());
        }
        read::rules_for_run(self.readers(), tenant, session).await
    }

    async fn delete_rule(&self, tenant: &TenantId, rule: &RuleId) -> Result<bool, StoreError> {
        let op = WriteOp::DeleteRule { tenant: tenant.clone(), rule: rule.clone() };
        self.writes().existed(op).await
    }
}
