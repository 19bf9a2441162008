//! The port for questions to humans, and for rules that were remembered with their answers.

use agentloop_core::id::{RequestId, RuleId, RunId, SessionId, TenantId};
use agentloop_core::policy::PolicyRule;
use agentloop_core::time::Timestamp;
use async_trait::async_trait;

use super::{Page, PageRequest, RequestFilter, RequestRow, StoreError};

/// A rule that was remembered with a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleRow {
    /// Id by which the rule is deleted.
    pub id: RuleId,
    /// The session whose runs it is for; `None` if it is for every run of the tenant.
    pub session: Option<SessionId>,
    /// The question whose answer it came with.
    pub request: RequestId,
    /// The rule itself, as runs take it.
    pub rule: PolicyRule,
    /// The person who answered, as the caller named them.
    pub by: String,
    /// Time of the answer.
    pub at: Timestamp,
}

/// Questions and remembered rules. An append writes both, with the event that they follow from.
#[async_trait]
pub trait RequestStore: Send + Sync + 'static {
    /// A question, answered or not.
    async fn request(&self, tenant: &TenantId, request: &RequestId)
    -> Result<Option<RequestRow>, StoreError>;

    /// Open questions, oldest first. A page may have fewer rows than requested, or none, although there is a next one.
    async fn pending(
        &self,
        tenant: &TenantId,
        filter: RequestFilter,
        page: PageRequest,
    ) -> Result<Page<RequestRow>, StoreError>;

    /// Ids of a run's open questions. They are read without the questions, which may be damaged. This default reads both.
    async fn open_questions(&self, tenant: &TenantId, run: &RunId) -> Result<Vec<RequestId>, StoreError> {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let filter = RequestFilter { run: Some(run.clone()), ..RequestFilter::default() };
            let page = self.pending(tenant, filter, PageRequest { size: u32::MAX, after }).await?;
            found.extend(page.rows.into_iter().map(|row| row.question.request));
            after = page.next;
            if after.is_none() {
                return Ok(found);
            }
        }
    }

    /// Rules that were remembered for this session, or with `None` those for every run; the oldest first.
    async fn rules(&self, tenant: &TenantId, session: Option<&SessionId>)
    -> Result<Vec<RuleRow>, StoreError>;

    /// Rules that a run takes with it when it enters this session: those for every run, then those of the session, each
    /// the oldest first. A store that can reads both at once.
    async fn rules_for_run(
        &self,
        tenant: &TenantId,
        session: &SessionId,
    ) -> Result<Vec<RuleRow>, StoreError> {
        let mut rules = self.rules(tenant, None).await?;
        rules.extend(self.rules(tenant, Some(session)).await?);
        Ok(rules)
    }

    /// Deletes a remembered rule. `false`: there was none.
    async fn delete_rule(&self, tenant: &TenantId, rule: &RuleId) -> Result<bool, StoreError>;
}
