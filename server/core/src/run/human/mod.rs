//! Questions to people, their answers, and the rules that answers are remembered as.

mod answer;
mod approver;
mod remember;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::id::{CallSlot, RequestId, RunId};
use crate::policy::{Approvers, PolicyRule};
pub use crate::question::{BadQuestion, QuestionContent, SelectOption};
use crate::time::{Millis, Timestamp};
use crate::tool::Digest;

pub use self::answer::{BadAnswer, Decision};
pub use self::approver::{NotAnApprover, Person, check_person};
pub use self::remember::{CannotRemember, Remember, RememberScope, Remembered};

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

    /// The question, for people.
    #[must_use]
    pub fn text(&self) -> Cow<'_, str> {
        match self.kind {
            QuestionKind::Approve => format!("May {} run with these arguments?", self.tool).into(),
            QuestionKind::InDoubt => {
                let why = if self.why.is_empty() { "the server does not know more" } else { &self.why };
                let tool = &self.tool;
                format!("This call of {tool} may or may not have taken effect: {why}. What became of it?")
                    .into()
            }
            QuestionKind::Prompt | QuestionKind::Select | QuestionKind::Form | QuestionKind::Url => {
                self.content.as_ref().map_or("", |content| content.text.as_str()).into()
            }
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

/// One of several approvals of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartialApproval {
    /// Name of the person.
    pub by: String,
    /// The time of the approval.
    pub at: Timestamp,
}
