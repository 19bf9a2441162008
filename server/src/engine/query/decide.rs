//! What humans decide, and what is remembered of it.

use agentloop_core::error::Refusal;
use agentloop_core::id::{RequestId, RunKey, SessionId, TenantId};
use agentloop_core::limits::POLICY_RULES_MAX;
use agentloop_core::policy::PolicyRule;
use agentloop_core::run::human::{CannotRemember, Decision, Remember, RememberScope};
use agentloop_core::run::input::Input;
use agentloop_core::tool::Digest;

use crate::engine::Engine;
use crate::engine::error::EngineError;
use crate::store::RequestRow;

/// What a human decides.
#[derive(Debug, Clone)]
pub struct Resolution {
    /// The decision.
    pub decision: Decision,
    /// Of what the human was shown, if said.
    pub digest: Option<Digest>,
    /// Who decides.
    pub by: String,
    /// Whether like questions are to be answered alike.
    pub remember: Option<Remember>,
}

impl Engine {
    /// Settles a question.
    ///
    /// # Errors
    /// [`EngineError::RequestNotFound`], [`EngineError::BadArguments`] for edited arguments that do not follow the
    /// tool's schema, [`EngineError::Refused`] for another answer or another digest, for what does not fit the question
    /// and for what cannot be remembered, or the store's.
    pub async fn decide(
        &self,
        tenant: &TenantId,
        request: &RequestId,
        resolution: Resolution,
    ) -> Result<(), EngineError> {
        let run = request.run().ok_or(EngineError::RequestNotFound)?;
        self.check_resolution(tenant, request, &resolution).await?;
        let remember = resolution.remember.map(Box::new);
        let input = || Input::Decided {
            request: request.clone(),
            decision: resolution.decision.clone(),
            digest: resolution.digest.clone(),
            by: resolution.by.clone(),
            remember: remember.clone(),
        };
        match self.ask(&RunKey::new(tenant.clone(), run), input).await {
            Err(EngineError::RunNotFound | EngineError::Refused(Refusal::UnknownRequest)) => {
                Err(EngineError::RequestNotFound)
            }
            other => other,
        }
    }

    /// The rules that were remembered for runs that start now in this session; those for every run first.
    ///
    /// # Errors
    /// The store's.
    pub async fn remembered(
        &self,
        tenant: &TenantId,
        session: Option<&SessionId>,
    ) -> Result<Vec<PolicyRule>, EngineError> {
        let mut rows = self.store().rules(tenant, None).await?;
        if let Some(session) = session {
            rows.extend(self.store().rules(tenant, Some(session)).await?);
        }
        Ok(rows.into_iter().map(|row| row.rule).collect())
    }

    /// What the run itself cannot know: the tool's schema, and how much is remembered.
    async fn check_resolution(
        &self,
        tenant: &TenantId,
        request: &RequestId,
        resolution: &Resolution,
    ) -> Result<(), EngineError> {
        if let Decision::ApproveWithEdits { arguments } = &resolution.decision {
            let row = self.asked(tenant, request).await?;
            let tool = &row.question.tool;
            self.tools().validate(tenant, tool, arguments).map_err(EngineError::BadArguments)?;
        }
        if let Some(remember) = &resolution.remember {
            let row = self.asked(tenant, request).await?;
            if row.answer.is_none() {
                self.check_room(tenant, &row.session, remember.scope).await?;
            }
        }
        Ok(())
    }

    async fn asked(&self, tenant: &TenantId, request: &RequestId) -> Result<RequestRow, EngineError> {
        self.store().request(tenant, request).await?.ok_or(EngineError::RequestNotFound)
    }

    /// Every run that starts takes all of them with it, so that there is a bound.
    async fn check_room(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        scope: RememberScope,
    ) -> Result<(), EngineError> {
        let beside = match scope {
            RememberScope::Run => return Ok(()),
            RememberScope::Session => self.store().rules(tenant, Some(session)).await?,
            RememberScope::Tenant => self.store().rules(tenant, None).await?,
        };
        if beside.len() >= POLICY_RULES_MAX {
            return Err(Refusal::CannotRemember(CannotRemember::TooMany).into());
        }
        Ok(())
    }
}
