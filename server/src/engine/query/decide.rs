//! Decisions of humans about a run's questions, and the rules that are remembered with them.

use agentloop_core::id::{RequestId, RunId, RunKey, SessionId, TenantId};
use agentloop_core::limits::POLICY_RULES_MAX;
use agentloop_core::policy::PolicyRule;
use agentloop_core::run::human::{CannotRemember, Decision, Person, Question, Remember, RememberScope};
use agentloop_core::run::input::Input;
use agentloop_core::run::refusal::Refusal;
use agentloop_core::tool::Digest;

use crate::engine::Engine;
use crate::engine::error::EngineError;
use crate::store::RequestRow;

/// A human's decision about a question.
#[derive(Debug, Clone)]
pub struct Resolution {
    /// Approval, denial or answer.
    pub decision: Decision,
    /// Digest of the question that the human was shown. If given, it must be the question's.
    pub digest: Option<Digest>,
    /// The person or client, for the journal.
    pub by: Person,
    /// A rule that answers later questions of this kind in the same way.
    pub remember: Option<Remember>,
}

impl Engine {
    /// Decides a question to a human. The same decision again succeeds; a different one is refused.
    ///
    /// # Errors
    /// - [`EngineError::RequestNotFound`].
    /// - [`EngineError::BadArguments`]: edited arguments do not follow the tool's schema.
    /// - [`EngineError::Refused`]: the question has another answer already, or the digest is not the question's. Or the
    ///   decision does not fit the question, or its rule cannot be remembered.
    /// - The store's.
    pub async fn decide(
        &self,
        tenant: &TenantId,
        request: &RequestId,
        resolution: Resolution,
    ) -> Result<(), EngineError> {
        let run = request.run().ok_or(EngineError::RequestNotFound)?;
        self.check_resolution(tenant, request, &resolution).await?;
        let by = self.asked_person(tenant, &run, resolution.by).await?;
        let remember = resolution.remember.map(Box::new);
        let input = || Input::Decided {
            request: request.clone(),
            decision: resolution.decision.clone(),
            digest: resolution.digest.clone(),
            by: by.clone(),
            remember: remember.clone(),
        };
        match self.deliver(&RunKey::new(tenant.clone(), run), input).await {
            Err(EngineError::RunNotFound | EngineError::Refused(Refusal::UnknownRequest)) => {
                Err(EngineError::RequestNotFound)
            }
            other => other,
        }
    }

    /// The person, with the knowledge whether they started the run.
    ///
    /// # Errors
    /// The store's.
    pub(in crate::engine) async fn asked_person(
        &self,
        tenant: &TenantId,
        run: &RunId,
        person: Person,
    ) -> Result<Person, EngineError> {
        if !person.is_proved {
            return Ok(person);
        }
        let row = self.store().run(tenant, run).await?;
        let is_requester = row.is_some_and(|row| row.created_by.as_ref() == Some(&person.name));
        Ok(Person { is_requester, ..person })
    }

    /// The remembered rules for runs that start now in this session: those for every run, then those for the session.
    ///
    /// # Errors
    /// The store's.
    pub async fn remembered_rules(
        &self,
        tenant: &TenantId,
        session: Option<&SessionId>,
    ) -> Result<Vec<PolicyRule>, EngineError> {
        let rows = match session {
            Some(session) => self.store().rules_for_run(tenant, session).await?,
            None => self.store().rules(tenant, None).await?,
        };
        Ok(rows.into_iter().map(|row| row.rule).collect())
    }

    /// Checks what the run's machine cannot know: edited arguments against the tool's schema, and the number of rules.
    async fn check_resolution(
        &self,
        tenant: &TenantId,
        request: &RequestId,
        resolution: &Resolution,
    ) -> Result<(), EngineError> {
        if let Decision::ApproveWithEdits { arguments } = &resolution.decision {
            let row = self.request_row(tenant, request).await?;
            let tool = &row.question.tool;
            self.tools().validate(tenant, tool, arguments).map_err(EngineError::BadArguments)?;
        }
        if let Some(remember) = &resolution.remember {
            let row = self.request_row(tenant, request).await?;
            if row.answer.is_none() {
                self.check_rule_avoids_masked(&row.question, remember)?;
                self.check_rule_limit(tenant, &row.session, remember.scope).await?;
            }
        }
        Ok(())
    }

    async fn request_row(&self, tenant: &TenantId, request: &RequestId) -> Result<RequestRow, EngineError> {
        self.store().request(tenant, request).await?.ok_or(EngineError::RequestNotFound)
    }

    /// Refuses to remember a rule that looks at sensitive arguments. The calls that it matches would show if a guessed value is
    /// right, with `CheckPolicy` or by the questions of later calls. It would also approve values that nobody has seen.
    fn check_rule_avoids_masked(&self, question: &Question, remember: &Remember) -> Result<(), EngineError> {
        let masks = self.masks();
        let is_shown = masks.mask(&question.tool, &question.arguments).is_none();
        let refused = match &remember.rule {
            None => (!is_shown).then_some(question.tool.as_str()),
            // A rule for exactly a call without sensitive values matches no call that has some.
            Some(rule) if is_shown && question.suggests(rule) => None,
            Some(rule) => masks.seen_by(rule).map(|(_, tool)| tool),
        };
        match refused {
            Some(tool) => Err(Refusal::CannotRemember(CannotRemember::Sensitive(tool.to_owned())).into()),
            None => Ok(()),
        }
    }

    /// The number of rules is bounded because every new run's journal gets all of them.
    async fn check_rule_limit(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        scope: RememberScope,
    ) -> Result<(), EngineError> {
        let rules = match scope {
            RememberScope::Run => return Ok(()),
            RememberScope::Session => self.store().rules(tenant, Some(session)).await?,
            RememberScope::Tenant => self.store().rules(tenant, None).await?,
        };
        if rules.len() >= POLICY_RULES_MAX {
            return Err(Refusal::CannotRemember(CannotRemember::TooMany).into());
        }
        Ok(())
    }
}
