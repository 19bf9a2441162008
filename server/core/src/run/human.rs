//! Questions to people, their answers, and the rules that answers are remembered as.

use serde::{Deserialize, Serialize};

use crate::id::{CallSlot, RequestId, RunId};
use crate::limits::POLICY_RULES_MAX;
use crate::policy::{BadRule, PolicyAction, PolicyCall, PolicyRule, RuleOrigin, Widening};
pub use crate::question::{BadQuestion, QuestionContent, SelectOption};
use crate::time::{Millis, Timestamp};
use crate::tool::Digest;

/// The kind of a question, which says what answers fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QuestionKind {
    /// An approval: may this tool call run?
    Approve,
    /// A call in doubt: it may or may not have taken effect, and a person must say what became of it.
    InDoubt,
    /// A question for free text.
    Prompt,
    /// A question for a choice of one or several options.
    Select,
}

impl QuestionKind {
    /// True if the answer decides whether a tool call runs.
    #[must_use]
    pub fn is_about_a_call(self) -> bool {
        match self {
            Self::Approve | Self::InDoubt => true,
            Self::Prompt | Self::Select => false,
        }
    }
}

/// A question to people: about a tool call, by a tool call, or by the planner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// Id, derived from the run, the call and the attempt; or from the run and the number of the planner's decision.
    pub request: RequestId,
    /// Kind of the question, which says what answers fit.
    pub kind: QuestionKind,
    /// The call that the question is about, or that asks; absent if the planner asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<CallSlot>,
    /// Name of the call's tool; empty if the planner asks.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tool: String,
    /// Arguments to approve, as JSON text; empty for a prompt or a choice.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub arguments: String,
    /// Digest of the content that people are shown: tool and arguments, or the prompt or choice.
    pub digest: Digest,
    /// Digest of the tool's terms that an approval covers. Absent in older journals, where it covers any terms, and for
    /// questions that are not about a call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terms: Option<Digest>,
    /// Content of a prompt or a choice; absent for an approval or a call in doubt.
    #[serde(rename = "ask", default, skip_serializing_if = "Option::is_none")]
    pub content: Option<Box<QuestionContent>>,
    /// The reason of the doubt, of a call in doubt; empty in journals of earlier versions.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// The time at which the question was asked.
    pub asked_at: Timestamp,
    /// The time at which the question expires, which denies; absent means never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

impl QuestionContent {
    /// Kind of the question: a choice if there are options.
    #[must_use]
    pub fn kind(&self) -> QuestionKind {
        if self.options.is_empty() { QuestionKind::Prompt } else { QuestionKind::Select }
    }

    /// Digest of the content that people are shown.
    #[must_use]
    pub fn digest(&self) -> Digest {
        let multiple = [u8::from(self.multiple)];
        let mut shown = vec![self.text.as_bytes(), &multiple];
        for option in &self.options {
            shown.extend([option.id.as_bytes(), option.label.as_bytes()]);
        }
        Digest::of(&shown)
    }

    /// Checks an answer, and puts chosen options into the order of the question, so that equal choices are equal
    /// answers.
    ///
    /// # Errors
    /// The reason why the answer does not fit: its kind, an unknown option, or too many options.
    pub fn checked_answer(&self, decision: Decision) -> Result<Decision, BadAnswer> {
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

    /// Labels of the chosen options, for people and models.
    #[must_use]
    pub fn labels(&self, chosen: &[String]) -> Vec<&str> {
        let chosen = self.options.iter().filter(|option| chosen.contains(&option.id));
        chosen.map(|option| option.label.as_str()).collect()
    }
}

/// Reasons why an answer does not fit its question.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadAnswer {
    /// The question is an approval or about a call in doubt.
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
    /// The question has no option with this id.
    #[error("there is no option {0:?}")]
    UnknownOption(String),
    /// The question takes exactly one option.
    #[error("exactly one option is to be chosen")]
    OneWanted,
}

/// An answer to a question, or the reason why it needs none any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "decision", rename_all = "snake_case")]
pub enum Decision {
    /// Run the call as it is; a call in doubt runs once more.
    Approve,
    /// Run the call with other arguments.
    ApproveWithEdits {
        /// All arguments, as JSON text.
        arguments: String,
    },
    /// Do not run the call; the model goes on.
    Deny {
        /// The reason, for the model.
        message: String,
    },
    /// Do not run the call, and end the run.
    DenyAndStop {
        /// The reason, kept with the run.
        message: String,
    },
    /// Do not run the call; this is its result.
    AnswerInPlace {
        /// The result, for the model.
        output: String,
    },
    /// The answer to a prompt.
    Text {
        /// The text that the person wrote.
        text: String,
    },
    /// The answer to a choice.
    Selected {
        /// Ids of the chosen options, in the order of the question.
        options: Vec<String>,
    },
    /// The machine's own: nobody answered in time.
    Expired,
    /// The machine's own: the call or the run ended first.
    Withdrawn,
}

impl Decision {
    /// True for an answer to a prompt or a choice.
    #[must_use]
    pub fn is_input(&self) -> bool {
        matches!(self, Self::Text { .. } | Self::Selected { .. })
    }

    /// Name of the decision in errors and logs.
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
    /// The question of the planner's decision with this number. Its answer moves no tool call; the model reads
    /// [`Question::words`].
    #[must_use]
    pub fn planned(
        run: &RunId,
        decision: u32,
        content: QuestionContent,
        asked_at: Timestamp,
        timeout: Option<Millis>,
    ) -> Self {
        Self::with_content(run.planned_question(decision), content, asked_at, timeout)
    }

    /// A prompt or a choice that names no tool call.
    pub(in crate::run) fn with_content(
        request: RequestId,
        content: QuestionContent,
        asked_at: Timestamp,
        timeout: Option<Millis>,
    ) -> Self {
        Self {
            request,
            kind: content.kind(),
            slot: None,
            tool: String::new(),
            arguments: String::new(),
            digest: content.digest(),
            terms: None,
            content: Some(Box::new(content)),
            why: String::new(),
            asked_at,
            expires_at: timeout.map(|timeout| asked_at.after(timeout)),
        }
    }

    /// The host's name for the question, if a running call asks. The answer goes to the host and does not move the call.
    #[must_use]
    pub fn input(&self) -> Option<&str> {
        self.content.as_ref()?.input.as_deref()
    }

    /// Checks an answer, and returns it in its canonical form.
    ///
    /// # Errors
    /// The reason why the answer does not fit the question.
    pub fn checked_answer(&self, decision: Decision) -> Result<Decision, BadAnswer> {
        match &self.content {
            Some(content) => content.checked_answer(decision),
            None if decision.is_input() => Err(BadAnswer::DecisionWanted),
            None => Ok(decision),
        }
    }

    /// The answer to a prompt or a choice, for the model: the text, or the labels of the chosen options, one a line.
    #[must_use]
    pub fn words(&self, decision: &Decision) -> Option<String> {
        match decision {
            Decision::Text { text } => Some(text.clone()),
            Decision::Selected { options } => Some(self.content.as_ref()?.labels(options).join("\n")),
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

/// A decision, with its author and time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The decision, as it was submitted or made by time.
    pub decision: Decision,
    /// Name of the person; empty for a decision of the machine.
    pub by: String,
    /// The time of the decision.
    pub at: Timestamp,
    /// The rule that the answer is remembered as, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remembered: Option<Box<Remembered>>,
    /// The rule behind the answer, if it was remembered with the answer to another question of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub followed: Option<Box<PolicyRule>>,
}

impl Answer {
    /// An answer that is not remembered as a rule.
    #[must_use]
    pub fn new(decision: Decision, by: String, at: Timestamp) -> Self {
        Self { decision, by, at, remembered: None, followed: None }
    }
}

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
        let rule = match &remember.rule {
            Some(rule) => PolicyRule { action, origin, terms: None, ..rule.clone() },
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
        Ok(Remembered { scope, rule: PolicyRule { terms, ..rule } })
    }

    /// The rule that is remembered if the request gives none: it matches exactly this call. `None` if the question is no
    /// approval, the call is too long, or its arguments contain a number that is not known exactly.
    #[must_use]
    pub fn suggested_rule(&self) -> Option<PolicyRule> {
        match self.kind {
            QuestionKind::Approve => self.rule_for_call(PolicyAction::Allow, RuleOrigin::Candidate),
            QuestionKind::InDoubt | QuestionKind::Prompt | QuestionKind::Select => None,
        }
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
