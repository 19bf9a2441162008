//! The moment at which an owner took the run over, and the calls that hosts had by then.

use std::collections::BTreeMap;

use crate::id::{Attempt, CallSlot, Seq};
use crate::run::state::RoundCall;
use crate::time::{Millis, Timestamp};

/// Time that hosts have after a restart to come back with calls of before it. It holds even if a call's own time is up:
/// its result may be waiting at the host.
const RECLAIM_GRACE: Millis = Millis::secs(30);

/// Time for the result of such a call once its host has confirmed it: a result that waited there follows at once.
const CONFIRMED_GRACE: Millis = Millis::secs(5);

/// The moment at which an owner took the run over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::run) struct Recovery {
    at: Timestamp,
    /// The last event of the owner before. The next event may have the same time.
    seq: Seq,
    /// The calls of before it that hosts have confirmed to this owner, each with its attempt and the time of that. It is not in
    /// the journal: the next owner reclaims it from the hosts.
    confirmed: BTreeMap<CallSlot, (Attempt, Timestamp)>,
}

impl Recovery {
    pub(in crate::run) fn new(at: Timestamp, seq: Seq) -> Self {
        Self { at, seq, confirmed: BTreeMap::new() }
    }

    /// True if a host was given the call before this owner took the run over.
    pub(super) fn concerns(&self, call: &RoundCall) -> bool {
        call.in_flight() && call.last.timed_from <= self.seq
    }

    /// Notes that the host of such a call has it. The first time counts: the call's time is not put off when the host says so
    /// again.
    pub(super) fn confirm(&mut self, slot: CallSlot, attempt: Attempt, at: Timestamp) {
        let known = self.confirmed.get(&slot).is_some_and(|(of, _)| *of == attempt);
        if !known {
            self.confirmed.insert(slot, (attempt, at));
        }
    }

    /// The time before which such a call is not given up, so that its result can come; `None` for any other call.
    pub(super) fn not_before(&self, call: &RoundCall) -> Option<Timestamp> {
        if !self.concerns(call) {
            return None;
        }
        let returns_by = self.at.after(RECLAIM_GRACE);
        let confirmed = self.confirmed.get(&call.slot).filter(|(attempt, _)| *attempt == call.attempt);
        Some(confirmed.map_or(returns_by, |(_, at)| at.after(CONFIRMED_GRACE).min(returns_by)))
    }
}
