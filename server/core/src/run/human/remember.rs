//! Answers that are remembered as rules for later calls.

use serde::{Deserialize, Serialize};

use super::{Decision, Question, QuestionKind};
use crate::limits::POLICY_RULES_MAX;
use crate::policy::{Approvers, BadRule, PolicyAction, PolicyCall, PolicyRule, RuleOrigin, Widening};

/// An answer that is remembered as a rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remembered {
    /// Scope of the rule.
    pub scope: RememberScope,
    /// The rule that decides later calls.
    pub rule: PolicyRule,
}

/// Scopes of remembered rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RememberScope {
    /// The rest of the run.
    Run,
    /// The rest of the run, and later runs of the session.
    Session,
    /// The rest of the run, and later runs of the tenant.
    Tenant,
}

impl RememberScope {
    /// The origin of rules with this scope.
    #[must_use]
    pub fn origin(self) -> RuleOrigin {
        match self {
            Self::Run => RuleOrigin::Run,
            Self::Session => RuleOrigin::Session,
            Self::Tenant => RuleOrigin::Remembered,
        }
    }
}

/// A request to remember an answer as a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remember {
    /// Scope of the rule.
    pub scope: RememberScope,
    /// The rule; its action and origin are ignored. `None` means a rule for exactly this call.
    pub rule: Option<PolicyRule>,
}

/// Reasons why an answer cannot be remembered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CannotRemember {
    /// The question is no approval, or the answer neither approves nor denies.
    #[error("only whether a call may run can be remembered, and only approve and deny")]
    Kind,
    /// The call's arguments are too long for a rule, or contain a number that is not known exactly.
    #[error("the arguments are too long for a suggested rule, or have a number beyond 64 bits: give one")]
    NoSuggestion,
    /// The rule would look at an argument of this tool that people do not see.
    #[error(
        "{0} has sensitive arguments, which a remembered rule may not look at: name only others in remember_rule, or \
         answer without remembering"
    )]
    Sensitive(String),
    /// The rule does not match the call in question.
    #[error("the rule does not match the call in question")]
    OtherCall,
    /// The rule would allow calls of other tools.
    #[error(
        "tool: an approval is remembered for its own tool alone; name exactly {0:?}, or set \
         tool_policy.remember_any_tool of the agent"
    )]
    OtherTools(String),
    /// The rule has a fault.
    #[error(transparent)]
    Bad(#[from] BadRule),
    /// Several people must approve each call.
    #[error("each call needs {0} approvals: an approval of one person is not remembered")]
    Quorum(u32),
    /// The one who approves may start later runs, whose calls others must approve.
    #[error(
        "others than whoever starts a run must approve its calls: an approval is remembered for the run alone"
    )]
    Requester,
    /// The run has as many remembered rules as it may have.
    #[error("there are {POLICY_RULES_MAX} remembered rules already: delete some")]
    TooMany,
}

impl Question {
    /// The rule that an answer to this question is remembered as.
    ///
    /// # Errors
    /// The reason why the answer cannot be remembered.
    pub fn remembered(
        &self,
        decision: &Decision,
        remember: &Remember,
        widening: Widening,
    ) -> Result<Remembered, CannotRemember> {
        let action = match (self.kind, decision) {
            (QuestionKind::Approve, Decision::Approve) => PolicyAction::Allow,
            (QuestionKind::Approve, Decision::Deny { .. }) => PolicyAction::Deny,
            _ => return Err(CannotRemember::Kind),
        };
        let (scope, origin) = (remember.scope, remember.scope.origin());
        if action == PolicyAction::Allow {
            self.may_be_remembered(scope)?;
        }
        let made_under = (!self.approvers.is_anyone()).then(|| self.approvers.digest());
        let rule = match &remember.rule {
            Some(rule) => {
                let (approvers, made_under) = (Approvers::default(), made_under.clone());
                PolicyRule { action, origin, terms: None, approvers, made_under, ..rule.clone() }
            }
            None => self.rule_for_call(action, origin).ok_or(CannotRemember::NoSuggestion)?,
        };
        rule.check()?;
        if !rule.matches(&self.call()) {
            return Err(CannotRemember::OtherCall);
        }
        if !widening.may_remember(&rule, &self.tool) {
            return Err(CannotRemember::OtherTools(self.tool.clone()));
        }
        // A rule for several tools is about terms that nobody has seen; a denial is about every declaration.
        let covers_terms = action == PolicyAction::Allow && rule.is_of_one_tool();
        let terms = self.terms.clone().filter(|_| covers_terms);
        Ok(Remembered { scope, rule: PolicyRule { terms, made_under, ..rule } })
    }

    /// A rule must not do alone what takes several people, or others.
    fn may_be_remembered(&self, scope: RememberScope) -> Result<(), CannotRemember> {
        if self.approvers.people() > 1 {
            return Err(CannotRemember::Quorum(self.approvers.people()));
        }
        if self.approvers.forbid_requester && scope != RememberScope::Run {
            return Err(CannotRemember::Requester);
        }
        Ok(())
    }

    /// The rule that is remembered if the request gives none: it matches exactly this call. `None` if the question is no
    /// approval, the call is too long, or its arguments contain a number that is not known exactly.
    #[must_use]
    pub fn suggested_rule(&self) -> Option<PolicyRule> {
        match self.kind {
            QuestionKind::Approve => self.rule_for_call(PolicyAction::Allow, RuleOrigin::Candidate),
            QuestionKind::InDoubt
            | QuestionKind::Prompt
            | QuestionKind::Select
            | QuestionKind::Form
            | QuestionKind::Url => None,
        }
    }

    /// True if the rule has the tool and the arguments of the suggested one, so it is about exactly this call.
    #[must_use]
    pub fn suggests(&self, rule: &PolicyRule) -> bool {
        let suggested = self.suggested_rule();
        suggested
            .is_some_and(|suggested| suggested.tool == rule.tool && suggested.arguments == rule.arguments)
    }

    /// The call that the question is about, as rules look at it.
    #[must_use]
    pub fn call(&self) -> PolicyCall {
        PolicyCall::new(&self.tool, &self.arguments).under(self.terms.as_ref())
    }

    fn rule_for_call(&self, action: PolicyAction, origin: RuleOrigin) -> Option<PolicyRule> {
        PolicyRule::for_exact_call(action, &self.tool, &self.arguments, origin)
    }
}
