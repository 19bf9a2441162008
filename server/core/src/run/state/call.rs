//! One tool call of the current round.

use crate::id::{CallSlot, HostId, RequestId, RuntimeId};
use crate::message::ToolCall;
use crate::time::{Millis, Timestamp};
use crate::tool::{Digest, EffectClass};

/// A tool call of the current round.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// The call's place in its run.
    pub slot: CallSlot,
    /// As the model asked.
    pub wanted: ToolCall,
    /// What to run it with: the model's arguments, a hook's, or a human's.
    pub arguments: String,
    /// Whether a hook changed them last.
    pub changed_by_hook: bool,
    /// What running it twice means.
    pub effect: EffectClass,
    /// From offer to result.
    pub timeout: Millis,
    /// Whether a human's answer is its result.
    pub asks_human: bool,
    /// Whether it needs a runtime.
    pub needs_runtime: bool,
    /// What it is called where people read of it; empty where its tool says nothing.
    pub title: String,
    /// The runtime of the last try.
    pub runtime: Option<RuntimeId>,
    /// The last try; 0 before the first.
    pub attempt: u32,
    /// The try whose answer settled it; 0 while it is open, and where something else settled it.
    pub answered: u32,
    /// The host of the last try.
    pub host: Option<HostId>,
    /// When it was first offered.
    pub first_offered: Option<Timestamp>,
    /// What the last try saved.
    pub checkpoint: Option<Vec<u8>>,
    /// Questions of the last try that wait for a human.
    pub asking: u32,
    /// Where it stands.
    pub state: CallState,
}

/// Where a tool call stands.
#[derive(Debug, Clone, PartialEq)]
pub enum CallState {
    /// The model asked for it; nothing is known of it yet.
    Proposed,
    /// Waits for a human's leave.
    AwaitingApproval {
        /// The question; `None` until it is asked, in the same step.
        request: Option<RequestId>,
    },
    /// Waits until it is decided what to do with it.
    Held {
        /// Whether a human has to say so too.
        leave: Leave,
    },
    /// Waits for its turn, and for a host with room.
    Ready {
        /// Since when.
        since: Timestamp,
        /// Not before this.
        not_before: Option<Timestamp>,
    },
    /// Given to a host.
    Offered {
        /// When; or when the last question that it asked was settled.
        at: Timestamp,
    },
    /// The host works on it.
    Accepted {
        /// When it was offered, or when the last question that it asked was settled.
        at: Timestamp,
    },
    /// It may or may not have run.
    InDoubt {
        /// The question; `None` until it is asked, in the same step.
        request: Option<RequestId>,
        /// Since when.
        since: Timestamp,
    },
    /// A human's answer is its result.
    AwaitingInput {
        /// The question; `None` until it is asked, in the same step.
        request: Option<RequestId>,
    },
    /// It has its one result.
    Settled,
}

/// Whether a human lets a call run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leave {
    /// Nobody has to be asked.
    NotNeeded,
    /// Somebody has to be.
    Needed,
    /// Somebody said yes.
    Given,
}

impl Call {
    /// Whether a host has it.
    #[must_use]
    pub fn in_flight(&self) -> bool {
        matches!(self.state, CallState::Offered { .. } | CallState::Accepted { .. })
    }

    /// Whether a host has it and waits for a human's word.
    #[must_use]
    pub fn asks(&self) -> bool {
        self.in_flight() && self.asking > 0
    }

    /// Whether a human is to move it.
    #[must_use]
    pub fn awaits_human(&self) -> bool {
        matches!(
            self.state,
            CallState::AwaitingApproval { .. } | CallState::AwaitingInput { .. } | CallState::InDoubt { .. }
        ) || self.asks()
    }

    /// Whether it goes on by itself, or is about to.
    #[must_use]
    pub fn moves(&self) -> bool {
        match &self.state {
            CallState::Proposed
            | CallState::Ready { .. }
            | CallState::Offered { .. }
            | CallState::Accepted { .. } => true,
            CallState::AwaitingApproval { request }
            | CallState::AwaitingInput { request }
            | CallState::InDoubt { request, .. } => request.is_none(),
            CallState::Held { .. } | CallState::Settled => false,
        }
    }

    /// Whether it has its result.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.state == CallState::Settled
    }

    /// When the current try is given up. Not while it waits for a human.
    #[must_use]
    pub fn deadline(&self) -> Option<Timestamp> {
        if self.asks() { None } else { self.time_is_up() }
    }

    /// When the current try would be given up if it did not wait for anybody.
    #[must_use]
    pub fn time_is_up(&self) -> Option<Timestamp> {
        match self.state {
            CallState::Offered { at } | CallState::Accepted { at } => Some(at.after(self.timeout)),
            CallState::Proposed
            | CallState::AwaitingApproval { .. }
            | CallState::Held { .. }
            | CallState::Ready { .. }
            | CallState::InDoubt { .. }
            | CallState::AwaitingInput { .. }
            | CallState::Settled => None,
        }
    }

    /// Of what a human approves.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of(&[self.wanted.name.as_bytes(), self.arguments.as_bytes()])
    }
}
