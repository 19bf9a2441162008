//! The true effects of tool calls, whatever their hosts say.

use std::collections::{BTreeMap, BTreeSet};

use agentloop_core::id::CallId;

/// The true effects of hosts, independent of their reports.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// The number of times that each call took effect.
    pub(crate) effects: BTreeMap<CallId, u32>,
    /// The outputs that hosts sent for each call.
    pub(crate) outputs: BTreeMap<CallId, BTreeSet<String>>,
}
