//! An owner's lease, as the owner sees it: the time for which nobody can have taken its shards.

use crate::time::{Millis, Timestamp};

/// The times of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseTimes {
    /// Time from the start of a beat to the start of the next.
    pub beat_every: Millis,
    /// For how long an owner trusts its lease, from the moment at which it sent the last beat that was confirmed.
    pub trusted: Millis,
    /// For how long a counter must not change before its owner is suspected.
    pub suspected_after: Millis,
    /// A beat is sent only if the server's runtime has moved within this time. A server that beats and does nothing else
    /// would keep its shards from everybody.
    pub pulse_within: Millis,
    /// A gap in one's own beats after which earlier counters of others prove nothing.
    pub gap: Millis,
    /// For how long nobody is suspected after such a gap. When a database comes back, all replicas do at once.
    pub quiet_after_gap: Millis,
    /// Shards that nobody has claimed for this long are claimed by anybody, whatever its share.
    pub unclaimed_for: Millis,
}

impl Default for LeaseTimes {
    fn default() -> Self {
        Self::from_lease(Millis(2_500))
    }
}

impl LeaseTimes {
    /// The times for a lease of this length: others wait for all of it, its owner trusts it for 0.8 of that.
    #[must_use]
    pub fn from_lease(lease: Millis) -> Self {
        Self {
            beat_every: Millis(lease.0 / 25 * 6),
            trusted: Millis(lease.0 / 5 * 4),
            suspected_after: lease,
            pulse_within: Millis(lease.0 / 5 * 2),
            gap: Millis(lease.0 / 5 * 4),
            quiet_after_gap: Millis(lease.0.saturating_mul(6)),
            unclaimed_for: lease,
        }
    }
}

/// The lease of one owner.
#[derive(Debug, Clone)]
pub struct OwnerLease {
    times: LeaseTimes,
    /// Sending of the last beat that was confirmed.
    confirmed: Option<Timestamp>,
    /// Last movement of the runtime.
    pulse: Timestamp,
    next_beat: Timestamp,
    is_beating: bool,
}

impl OwnerLease {
    /// A lease that no beat has confirmed yet.
    #[must_use]
    pub fn new(times: LeaseTimes, now: Timestamp) -> Self {
        Self { times, confirmed: None, pulse: now, next_beat: now, is_beating: false }
    }

    /// True if nobody can have fenced this owner.
    #[must_use]
    pub fn is_valid(&self, now: Timestamp) -> bool {
        self.confirmed.is_some_and(|sent| now.since(sent) < self.times.trusted)
    }

    /// The server's runtime moves.
    pub fn handle_pulse(&mut self, now: Timestamp) {
        self.pulse = self.pulse.max(now);
    }

    /// True if a beat is to be sent now. Call [`Self::handle_response`] or [`Self::handle_failure`] when it has ended.
    #[must_use]
    pub fn poll_beat(&mut self, now: Timestamp) -> bool {
        let moves = now.since(self.pulse) < self.times.pulse_within;
        if self.is_beating || now < self.next_beat || !moves {
            return false;
        }
        self.is_beating = true;
        self.next_beat = now.after(self.times.beat_every);
        true
    }

    /// The response to a beat that was sent at `sent`. Returns true if it follows the last response without a gap.
    pub fn handle_response(&mut self, sent: Timestamp) -> bool {
        self.is_beating = false;
        let before = self.confirmed;
        self.confirmed = before.max(Some(sent));
        before.is_none_or(|before| sent.since(before) < self.times.gap)
    }

    /// A beat failed, or nobody knows. The lease goes on as long as the last response makes it.
    pub fn handle_failure(&mut self) {
        self.is_beating = false;
    }

    /// The time at which [`Self::poll_beat`] may want a beat. It stays in the past while a beat is under way or the runtime
    /// stands still: then call that again after a while, not at once.
    #[must_use]
    pub fn deadline(&self) -> Timestamp {
        self.next_beat
    }
}
