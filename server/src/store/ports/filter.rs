//! Conditions of lists, and the test whether a row meets them. A store may test them by queries of its own that give the
//! same rows.

use std::collections::BTreeMap;

use agentloop_core::id::{RunId, SessionId};
use agentloop_core::run::human::{Person, Question, QuestionKind};
use agentloop_core::run::status::RunStatus;
use agentloop_core::time::Timestamp;

use super::{RequestRow, RunRow};
use crate::mask::Masks;

/// A stretch of time. The default is all of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TimeRange {
    /// The first time that belongs to it.
    pub from: Option<Timestamp>,
    /// The first time after it.
    pub before: Option<Timestamp>,
}

impl TimeRange {
    /// True if the time belongs to it.
    #[must_use]
    pub fn contains(&self, at: Timestamp) -> bool {
        self.from.is_none_or(|from| at >= from) && self.before.is_none_or(|before| at < before)
    }
}

/// Conditions of a list of runs; all must hold. Of a list of values, a run has one; an empty list means any.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunFilter {
    /// Session that the runs belong to. Absent means any.
    pub session: Option<SessionId>,
    /// Statuses. Of all conditions, only this one may be met at one time and not at another.
    pub statuses: Vec<RunStatus>,
    /// Labels, all of which a run has.
    pub labels: BTreeMap<String, String>,
    /// Only runs of these agents; empty means all.
    pub agents: Vec<String>,
    /// Models, as `provider/model`.
    pub models: Vec<String>,
    /// Time of the run's first event.
    pub created: TimeRange,
    /// Text in the id or the preview, in any case. Empty means any.
    pub text: String,
    /// Caller that started the runs. Absent means any.
    pub created_by: Option<String>,
    /// The run at the top of the tree that the runs are part of. Absent means any.
    pub root: Option<RunId>,
}

impl RunFilter {
    /// True if the run meets every condition.
    #[must_use]
    pub fn matches(&self, row: &RunRow) -> bool {
        self.has_status(row.summary.status) && self.matches_for_good(row)
    }

    /// True if a run of this status meets the condition on the status.
    #[must_use]
    pub fn has_status(&self, status: RunStatus) -> bool {
        is_one_of(&status, &self.statuses)
    }

    /// True if the run meets every condition but that on its status. The result is the same for the whole life of the run.
    #[must_use]
    pub fn matches_for_good(&self, row: &RunRow) -> bool {
        self.session.as_ref().is_none_or(|session| row.session == *session)
            && self.created.contains(row.created_at)
            && self.root.as_ref().is_none_or(|root| row.run == *root)
            && is_one_of(&row.agent, &self.agents)
            && is_one_of(&row.model, &self.models)
            && has_labels(&row.labels, &self.labels)
            && (self.created_by.is_none() || row.created_by == self.created_by)
            && self.matches_text(row)
    }

    /// True if the run meets the condition on its texts.
    #[must_use]
    pub fn matches_text(&self, row: &RunRow) -> bool {
        self.text.is_empty() || contains(row.run.as_str(), &self.text) || contains(&row.preview, &self.text)
    }

    /// True if runs are left out that only a look at their rows can tell, so that few of many may be left.
    #[must_use]
    pub fn needs_rows(&self) -> bool {
        !(self.statuses.is_empty()
            && self.labels.is_empty()
            && self.agents.is_empty()
            && self.models.is_empty()
            && self.text.is_empty())
    }
}

/// Conditions of a list of open questions; all must hold. Of a list of values, a question has one; an empty list means any.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestFilter {
    /// Session whose runs ask. Absent means any.
    pub session: Option<SessionId>,
    /// Run that asks. Absent means any.
    pub run: Option<RunId>,
    /// Caller that started the runs which ask. Absent means any.
    pub created_by: Option<String>,
    /// Only questions of these kinds; empty means all.
    pub kinds: Vec<QuestionKind>,
    /// Tools of the calls that questions are about.
    pub tools: Vec<String>,
    /// Labels, all of which the run has.
    pub labels: BTreeMap<String, String>,
    /// Only questions of runs of these agents; empty means all.
    pub agents: Vec<String>,
    /// Models, as `provider/model`.
    pub models: Vec<String>,
    /// Time at which the question was asked.
    pub asked: TimeRange,
    /// Text in the question, its tool or its arguments as they are shown, in any case. Empty means any.
    pub text: String,
    /// The arguments that are not shown. If the text were sought in them, it would tell them letter by letter.
    pub masks: Masks,
    /// Somebody who may answer the question. Absent means any question.
    pub answerer: Option<Answerer>,
}

/// Somebody who answers questions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answerer {
    /// Their name and groups, and how far they are proved.
    pub person: Person,
    /// True if the roles allow decisions about calls.
    pub decides: bool,
    /// Questions that are not about a call.
    pub answers: AnswersInput,
}

/// The questions that are not about a call which somebody may answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswersInput {
    /// They may answer no such question.
    None,
    /// They may answer the questions of runs that they started.
    Own,
    /// They may answer the questions of every run of the tenant.
    All,
}

impl Answerer {
    /// True if the answer would count: the person may answer, and has not approved yet. `created_by` started the run.
    #[must_use]
    fn may_answer(&self, row: &RequestRow, created_by: Option<&str>) -> bool {
        let is_requester = self.person.is_proved && created_by == Some(self.person.name.as_str());
        if !row.question.kind.is_about_a_call() {
            return match self.answers {
                AnswersInput::None => false,
                AnswersInput::Own => is_requester,
                AnswersInput::All => true,
            };
        }
        let person = Person { is_requester, ..self.person.clone() };
        let has_approved = || row.approvals.iter().any(|approval| approval.by == person.name);
        self.decides && row.question.check_person(&person).is_ok() && !has_approved()
    }
}

impl RequestFilter {
    /// True if the question meets every condition. `run` is the run that asks.
    #[must_use]
    pub fn matches(&self, row: &RequestRow, run: &RunRow) -> bool {
        self.session.as_ref().is_none_or(|session| row.session == *session)
            && self.run.as_ref().is_none_or(|run| row.run == *run)
            && (self.created_by.is_none() || run.created_by == self.created_by)
            && self.asked.contains(row.question.asked_at)
            && is_one_of(&run.agent, &self.agents)
            && is_one_of(&run.model, &self.models)
            && has_labels(&run.labels, &self.labels)
            && self.matches_content(&row.question)
            && self.may_be_answered(row, run.created_by.as_deref())
    }

    /// True if the one who asks may answer the question. `created_by` started the run.
    #[must_use]
    pub fn may_be_answered(&self, row: &RequestRow, created_by: Option<&str>) -> bool {
        self.answerer.as_ref().is_none_or(|answerer| answerer.may_answer(row, created_by))
    }

    /// True if the question meets the conditions on its content.
    #[must_use]
    pub fn matches_content(&self, question: &Question) -> bool {
        is_one_of(&question.kind, &self.kinds)
            && is_one_of(&question.tool, &self.tools)
            && (self.text.is_empty() || self.is_in(question))
    }

    fn is_in(&self, question: &Question) -> bool {
        let masked = self.masks.mask(&question.tool, &question.arguments);
        let arguments = masked.as_ref().unwrap_or(&question.arguments);
        let texts = [&question.text(), question.tool.as_str(), arguments];
        texts.iter().any(|text| contains(text, &self.text))
            || unescaped(arguments).is_some_and(|text| contains(&text, &self.text))
    }
}

/// The JSON with its letters as people read them. Models may write any of them as a number. `None` where nothing is escaped.
fn unescaped(json: &str) -> Option<String> {
    json.contains('\\')
        .then(|| serde_json::from_str::<serde_json::Value>(json).ok())?
        .map(|value| value.to_string())
}

fn is_one_of<T: PartialEq>(value: &T, wanted: &[T]) -> bool {
    wanted.is_empty() || wanted.contains(value)
}

pub(super) fn has_labels(labels: &BTreeMap<String, String>, wanted: &BTreeMap<String, String>) -> bool {
    wanted.iter().all(|(key, value)| labels.get(key) == Some(value))
}

/// True if the text contains the other one, in any case.
pub(super) fn contains(text: &str, wanted: &str) -> bool {
    text.to_lowercase().contains(&wanted.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_that_a_model_has_escaped_are_found() {
        assert_eq!(unescaped(r#"{"where":"Z\u00fcrich"}"#).as_deref(), Some(r#"{"where":"Zürich"}"#));
        assert_eq!(unescaped(r#"{"where":"Zürich"}"#), None);
        assert_eq!(unescaped(r"\ no JSON"), None);
    }

    #[test]
    fn text_is_found_in_any_case_and_script() {
        for (text, wanted) in
            [("A trip to Ærø", "TRIP"), ("A trip to Ærø", "æRØ"), ("50 %_", "%_"), ("x", "x")]
        {
            assert!(contains(text, wanted), "{wanted} in {text}");
        }
        assert!(!contains("50 percent", "%") && !contains("ab", "a_"));
    }

    #[test]
    fn a_stretch_of_time_has_its_begin_and_not_its_end() {
        let range = TimeRange { from: Some(Timestamp(2)), before: Some(Timestamp(4)) };
        assert_eq!([1, 2, 3, 4].map(|at| range.contains(Timestamp(at))), [false, true, true, false]);
        assert!(TimeRange::default().contains(Timestamp(0)));
    }
}
