//! Requests that the run has carried out, so that a repeated request gets its response and is not carried out twice.

use std::collections::{BTreeMap, BTreeSet};

use crate::id::{RequestId, RunId, Seq};
use crate::run::state::RunState;
use crate::run::status::RunStatus;
use crate::tool::Digest;

/// The ids of requests that were carried out, by kind.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct CarriedOut {
    /// Ids of the calls of `ResumeRun`.
    pub(super) resumed: BTreeSet<String>,
    /// Requests that gave messages to the live run, each with the digest of its content.
    pub(super) steered: BTreeMap<RunId, Digest>,
    /// The calls of `Step`, by the id of the request.
    pub(super) steps: BTreeMap<String, StepRequest>,
}

/// A call of `Step` that was carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepRequest {
    /// The event with its instruction.
    pub seq: Seq,
    /// The question that the call named for approval.
    pub approve: Option<RequestId>,
}

impl RunState {
    /// True if the run has ever waited for somebody outside: a human, an operator or a caller of `Step`.
    #[must_use]
    pub fn has_waited_for_somebody(&self) -> bool {
        self.spec.stepped
            || !self.questions.asked.is_empty()
            || !self.carried_out.resumed.is_empty()
            || self.status().is_some_and(RunStatus::is_interrupted)
    }

    /// True if this call of `ResumeRun` was carried out.
    #[must_use]
    pub fn was_resumed_by(&self, request: &str) -> bool {
        self.carried_out.resumed.contains(request)
    }

    /// The digest of the request that gave messages to the live run; `None` if there was no such request.
    #[must_use]
    pub fn steered_by(&self, request: &RunId) -> Option<&Digest> {
        self.carried_out.steered.get(request)
    }

    /// The calls of `Step` that were carried out, by the id of the request.
    #[must_use]
    pub fn steps(&self) -> &BTreeMap<String, StepRequest> {
        &self.carried_out.steps
    }
}
