//! The ids of a run, and the secrets that follow from its seed.

use std::sync::Arc;

use crate::id::{Attempt, CallId, CallSlot, RunId, SessionId};
use crate::run::state::RunState;
use crate::tool::Digest;
use crate::trace::{RunTrace, TraceParent};

/// Set when the run starts, and never changed after that.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RunIdentity {
    pub(super) run: RunId,
    /// `None` until the run starts.
    pub(super) session: Option<SessionId>,
    /// The run's only source of chance, drawn once by the caller.
    pub(super) seed: u64,
    /// The span of the caller that started the run.
    pub(super) traceparent: Option<TraceParent>,
    /// Groups of that caller. Each call's request to a host shares them.
    pub(super) caller_groups: Arc<[String]>,
    /// True if idempotency keys do not show the seed.
    pub(super) hidden_seed: bool,
}

impl RunIdentity {
    pub(super) fn new(run: RunId) -> Self {
        Self {
            run,
            session: None,
            seed: 0,
            traceparent: None,
            caller_groups: Arc::default(),
            hidden_seed: false,
        }
    }
}

impl RunState {
    /// Id of the run, unique within its tenant.
    #[must_use]
    pub fn run(&self) -> &RunId {
        &self.identity.run
    }

    /// The session that the run belongs to; `None` until the run starts.
    #[must_use]
    pub fn session(&self) -> Option<&SessionId> {
        self.identity.session.as_ref()
    }

    /// The run's only source of chance: jitter, leases and idempotency keys follow from it.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.identity.seed
    }

    /// The span of the caller that started the run.
    #[must_use]
    pub fn traceparent(&self) -> Option<TraceParent> {
        self.identity.traceparent
    }

    /// Groups of the caller that started the run, as they were at its start.
    #[must_use]
    pub fn caller_groups(&self) -> &Arc<[String]> {
        &self.identity.caller_groups
    }

    /// The trace and span ids of the run.
    #[must_use]
    pub fn trace(&self) -> RunTrace {
        RunTrace::new(self.run().clone(), self.started_at(), self.traceparent())
    }

    /// The full id of a tool call of this run.
    #[must_use]
    pub fn call_id(&self, slot: CallSlot) -> CallId {
        CallId { run: self.run().clone(), slot }
    }

    /// The secret that proves that a host was given this attempt. It is derived, so a restart does not lose it.
    #[must_use]
    pub fn lease(&self, slot: CallSlot, attempt: Attempt) -> Digest {
        Digest::of(&[
            b"lease",
            &self.seed().to_le_bytes(),
            &slot.model_call.to_le_bytes(),
            &slot.position.to_le_bytes(),
            &attempt.0.to_le_bytes(),
        ])
    }

    /// The key by which a tool recognises a repeated call: the same for every attempt. A tool cannot compute the seed from its
    /// key. With the seed it could compute the leases of calls that other hosts were given. Runs of earlier versions
    /// show it: their keys must not change while they go on.
    #[must_use]
    pub fn idempotency_key(&self, slot: CallSlot) -> String {
        if !self.identity.hidden_seed {
            return format!("{:016x}-{slot}", self.seed());
        }
        let key = Digest::of(&[
            b"idempotency key",
            &self.seed().to_le_bytes(),
            &slot.model_call.to_le_bytes(),
            &slot.position.to_le_bytes(),
        ]);
        key.as_str().to_owned()
    }
}
