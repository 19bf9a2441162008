//! A transition while it is being decided: the state after the events so far, and these events.

use crate::id::{Attempt, CallSlot, RequestId};
use crate::question::InputAnswer;
use crate::run::effect::{CancelCause, Effect};
use crate::run::event::{Event, Record};
use crate::run::input::ResponseSoFar;
use crate::run::state::RunState;
use crate::run::status::RunStatus;
use crate::run::transition::recovery::Recovery;
use crate::time::Timestamp;

/// The message for the host of a call whose deadline passed.
pub(in crate::run) const DEADLINE_PASSED: &str = "the call's deadline passed";

/// Collects the events that an input leads to, and the messages for hosts.
pub(in crate::run) struct TransitionBuilder<'a> {
    state: &'a mut RunState,
    /// The time of the input.
    pub(super) now: Timestamp,
    /// The moment at which this owner took the run over; `None` if the run began here.
    pub(in crate::run) recovery: Option<Recovery>,
    /// The call of `Step` that waits for its instruction.
    pub(super) pending_step: &'a mut Option<PendingStep>,
    /// The response of the model call that is under way, if the driver has some of it.
    pub(super) response_so_far: Option<ResponseSoFar>,
    records: Vec<Record>,
    /// Messages for the hosts of running calls: answers to questions, acknowledged states, or that their time is up.
    host_messages: Vec<Effect>,
}

/// A call of `Step` whose instruction is not decided yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::run) struct PendingStep {
    pub(in crate::run) request: String,
    pub(in crate::run) approve: Option<RequestId>,
}

impl<'a> TransitionBuilder<'a> {
    pub(in crate::run) fn new(
        state: &'a mut RunState,
        pending_step: &'a mut Option<PendingStep>,
        now: Timestamp,
        recovery: Option<Recovery>,
        response_so_far: Option<ResponseSoFar>,
    ) -> Self {
        Self {
            state,
            now,
            recovery,
            pending_step,
            response_so_far,
            records: Vec::new(),
            host_messages: Vec::new(),
        }
    }

    /// The state after the events so far.
    pub(super) fn state(&self) -> &RunState {
        self.state
    }

    /// Decides on an event. It is applied at once, so that later decisions see it.
    pub(super) fn emit(&mut self, event: Event) {
        let mut record =
            Record { seq: self.state.seq().next(), at: self.now, status: RunStatus::Preparing, event };
        self.state.apply(&record);
        record.status = self.state.status().expect("a run with an event has a status");
        self.records.push(record);
    }

    /// Tells a host the answer to a question of its call.
    pub(super) fn answer(&mut self, slot: CallSlot, attempt: Attempt, input: String, answer: InputAnswer) {
        self.host_messages.push(Effect::AnswerInput { slot, attempt, input, answer });
    }

    /// Tells a host that the state of its call is recorded.
    pub(super) fn ack_resume_state(&mut self, slot: CallSlot, attempt: Attempt, resume_no: u64) {
        self.host_messages.push(Effect::AckResumeState { slot, attempt, resume_no });
    }

    /// Tells a host that the time of its call is up. The call still waits for the host's word on that.
    pub(super) fn cancel_at_deadline(&mut self, slot: CallSlot, attempt: Attempt) {
        let (cause, reason) = (CancelCause::Deadline, DEADLINE_PASSED.to_owned());
        self.host_messages.push(Effect::CancelCall { slot, attempt, cause, reason });
    }

    /// The events, and the messages for hosts, which follow the other effects.
    pub(in crate::run) fn finish(self) -> (Vec<Record>, Vec<Effect>) {
        (self.records, self.host_messages)
    }
}
