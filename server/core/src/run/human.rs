//! What humans are asked and what they say.

use serde::{Deserialize, Serialize};

use crate::id::{CallSlot, RequestId, RunId};
use crate::limits::POLICY_RULES_MAX;
use crate::policy::{BadRule, PolicyAction, PolicyCall, PolicyRule, RuleOrigin, Widening};
pub use crate::question::{BadQuestion, QuestionContent, SelectOption};
use crate::time::{Millis, Timestamp};
use crate::tool::Digest;

/// What kind of answer is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QuestionKind {
    /// May this call run?
    Approve,
    /// This call may or may not have taken effect: what became of it?
    InDoubt,
    /// Free text.
    Prompt,
    /// One or several of a list.
    Select,
}

impl QuestionKind {
    /// Whether it is about a tool call, which the answer lets run or not.
    #[must_use]
    pub fn is_about_a_call(self) -> bool {
        match self {
            Self::Approve | Self::InDoubt => true,
            Self::Prompt | Self::Select => false,
        }
    }
}

/// A question to a human: about a tool call, by one, or by the planner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// Derived from the run, the call and the attempt; or from the run and the planner's decision.
    pub request: RequestId,
    /// What kind of answer is asked.
    pub kind: QuestionKind,
    /// The call that it is about, or that asks; absent where the planner asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<CallSlot>,
    /// The call's tool; empty where the planner asks.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tool: String,
    /// The call's arguments, JSON text; empty unless they are what is approved.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub arguments: String,
    /// Of tool and arguments: what is approved. Of a prompt or a choice: of what is shown.
    pub digest: Digest,
    /// What is asked, of a prompt or a choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ask: Option<Box<QuestionContent>>,
    /// Why it is asked, of a call in doubt; empty in journals of earlier versions.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// When it was asked.
    pub asked_at: Timestamp,
    /// When it is denied by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

impl QuestionContent {
    /// Prompt or choice.
    #[must_use]
    pub fn kind(&self) -> QuestionKind {
        if self.options.is_empty() { QuestionKind::Prompt } else { QuestionKind::Select }
    }

    /// Of what is shown.
    #[must_use]
    pub fn digest(&self) -> Digest {
        let multiple = [u8::from(self.multiple)];
        let mut shown = vec![self.text.as_bytes(), &multiple];
        for option in &self.options {
            shown.extend([option.id.as_bytes(), option.label.as_bytes()]);
        }
        Digest::of(&shown)
    }

    /// The answer in the order of the options, so that the same choice is the same answer.
    ///
    /// # Errors
    /// What is wrong with it: another kind than is asked for, an option that is not there, more than one of those
    /// that exclude each other.
    pub fn settle(&self, decision: Decision) -> Result<Decision, BadAnswer> {
        match decision {
            Decision::Text { .. } if self.options.is_empty() => Ok(decision),
            Decision::Selected { options } if !self.options.is_empty() => self.select(&options),
            Decision::Text { .. } => Err(BadAnswer::SelectionWanted),
            Decision::Selected { .. } => Err(BadAnswer::TextWanted),
            Decision::Approve
            | Decision::ApproveWithEdits { .. }
            | Decision::Deny { .. }
            | Decision::DenyAndStop { .. }
            | Decision::AnswerInPlace { .. }
            | Decision::Expired
            | Decision::Withdrawn => Err(BadAnswer::InputWanted),
        }
    }

    fn select(&self, chosen: &[String]) -> Result<Decision, BadAnswer> {
        if let Some(unknown) = chosen.iter().find(|id| !self.options.iter().any(|option| option.id == **id)) {
            return Err(BadAnswer::UnknownOption(unknown.clone()));
        }
        let options: Vec<String> =
            self.options.iter().map(|option| option.id.clone()).filter(|id| chosen.contains(id)).collect();
        match options.len() {
            1 => Ok(Decision::Selected { options }),
            _ if self.multiple => Ok(Decision::Selected { options }),
            _ => Err(BadAnswer::OneWanted),
        }
    }

    /// What was chosen, as people and models read it.
    #[must_use]
    pub fn labels(&self, chosen: &[String]) -> Vec<&str> {
        let chosen = self.options.iter().filter(|option| chosen.contains(&option.id));
        chosen.map(|option| option.label.as_str()).collect()
    }
}

/// Why an answer does not fit its question.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadAnswer {
    /// The question is whether a call may run.
    #[error("the question is about a tool call: it takes a decision by SubmitApproval")]
    DecisionWanted,
    /// The question asks for text or a choice.
    #[error("the question asks for text or a choice: it takes an answer by SubmitInput")]
    InputWanted,
    /// The question asks for text.
    #[error("the question asks for text")]
    TextWanted,
    /// The question asks for a choice.
    #[error("the question asks for a choice of its options")]
    SelectionWanted,
    /// There is no such option.
    #[error("there is no option {0:?}")]
    UnknownOption(String),
    /// Exactly one is to be chosen.
    #[error("exactly one option is to be chosen")]
    OneWanted,
}

/// What a human decides about a tool call, or answers to a prompt or a choice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "decision", rename_all = "snake_case")]
pub enum Decision {
    /// Run it as it is. Of a call in doubt: run it once more.
    Approve,
    /// Run it with other arguments.
    ApproveWithEdits {
        /// The whole arguments, JSON text.
        arguments: String,
    },
    /// Do not run it; the model goes on.
    Deny {
        /// What the model reads.
        message: String,
    },
    /// Do not run it, and end the run.
    DenyAndStop {
        /// Kept with the run.
        message: String,
    },
    /// Do not run it; this is its result.
    AnswerInPlace {
        /// What the model reads.
        output: String,
    },
    /// What was asked for: text.
    Text {
        /// The answer.
        text: String,
    },
    /// What was asked for: a choice.
    Selected {
        /// Ids of the options, in their order.
        options: Vec<String>,
    },
    /// Nobody answered in time.
    Expired,
    /// The call or the run ended first.
    Withdrawn,
}

impl Decision {
    /// Whether it answers a prompt or a choice.
    #[must_use]
    pub fn is_input(&self) -> bool {
        matches!(self, Self::Text { .. } | Self::Selected { .. })
    }

    /// In a word, as errors and logs name it.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Approve => "approve",
            Self::ApproveWithEdits { .. } => "approve_with_edits",
            Self::Deny { .. } => "deny",
            Self::DenyAndStop { .. } => "deny_and_stop",
            Self::AnswerInPlace { .. } => "answer_in_place",
            Self::Text { .. } => "text",
            Self::Selected { .. } => "selected",
            Self::Expired => "expired",
            Self::Withdrawn => "withdrawn",
        }
    }
}

impl Question {
    /// What the planner's `decision`th instruction, from 1, asks for. To be emitted as it is; its answer moves no tool
    /// call, and [`Question::words`] says what the model is to read of it.
    #[must_use]
    pub fn planned(
        run: &RunId,
        decision: u32,
        ask: QuestionContent,
        asked_at: Timestamp,
        timeout: Option<Millis>,
    ) -> Self {
        Self::asking(run.planned_question(decision), ask, asked_at, timeout)
    }

    /// A question for text or a choice, of nobody in particular.
    pub(crate) fn asking(
        request: RequestId,
        ask: QuestionContent,
        asked_at: Timestamp,
        timeout: Option<Millis>,
    ) -> Self {
        Self {
            request,
            kind: ask.kind(),
            slot: None,
            tool: String::new(),
            arguments: String::new(),
            digest: ask.digest(),
            ask: Some(Box::new(ask)),
            why: String::new(),
            asked_at,
            expires_at: timeout.map(|timeout| asked_at.after(timeout)),
        }
    }

    /// The host's name for it, where a running call asks: its answer goes to the host and does not move the call.
    #[must_use]
    pub fn input(&self) -> Option<&str> {
        self.ask.as_ref()?.input.as_deref()
    }

    /// Takes a decision in its canonical form.
    ///
    /// # Errors
    /// Why it does not fit the question.
    pub fn settle(&self, decision: Decision) -> Result<Decision, BadAnswer> {
        match &self.ask {
            Some(ask) => ask.settle(decision),
            None if decision.is_input() => Err(BadAnswer::DecisionWanted),
            None => Ok(decision),
        }
    }

    /// What was answered to a prompt or a choice, as the model reads it: the text, or the labels of what was chosen,
    /// one a line.
    #[must_use]
    pub fn words(&self, decision: &Decision) -> Option<String> {
        match decision {
            Decision::Text { text } => Some(text.clone()),
            Decision::Selected { options } => Some(self.ask.as_ref()?.labels(options).join("\n")),
            Decision::Approve
            | Decision::ApproveWithEdits { .. }
            | Decision::Deny { .. }
            | Decision::DenyAndStop { .. }
            | Decision::AnswerInPlace { .. }
            | Decision::Expired
            | Decision::Withdrawn => None,
        }
    }
}

/// A decision, by whom and when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// What was decided.
    pub decision: Decision,
    /// Who decided; empty where nobody did.
    pub by: String,
    /// The time at which it happened.
    pub at: Timestamp,
    /// The rule that is remembered with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remembered: Option<Box<Remembered>>,
    /// The rule that decided, where it was remembered with the answer to another question of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub followed: Option<Box<PolicyRule>>,
}

impl Answer {
    /// One that leads to no rule.
    #[must_use]
    pub fn new(decision: Decision, by: String, at: Timestamp) -> Self {
        Self { decision, by, at, remembered: None, followed: None }
    }
}

/// What a decision is remembered as.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remembered {
    /// How long.
    pub scope: RememberScope,
    /// The rule.
    pub rule: PolicyRule,
}

/// How long a decision is remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RememberScope {
    /// For the rest of the run.
    Run,
    /// For the rest of the session, in runs that start later too.
    Session,
    /// For every run that starts from then on, and the rest of this one.
    Tenant,
}

impl RememberScope {
    /// Where such rules come from.
    #[must_use]
    pub fn origin(self) -> RuleOrigin {
        match self {
            Self::Run => RuleOrigin::Run,
            Self::Session => RuleOrigin::Session,
            Self::Tenant => RuleOrigin::Remembered,
        }
    }
}

/// That a decision is to be remembered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remember {
    /// How long.
    pub scope: RememberScope,
    /// The rule; its action and origin count for nothing. Absent: exactly this call.
    pub rule: Option<PolicyRule>,
}

/// Why a decision cannot be remembered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CannotRemember {
    /// The question or the decision is of another kind.
    #[error("only whether a call may run can be remembered, and only approve and deny")]
    Kind,
    /// The call's arguments are too long to be a rule, or not exactly known.
    #[error("the arguments are too long for a suggested rule, or have a number beyond 64 bits: give one")]
    NoSuggestion,
    /// The rule is not about the call.
    #[error("the rule does not match the call in question")]
    OtherCall,
    /// The rule would allow calls of other tools.
    #[error(
        "tool: an approval is remembered for its own tool alone; name exactly {0:?}, or set \
         tool_policy.remember_any_tool of the agent"
    )]
    OtherTools(String),
    /// The rule is none.
    #[error(transparent)]
    Bad(#[from] BadRule),
    /// There are as many as there may be.
    #[error("there are {POLICY_RULES_MAX} remembered rules already: delete some")]
    TooMany,
}

impl Question {
    /// The rule that a decision on this question is remembered as.
    ///
    /// # Errors
    /// Why there is none.
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
        let rule = match &remember.rule {
            Some(rule) => PolicyRule { action, origin, ..rule.clone() },
            None => self.exactly(action, origin).ok_or(CannotRemember::NoSuggestion)?,
        };
        rule.check()?;
        if !rule.matches(&PolicyCall::new(&self.tool, &self.arguments)) {
            return Err(CannotRemember::OtherCall);
        }
        if !widening.may_remember(&rule, &self.tool) {
            return Err(CannotRemember::OtherTools(self.tool.clone()));
        }
        Ok(Remembered { scope, rule })
    }

    /// The rule that would be remembered where none is given: exactly this call. `None` where the question is not
    /// whether a call may run, the call is too long, or its arguments have a number that is not told apart from others.
    #[must_use]
    pub fn suggested_rule(&self) -> Option<PolicyRule> {
        match self.kind {
            QuestionKind::Approve => self.exactly(PolicyAction::Allow, RuleOrigin::Candidate),
            QuestionKind::InDoubt | QuestionKind::Prompt | QuestionKind::Select => None,
        }
    }

    fn exactly(&self, action: PolicyAction, origin: RuleOrigin) -> Option<PolicyRule> {
        PolicyRule::for_exact_call(action, &self.tool, &self.arguments, origin)
    }
}
