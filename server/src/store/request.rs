//! Questions to humans, and rules that were remembered with their answers.

use agentloop_core::id::{RequestId, RuleId, RunId, SessionId, TenantId};
use agentloop_core::policy::PolicyRule;
use agentloop_core::run::human::{Answer, Question};
use agentloop_core::time::Timestamp;
use async_trait::async_trait;

use super::{Page, PageRequest, StoreError};

/// A question as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestRow {
    /// The run that asks.
    pub run: RunId,
    /// Its session.
    pub session: SessionId,
    /// What is asked.
    pub question: Question,
    /// The answer, once there is one.
    pub answer: Option<Answer>,
}

/// A rule that was remembered with a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleRow {
    /// Names it.
    pub id: RuleId,
    /// Its session; `None` where it is for every run.
    pub session: Option<SessionId>,
    /// The question that it was decided with.
    pub request: RequestId,
    /// The rule.
    pub rule: PolicyRule,
    /// Who decided.
    pub by: String,
    /// The time at which it happened.
    pub at: Timestamp,
}

/// Which open questions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestFilter {
    /// Only of this session.
    pub session: Option<SessionId>,
    /// Only of this run.
    pub run: Option<RunId>,
}

/// Questions and remembered rules. Both are written with the event that makes them.
#[async_trait]
pub trait RequestStore: Send + Sync + 'static {
    /// A question, answered or not.
    async fn request(&self, tenant: &TenantId, request: &RequestId)
    -> Result<Option<RequestRow>, StoreError>;

    /// Open questions, oldest first.
    async fn pending(
        &self,
        tenant: &TenantId,
        filter: RequestFilter,
        page: PageRequest,
    ) -> Result<Page<RequestRow>, StoreError>;

    /// Rules that were remembered for this session, or with `None` for every run; the oldest first.
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

    /// Forgets a remembered rule. `false`: there was none.
    async fn delete_rule(&self, tenant: &TenantId, rule: &RuleId) -> Result<bool, StoreError>;
}
