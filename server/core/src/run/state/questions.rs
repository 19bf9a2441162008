//! The questions that people were asked, and the rules that their answers are remembered as.

use std::collections::BTreeMap;

use crate::id::{Attempt, RequestId};
use crate::policy::{Approvers, PolicyCall, PolicyRule, deciding_rule, required_approvers};
use crate::question::InputReply;
use crate::run::human::{Answer, PartialApproval, Question};
use crate::run::state::{RoundCall, RunState};

/// Questions, answers and remembered rules of a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Questions {
    pub(super) asked: BTreeMap<RequestId, AskedQuestion>,
    /// In the order in which they were remembered.
    pub(super) remembered: Vec<PolicyRule>,
}

/// A question that was asked, with its answer.
#[derive(Debug, Clone, PartialEq)]
pub struct AskedQuestion {
    /// The question as it was asked.
    pub question: Question,
    /// `None` while the question is open.
    pub answer: Option<Answer>,
    /// Approvals so far, of a question that needs several; without the one that answers it.
    pub approvals: Vec<PartialApproval>,
}

impl RunState {
    /// Every question of the run, open or answered.
    #[must_use]
    pub fn questions(&self) -> &BTreeMap<RequestId, AskedQuestion> {
        &self.questions.asked
    }

    /// The question with this id, if the run asked it.
    #[must_use]
    pub fn question(&self, request: &RequestId) -> Option<&AskedQuestion> {
        self.questions.asked.get(request)
    }

    /// The questions that wait for an answer, ordered by their id.
    pub fn open_questions(&self) -> impl Iterator<Item = &Question> {
        self.asked_and_open().map(|asked| &asked.question)
    }

    /// The questions that wait for an answer, with the approvals so far.
    pub fn asked_and_open(&self) -> impl Iterator<Item = &AskedQuestion> {
        self.questions.asked.values().filter(|asked| asked.answer.is_none())
    }

    /// The open question of the planner, which is about no tool call.
    #[must_use]
    pub fn planned_question(&self) -> Option<&Question> {
        self.open_questions().find(|question| question.slot.is_none())
    }

    /// The first open question that a running call asks.
    #[must_use]
    pub fn question_of(&self, call: &RoundCall) -> Option<&Question> {
        let mut open = self.open_questions().filter(|_| call.awaits_input());
        open.find(|question| question.slot == Some(call.slot) && question.input().is_some())
    }

    /// The answers to questions of the call's earlier attempts, in the order of the questions.
    #[must_use]
    pub fn answers_of_earlier_attempts(&self, call: &RoundCall) -> Vec<InputReply> {
        self.replies(call, |attempt| attempt < call.attempt).collect()
    }

    /// Bytes of the answers to the call's questions, of all attempts.
    #[must_use]
    pub fn answered_bytes(&self, call: &RoundCall) -> usize {
        self.replies(call, |_| true).map(|reply| reply.size()).sum()
    }

    fn replies<'a>(
        &'a self,
        call: &'a RoundCall,
        of_attempt: impl Fn(Attempt) -> bool + 'a,
    ) -> impl Iterator<Item = InputReply> + 'a {
        let inputs = call.inputs.iter().filter(move |asked| of_attempt(asked.attempt));
        inputs.filter_map(|asked| {
            let AskedQuestion { question, answer, .. } = self.question(&asked.request)?;
            let answer = answer.as_ref()?.decision.input_answer()?;
            Some(InputReply { input: question.input()?.to_owned(), answer })
        })
    }

    /// The rules that were remembered during the run, in order.
    #[must_use]
    pub fn remembered_rules(&self) -> &[PolicyRule] {
        &self.questions.remembered
    }

    /// All rules about the run's tool calls, in order: those of its spec, then those remembered during the run.
    pub fn rules(&self) -> impl Iterator<Item = &PolicyRule> {
        self.spec.tool_policy.rules.iter().chain(&self.questions.remembered)
    }

    /// The rule that decides about a call; `None` if no rule matches it.
    #[must_use]
    pub fn rule_for(&self, call: &PolicyCall) -> Option<&PolicyRule> {
        deciding_rule(self.rules(), call, self.spec.tool_policy.widening)
    }

    /// The people who must approve a call, by the rules that ask about it.
    #[must_use]
    pub fn approvers_of(&self, call: &PolicyCall) -> Approvers {
        required_approvers(self.rules(), call, self.spec.tool_policy.widening)
    }
}
