//! Questions to people, their answers, and the rules that answers are remembered as.

use serde::{Deserialize, Serialize};

use crate::form::Form;
use crate::id::{CallSlot, RequestId, RunId};
use crate::limits::{INPUT_ANSWERS_PER_CALL_BYTES_MAX, POLICY_RULES_MAX};
use crate::policy::{Approvers, BadRule, PolicyAction, PolicyCall, PolicyRule, RuleOrigin, Widening};
use crate::question::InputAnswer;
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
    /// A form of flat fields.
    Form,
    /// A link to visit.
    Url,
}

impl QuestionKind {
    /// True if the answer decides whether a tool call runs.
    #[must_use]
    pub fn is_about_a_call(self) -> bool {
        match self {
            Self::Approve | Self::InDoubt => true,
            Self::Prompt | Self::Select | Self::Form | Self::Url => false,
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
    /// Arguments to approve, as JSON text; empty for a question that has a content of its own.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub arguments: String,
    /// Digest of the content that people are shown: tool and arguments, or the content.
    pub digest: Digest,
    /// Digest of the tool's terms that an approval covers. Absent in older journals, where it covers any terms, and for
    /// questions that are not about a call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terms: Option<Digest>,
    /// Content of a prompt, a choice, a form or a link; absent for an approval or a call in doubt.
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
    /// The people who may answer, by the rules about the call.
    #[serde(default, skip_serializing_if = "Approvers::is_anyone")]
    pub approvers: Approvers,
}

/// Somebody who answers a question.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Person {
    /// The name that the journal records.
    pub name: String,
    /// The groups of the credential.
    pub groups: Vec<String>,
    /// True if a credential proves the name. Nobody else answers a question that names approvers.
    pub is_proved: bool,
    /// True if the person started the run.
    pub is_requester: bool,
}

impl From<String> for Person {
    /// Somebody who only says who they are.
    fn from(name: String) -> Self {
        Self { name, ..Self::default() }
    }
}

/// Reasons why a person may not answer a question.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAnApprover {
    /// Nobody proved who they are.
    #[error(
        "the question is for certain people, and callers are not asked who they are; the server needs [auth], or abort the run"
    )]
    Unproved,
    /// The person started the run.
    #[error("whoever started the run may not answer this question")]
    Requester,
    /// The question is for others.
    #[error("the question is for {}", listed(.0))]
    NotNamed(Vec<String>),
}

/// Size of the names that a message lists. It travels in a header, which has little room.
const LISTED_BYTES_MAX: usize = 1024;

/// The names, and the number of those that have no room.
fn listed(names: &[String]) -> String {
    let mut text = String::new();
    for (at, name) in names.iter().enumerate() {
        if at > 0 && text.len() + name.len() > LISTED_BYTES_MAX {
            return format!("{text} and {} more", names.len() - at);
        }
        if at > 0 {
            text.push_str(", ");
        }
        text.push_str(name);
    }
    text
}

/// One of several approvals of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartialApproval {
    /// Name of the person.
    pub by: String,
    /// The time of the approval.
    pub at: Timestamp,
}

impl QuestionContent {
    /// Kind of the question.
    #[must_use]
    pub fn kind(&self) -> QuestionKind {
        match self {
            Self { form: Some(_), .. } => QuestionKind::Form,
            Self { url: Some(_), .. } => QuestionKind::Url,
            Self { options, .. } if options.is_empty() => QuestionKind::Prompt,
            Self { .. } => QuestionKind::Select,
        }
    }

    /// Digest of the content that people are shown.
    #[must_use]
    pub fn digest(&self) -> Digest {
        let multiple = [u8::from(self.multiple)];
        let mut shown = vec![self.text.as_bytes(), &multiple];
        for option in &self.options {
            shown.extend([option.id.as_bytes(), option.label.as_bytes()]);
        }
        // Each has a name, so that a question of before has the digest of before.
        let named = [("form", &self.form), ("url", &self.url)];
        shown.extend(
            named
                .iter()
                .filter_map(|(name, value)| Some([name.as_bytes(), value.as_ref()?.as_bytes()]))
                .flatten(),
        );
        if self.allow_empty {
            shown.push(b"allow_empty");
        }
        Digest::of(&shown)
    }

    /// Checks an answer, and puts chosen options and filled fields into one order, so that equal answers are equal
    /// decisions.
    ///
    /// # Errors
    /// The reason why the answer does not fit: its kind, an unknown option, too many options, or a field of a form.
    pub fn checked_answer(&self, decision: Decision) -> Result<Decision, BadAnswer> {
        match decision {
            Decision::Declined { .. } => Ok(decision),
            Decision::Text { ref text } if self.kind() == QuestionKind::Prompt => {
                if text.is_empty() && !self.allow_empty { Err(BadAnswer::EmptyText) } else { Ok(decision) }
            }
            Decision::Selected { options } if self.kind() == QuestionKind::Select => self.select(&options),
            Decision::Filled { fields } if self.kind() == QuestionKind::Form => self.fill(&fields),
            Decision::Visited { .. } if self.kind() == QuestionKind::Url => Ok(decision),
            Decision::Text { .. }
            | Decision::Selected { .. }
            | Decision::Filled { .. }
            | Decision::Visited { .. } => Err(self.wanted()),
            Decision::Approve
            | Decision::ApproveWithEdits { .. }
            | Decision::Deny { .. }
            | Decision::DenyAndStop { .. }
            | Decision::AnswerInPlace { .. }
            | Decision::Expired
            | Decision::Withdrawn => Err(BadAnswer::InputWanted),
        }
    }

    /// The fault of an answer that is of another kind than the question.
    fn wanted(&self) -> BadAnswer {
        match self {
            Self { form: Some(_), .. } => BadAnswer::FormWanted,
            Self { url: Some(_), .. } => BadAnswer::VisitWanted,
            Self { options, .. } if options.is_empty() => BadAnswer::TextWanted,
            Self { .. } => BadAnswer::SelectionWanted,
        }
    }

    fn fill(&self, fields: &str) -> Result<Decision, BadAnswer> {
        let form =
            Form::parse(self.form.as_deref().unwrap_or_default()).map_err(BadAnswer::UnreadableForm)?;
        let fields =
            form.check(fields).map_err(|bad| BadAnswer::Field { field: bad.field, problem: bad.problem })?;
        Ok(Decision::Filled { fields })
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
    /// The question asks for an answer of its own, not for a decision about a call.
    #[error("the question asks for text, a choice, a form or a visit: it takes an answer by SubmitInput")]
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
    /// The question takes no empty text.
    #[error("the question takes no empty text")]
    EmptyText,
    /// The question asks for a form.
    #[error("the question asks for a form")]
    FormWanted,
    /// The question asks for a visit to a link.
    #[error("the question asks for a visit to a link")]
    VisitWanted,
    /// A field of the form has a fault; the name is empty if the fault is in the form as a whole.
    #[error("{problem}")]
    Field {
        /// Name of the field.
        field: String,
        /// The fault of the field, for people.
        problem: String,
    },
    /// Several people must approve, and they must approve the same.
    #[error(
        "the call needs {0} approvals, of the arguments as they are: approve, or deny and say what to change"
    )]
    NoEdits(u32),
    /// The call has answers to many questions, and this one has no room beside them.
    #[error(
        "the answers to the questions of this call would have {bytes} bytes and may have \
         {INPUT_ANSWERS_PER_CALL_BYTES_MAX}: give a shorter answer, or decline"
    )]
    NoRoom {
        /// Bytes of all answers, with this one.
        bytes: usize,
    },
    /// The form itself cannot be read, because an earlier version took it.
    #[error("the form cannot be read by this server: {0}; decline it")]
    UnreadableForm(String),
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
    /// The answer to a form.
    Filled {
        /// The fields, as a JSON object.
        fields: String,
    },
    /// The answer to a link.
    Visited {
        /// True if the person did there what was asked.
        done: bool,
    },
    /// No answer to a question that is not about a call; the asker is told.
    Declined {
        /// The reason, for the asker. May be empty.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        message: String,
    },
    /// The machine's own: nobody answered in time.
    Expired,
    /// The machine's own: the call or the run ended first.
    Withdrawn,
}

impl Decision {
    /// True for an answer to a question that is not about a call.
    #[must_use]
    pub fn is_input(&self) -> bool {
        matches!(
            self,
            Self::Text { .. }
                | Self::Selected { .. }
                | Self::Filled { .. }
                | Self::Visited { .. }
                | Self::Declined { .. }
        )
    }

    /// The decision as the host of the call that asked reads it; `None` if it need not know.
    #[must_use]
    pub fn input_answer(&self) -> Option<InputAnswer> {
        match self {
            Self::Text { text } => Some(InputAnswer::Text(text.clone())),
            Self::Selected { options } => Some(InputAnswer::Selected(options.clone())),
            Self::Filled { fields } => Some(InputAnswer::Filled(fields.clone())),
            Self::Visited { done } => Some(InputAnswer::Visited(*done)),
            Self::Declined { message } if message.is_empty() => {
                Some(InputAnswer::Refused("declined".to_owned()))
            }
            Self::Declined { message } => Some(InputAnswer::Refused(format!("declined: {message}"))),
            Self::Expired => Some(InputAnswer::Refused("nobody answered in time".to_owned())),
            Self::Approve
            | Self::ApproveWithEdits { .. }
            | Self::Deny { .. }
            | Self::DenyAndStop { .. }
            | Self::AnswerInPlace { .. }
            | Self::Withdrawn => None,
        }
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
            Self::Filled { .. } => "filled",
            Self::Visited { .. } => "visited",
            Self::Declined { .. } => "declined",
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

    /// A question with a content of its own that names no tool call.
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
            approvers: Approvers::default(),
        }
    }

    /// Checks that this person may answer.
    ///
    /// # Errors
    /// The reason why not.
    pub fn check_person(&self, person: &Person) -> Result<(), NotAnApprover> {
        check_person(&self.approvers, person)
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

    /// The question with its answer, for the model: a bare "yes" tells nobody what it is about. `None` for a question
    /// about a call, and for a decision that tells nothing.
    #[must_use]
    pub fn words(&self, decision: &Decision) -> Option<String> {
        let content = self.content.as_ref()?;
        let answer = match decision {
            Decision::Text { text } if text.is_empty() => "Answer: (empty)".to_owned(),
            Decision::Text { text } => format!("Answer: {text}"),
            Decision::Selected { options } => match &content.labels(options)[..] {
                [] => "Answer: none of the options".to_owned(),
                [one] => format!("Answer: {one}"),
                labels => format!("Answers:\n- {}", labels.join("\n- ")),
            },
            Decision::Filled { fields } => format!("Answer: {fields}"),
            Decision::Visited { done: true } => "Answer: done".to_owned(),
            Decision::Visited { done: false } => "Answer: not done".to_owned(),
            Decision::Declined { message } if message.is_empty() => {
                "Not answered: the person declined".to_owned()
            }
            Decision::Declined { message } => format!("Not answered: the person declined: {message}"),
            Decision::Expired => "Not answered: nobody answered in time".to_owned(),
            Decision::Approve
            | Decision::ApproveWithEdits { .. }
            | Decision::Deny { .. }
            | Decision::DenyAndStop { .. }
            | Decision::AnswerInPlace { .. }
            | Decision::Withdrawn => return None,
        };
        let link = content.url.as_ref().map(|url| format!(" ({url})")).unwrap_or_default();
        Some(format!("Question: {}{link}\n{answer}", content.text))
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

    /// The call that the question is about, as rules look at it.
    #[must_use]
    pub fn call(&self) -> PolicyCall {
        PolicyCall::new(&self.tool, &self.arguments).under(self.terms.as_ref())
    }

    fn rule_for_call(&self, action: PolicyAction, origin: RuleOrigin) -> Option<PolicyRule> {
        PolicyRule::for_exact_call(action, &self.tool, &self.arguments, origin)
    }
}

/// Checks that these approvers include a person.
///
/// # Errors
/// The reason why not.
pub fn check_person(approvers: &Approvers, person: &Person) -> Result<(), NotAnApprover> {
    if approvers.is_anyone() {
        return Ok(());
    }
    if !person.is_proved {
        return Err(NotAnApprover::Unproved);
    }
    if approvers.forbid_requester && person.is_requester {
        return Err(NotAnApprover::Requester);
    }
    let is_in = |group: &str| person.groups.iter().any(|own| own == group);
    let is_named = approvers.names(&person.name, is_in);
    is_named.then_some(()).ok_or_else(|| NotAnApprover::NotNamed(approvers.any_of.clone()))
}
