//! Facts about the tool calls of earlier rounds, and the runtime that the tools use.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::id::{Attempt, CallSlot, HostId, RuntimeId};
use crate::message::ToolCall;
use crate::run::state::RunState;
use crate::text::canonical::{canonical_json, is_exact};
use crate::tool::Digest;

/// Facts about tool calls that outlive their round.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct ToolHistory {
    /// The calls of earlier rounds, each with the attempt whose result settled it.
    pub(super) settled: BTreeMap<CallSlot, Attempt>,
    /// Digests of the hosts' results of these calls, as the hosts sent them.
    pub(super) result_digests: BTreeMap<CallSlot, Digest>,
    pub(super) failures_in_a_row: u32,
    pub(super) repetition: Option<Repetition>,
    pub(super) runtime: Option<PlacedRuntime>,
}

/// The last tool call of the model, and how often it came in a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repetition {
    /// Digest of the tool's name and the arguments, as JSON compares them.
    call: Digest,
    times: u32,
}

impl Repetition {
    /// The repetition after one more call.
    #[must_use]
    pub fn next(before: Option<&Self>, call: &ToolCall) -> Self {
        // Numbers that are not known exactly would make different calls look the same.
        let arguments = match is_exact(&call.arguments) {
            true => Cow::Owned(canonical_json(&call.arguments)),
            false => Cow::Borrowed(call.arguments.as_str()),
        };
        let digest = Digest::of(&[call.name.as_bytes(), arguments.as_bytes()]);
        let times = before.filter(|before| before.call == digest).map_or(0, |before| before.times);
        Self { call: digest, times: times + 1 }
    }

    /// Number of times that the call came in a row, counted from 1.
    #[must_use]
    pub fn times(&self) -> u32 {
        self.times
    }
}

/// A runtime and the host that has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacedRuntime {
    /// Id of the runtime, unique within the tenant.
    pub id: RuntimeId,
    /// The host that opened it.
    pub host: HostId,
}

impl RunState {
    /// The calls of earlier rounds, each with the attempt whose result settled it; 0 if something else settled it.
    #[must_use]
    pub fn settled_calls(&self) -> &BTreeMap<CallSlot, Attempt> {
        &self.tools.settled
    }

    /// The attempt whose result settled a call of an earlier round; `None` if the call was in no earlier round.
    #[must_use]
    pub fn settled_by(&self, slot: CallSlot) -> Option<Attempt> {
        self.tools.settled.get(&slot).copied()
    }

    /// Digest of the result of a host that settled a call of an earlier round. `None` if something else settled it, or the
    /// journal does not have it.
    #[must_use]
    pub fn result_digest(&self, slot: CallSlot) -> Option<&Digest> {
        self.tools.result_digests.get(&slot)
    }

    /// Tool calls in a row that ended in an error.
    #[must_use]
    pub fn failures_in_a_row(&self) -> u32 {
        self.tools.failures_in_a_row
    }

    /// The last tool call and how often it came in a row; `None` before the first.
    #[must_use]
    pub fn repetition(&self) -> Option<&Repetition> {
        self.tools.repetition.as_ref()
    }

    /// The runtime of the run's tools: the last one, if there were several.
    #[must_use]
    pub fn runtime(&self) -> Option<&PlacedRuntime> {
        self.tools.runtime.as_ref()
    }

    /// True if the run is live and its tools use this runtime on this host.
    #[must_use]
    pub fn uses_runtime(&self, runtime: &RuntimeId, host: &HostId) -> bool {
        self.is_live() && self.runtime().is_some_and(|placed| (&placed.id, &placed.host) == (runtime, host))
    }
}
