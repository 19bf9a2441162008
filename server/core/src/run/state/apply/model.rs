//! Events of model calls.

use crate::entry::CompactionReason;
use crate::id::{Attempt, EntryNo};
use crate::message::{FinishReason, SharedMessage, Usage};
use crate::run::state::conversation::LastMessage;
use crate::run::state::{ModelCall, Phase, Repetition, RoundCall, RunState};
use crate::run::status::RunError;
use crate::time::{Millis, Timestamp};

/// Tokens and time of one model call.
pub(super) struct Spent {
    pub(super) usage: Usage,
    pub(super) time: Millis,
}

impl RunState {
    pub(super) fn model_call_started(&mut self, number: u32, attempt: Attempt, first_counted: Attempt) {
        self.remember_settled_calls();
        // In older journals, the call after a compaction is another attempt of the call before it.
        let is_new = number != self.counters.model_calls;
        self.counters.iterations += u32::from(is_new && !self.last_call_was_unsent());
        self.counters.model_calls = number;
        self.phase = Phase::ModelRunning(ModelCall { number, attempt, first_counted, since: self.now() });
    }

    pub(super) fn model_call_failed(&mut self, error: &RunError, retry_at: Option<Timestamp>) {
        self.last_error = Some(error.clone());
        self.counters.calls.failed_model_attempts += 1;
        if let (Phase::ModelRunning(call), Some(until)) = (&self.phase, retry_at) {
            self.phase = Phase::BackingOff { call: *call, until };
        }
    }

    pub(super) fn assistant_message(
        &mut self,
        entry: EntryNo,
        message: &SharedMessage,
        finish: &FinishReason,
        spent: Spent,
        full: Option<CompactionReason>,
    ) {
        self.counters.usage += spent.usage;
        self.counters.calls.model_calls += 1;
        self.counters.model_time = self.counters.model_time.plus(spent.time);
        self.context.compactions = 0;
        self.context.due = full;
        self.last_error = None;
        self.conversation.last_message =
            Some(LastMessage { entry, message: message.clone(), finish: Some(finish.clone()) });
        // Nobody reads it without a limit, and each call would be parsed for it.
        let is_counted = self.spec.limits.max_repeated_calls.is_some();
        for call in message.tool_calls().filter(|_| is_counted) {
            self.tools.repetition = Some(Repetition::next(self.tools.repetition.as_ref(), call));
        }
        let round: Vec<RoundCall> = message.tool_calls().map(RoundCall::requested_by_model).collect();
        self.counters.tool_rounds += u32::from(!round.is_empty());
        self.phase =
            if round.is_empty() { Phase::Observed { finish: finish.clone() } } else { Phase::Tools(round) };
    }
}
