//! One tool call of the current round.

use crate::id::{Attempt, CallSlot, HostId, InstanceId, RequestId, RuntimeId, Seq};
use crate::message::ToolCall;
use crate::time::{Millis, Timestamp};
use crate::tool::{Digest, EffectClass};

/// A tool call of the current round.
#[derive(Debug, Clone, PartialEq)]
pub struct RoundCall {
    /// The slot of the call in its run.
    pub slot: CallSlot,
    /// The call as the model requested it.
    pub requested: ToolCall,
    /// Arguments that the call runs with: the model's, a hook's or a person's.
    pub arguments: String,
    /// True if a hook was the last to change the arguments.
    pub edited_by_hook: bool,
    /// The terms of the tool.
    pub terms: CallTerms,
    /// Approvals of the call.
    pub approvals: CallApprovals,
    /// The time of the first offer.
    pub first_offered: Option<Timestamp>,
    /// The last attempt; 0 before the first.
    pub attempt: Attempt,
    /// The last attempt, as it is so far.
    pub last: LastAttempt,
    /// Attempts that are not like others.
    pub attempts: AttemptCounts,
    /// The last state that an attempt left to go on from.
    pub resume: Option<ResumeState>,
    /// Questions that the call's attempts asked, in order.
    pub inputs: Vec<AskedInput>,
    /// The result that settled the call.
    pub settled_by: SettlingResult,
    /// The state of the call.
    pub state: CallState,
}

/// The terms of a tool as they hold for a call. They become stricter with each host that offers the call stricter ones.
#[derive(Debug, Clone, PartialEq)]
pub struct CallTerms {
    /// Digest of the terms that a human is asked about, if they are known.
    pub digest: Option<Digest>,
    /// The effect of running the call twice. It rises with stricter terms and never falls.
    pub effect: EffectClass,
    /// Time allowed for one attempt, from offer to result.
    pub timeout: Millis,
    /// True if a passed deadline is the outcome of a call that must not run twice. Otherwise the call is in doubt then.
    pub deadline_is_outcome: bool,
    /// True if a person's answer is the result: no host runs the call.
    pub asks_human: bool,
    /// True if the call needs a runtime.
    pub needs_runtime: bool,
    /// The tool's title, for people; empty if the tool declares none.
    pub title: String,
}

/// Approvals of a call.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CallApprovals {
    /// True if a human was asked for approval.
    pub were_asked: bool,
    /// Digests of the terms that humans approved. `None` covers any terms: it comes from an older journal.
    pub terms: Vec<Option<Digest>>,
}

/// The last attempt of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct LastAttempt {
    /// The host that was offered it.
    pub host: Option<HostId>,
    /// The process behind the host's id, if it gave its name.
    pub instance: Option<InstanceId>,
    /// The runtime that the host runs it in, if the tool needs one.
    pub runtime: Option<RuntimeId>,
    /// Digest of the schema of the typed output under which it was offered, if it is known.
    pub output_schema: Option<Digest>,
    /// The event that its timeout runs from: its offer, or the last answer to a question of the call; 0 before the first offer.
    pub timed_from: Seq,
    /// The checkpoint that it saved.
    pub checkpoint: Option<Vec<u8>>,
    /// Number of its questions that nobody has answered.
    pub open_inputs: u32,
    /// True if a person answered a question of it.
    pub heard_person: bool,
}

/// Attempts of a call that are not like others.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AttemptCounts {
    /// Attempts that may have run, and after which no human had the call run again.
    pub doubtful: Vec<Attempt>,
    /// True if a human had a call run again of which an attempt may have run.
    pub repeated_in_doubt: bool,
    /// Attempts that hosts rejected because they had no room. They are no tries.
    pub busy: u32,
    /// Attempts that ended with a question which a person answered. They are no tries.
    pub answered: u32,
}

/// The result that settled a call.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SettlingResult {
    /// The attempt that gave it; 0 while the call is open, or if something else settled it.
    pub attempt: Attempt,
    /// Its digest as the host sent it. `None` if the journal does not have it.
    pub digest: Option<Digest>,
}

impl SettlingResult {
    /// The result of an attempt if `host` gave it, else one of something else. `digest` is that of the outcome.
    pub(super) fn of(host: Option<&HostId>, attempt: Attempt, digest: Option<&Digest>) -> Self {
        Self { attempt: if host.is_some() { attempt } else { Attempt::NONE }, digest: digest.cloned() }
    }
}

/// A state that a call goes on from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResumeState {
    /// The attempt that left it.
    pub attempt: Attempt,
    /// Its number within the attempt; 0 if it came with a question.
    pub no: u64,
    /// Opaque bytes of the tool.
    pub state: Vec<u8>,
}

/// A question that an attempt of a call asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AskedInput {
    /// The attempt that asked.
    pub attempt: Attempt,
    /// Id of the question.
    pub request: RequestId,
}

/// The state of a tool call.
#[derive(Debug, Clone, PartialEq)]
pub enum CallState {
    /// The model requested the call; its tool has not been looked up yet.
    Proposed,
    /// A person must approve the call.
    AwaitingApproval {
        /// The question; `None` until it is asked, by the same input.
        request: Option<RequestId>,
    },
    /// The run is directed, and no instruction has released the call yet.
    AwaitingInstruction {
        /// The approval that the call may need beside the instruction.
        approval: Approval,
    },
    /// The call waits for the calls before it, or for a host with room.
    Ready {
        /// The time at which the call became ready.
        since: Timestamp,
        /// The earliest time of the next attempt.
        not_before: Option<Timestamp>,
    },
    /// The call was given to a host.
    Offered {
        /// The time of the offer, or of the last answer to a question of the call: the timeout runs from here.
        at: Timestamp,
    },
    /// A host runs the call.
    Accepted {
        /// The time that the timeout runs from, as in [`Self::Offered`].
        at: Timestamp,
    },
    /// The call may or may not have run.
    InDoubt {
        /// The question; `None` until it is asked, by the same input.
        request: Option<RequestId>,
        /// The time at which the doubt began.
        since: Timestamp,
        /// The deadline of the attempt.
        due: Timestamp,
        /// The reason of the doubt, for people.
        why: String,
    },
    /// A person's answer will be the result.
    AwaitingInput {
        /// The question; `None` until it is asked, by the same input.
        request: Option<RequestId>,
    },
    /// The call has asked and left a state to go on from. No host has it until its questions are answered.
    Suspended {
        /// The time at which its host was released.
        since: Timestamp,
    },
    /// The call has its one result.
    Settled,
}

/// A person's approval of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Approval {
    /// Nobody has to be asked.
    NotNeeded,
    /// A person must be asked.
    Needed,
    /// A person has approved.
    Given,
}

impl CallTerms {
    /// The terms of a tool that has not been looked up yet.
    fn unknown() -> Self {
        Self {
            digest: None,
            effect: EffectClass::Unsafe,
            timeout: Millis(0),
            deadline_is_outcome: false,
            asks_human: false,
            needs_runtime: false,
            title: String::new(),
        }
    }
}

impl LastAttempt {
    /// The state before the first offer.
    fn none() -> Self {
        Self {
            host: None,
            instance: None,
            runtime: None,
            output_schema: None,
            timed_from: Seq(0),
            checkpoint: None,
            open_inputs: 0,
            heard_person: false,
        }
    }
}

impl RoundCall {
    /// A call of which nothing is known but the model's message.
    pub(super) fn requested_by_model(requested: &ToolCall) -> Self {
        Self {
            slot: requested.slot,
            arguments: requested.arguments.clone(),
            edited_by_hook: false,
            requested: requested.clone(),
            terms: CallTerms::unknown(),
            approvals: CallApprovals::default(),
            first_offered: None,
            attempt: Attempt::NONE,
            last: LastAttempt::none(),
            attempts: AttemptCounts::default(),
            resume: None,
            inputs: Vec::new(),
            settled_by: SettlingResult::default(),
            state: CallState::Proposed,
        }
    }

    /// Attempts that count as tries.
    #[must_use]
    pub fn tries(&self) -> u32 {
        self.attempt.0 - self.attempts.busy - self.attempts.answered
    }

    /// True if the host promised that going on from a recorded state does not repeat what was done, whatever came after
    /// the state. A state that came with a question promises that only for the time until its answer.
    #[must_use]
    pub fn is_resumable(&self) -> bool {
        self.resume.as_ref().is_some_and(|resume| resume.no > 0)
    }

    /// True if the host of the last attempt was released with a question: it has no word in the call any more.
    #[must_use]
    pub fn was_released(&self) -> bool {
        self.resume.as_ref().is_some_and(|resume| resume.no == 0 && resume.attempt == self.attempt)
    }

    /// True while a host has the call.
    #[must_use]
    pub fn in_flight(&self) -> bool {
        matches!(self.state, CallState::Offered { .. } | CallState::Accepted { .. })
    }

    /// True while an open question of the call itself waits for a person's answer.
    #[must_use]
    pub fn awaits_input(&self) -> bool {
        (self.in_flight() || matches!(self.state, CallState::Suspended { .. })) && self.last.open_inputs > 0
    }

    /// True while the call may or may not have run.
    #[must_use]
    pub fn is_in_doubt(&self) -> bool {
        matches!(self.state, CallState::InDoubt { .. })
    }

    /// True while the call waits for a person.
    #[must_use]
    pub fn awaits_human(&self) -> bool {
        matches!(
            self.state,
            CallState::AwaitingApproval { .. }
                | CallState::AwaitingInput { .. }
                | CallState::Suspended { .. }
                | CallState::InDoubt { .. }
        ) || self.awaits_input()
    }

    /// True while the call goes on without a person or an instruction, or is about to.
    #[must_use]
    pub fn can_progress(&self) -> bool {
        match &self.state {
            CallState::Proposed
            | CallState::Ready { .. }
            | CallState::Offered { .. }
            | CallState::Accepted { .. } => true,
            CallState::AwaitingApproval { request }
            | CallState::AwaitingInput { request }
            | CallState::InDoubt { request, .. } => request.is_none(),
            CallState::AwaitingInstruction { .. } | CallState::Suspended { .. } | CallState::Settled => false,
        }
    }

    /// True once the call has its result.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.state == CallState::Settled
    }

    /// The process that the call was offered to, unless it is known to have begun there.
    #[must_use]
    pub fn unbegun_at(&self) -> Option<&InstanceId> {
        self.last.instance.as_ref().filter(|_| matches!(self.state, CallState::Offered { .. }))
    }

    /// The time at which the attempt is given up; `None` while it waits for a person.
    #[must_use]
    pub fn deadline(&self) -> Option<Timestamp> {
        if self.awaits_input() { None } else { self.timeout_at() }
    }

    /// The time at which the attempt is given up unless it waits for a person.
    #[must_use]
    pub fn timeout_at(&self) -> Option<Timestamp> {
        match self.state {
            CallState::Offered { at } | CallState::Accepted { at } => Some(at.after(self.terms.timeout)),
            CallState::Proposed
            | CallState::AwaitingApproval { .. }
            | CallState::AwaitingInstruction { .. }
            | CallState::Ready { .. }
            | CallState::InDoubt { .. }
            | CallState::AwaitingInput { .. }
            | CallState::Suspended { .. }
            | CallState::Settled => None,
        }
    }

    /// True if the call is in doubt when its deadline passes, because it must not run twice and may have run.
    #[must_use]
    pub fn is_doubtful_at_deadline(&self) -> bool {
        !self.terms.effect.repeatable() && !self.terms.deadline_is_outcome
    }

    /// True if a person approved the call under these terms.
    #[must_use]
    pub fn is_approved_under(&self, terms: &Digest) -> bool {
        self.approvals.terms.iter().any(|approved| approved.as_ref().is_none_or(|approved| approved == terms))
    }

    /// Digest of the tool's name and the arguments: the content that a person approves.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of(&[self.requested.name.as_bytes(), self.arguments.as_bytes()])
    }

    /// True if only a person's answer to a running call can move this one: it asks itself, or all free slots are taken
    /// by calls that ask.
    pub(super) fn waits_for_input(&self, round: &[Self], free_slots: usize) -> bool {
        let blocked = matches!(self.state, CallState::Ready { .. }) && free_slots == 0;
        self.awaits_input() || (blocked && round.iter().all(|call| call.awaits_input() || !call.in_flight()))
    }
}
