//! When a replica may fence another one: the other's counter has stood still for longer than any lease lasts.

use std::collections::BTreeMap;

use crate::cluster::lease::LeaseTimes;
use crate::cluster::shard::{Beat, OwnerNo};
use crate::time::Timestamp;

/// An owner that may be fenced, if its counter still stands there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Suspect {
    /// The owner whose counter stands still.
    pub owner: OwnerNo,
    /// Its counter. The fence holds only if it has not moved since.
    pub beat: Beat,
}

/// The counters of others, and since when they stand still.
#[derive(Debug, Clone)]
pub struct Suspicion {
    times: LeaseTimes,
    seen: BTreeMap<OwnerNo, Seen>,
    quiet_until: Timestamp,
}

#[derive(Debug, Clone, Copy)]
struct Seen {
    beat: Beat,
    /// Arrival of the response that showed this counter first.
    since: Timestamp,
    /// Arrival of the response that showed the owner first.
    met: Timestamp,
}

impl Suspicion {
    /// Has seen no counters, so it suspects nobody.
    #[must_use]
    pub fn new(times: LeaseTimes) -> Self {
        Self { times, seen: BTreeMap::new(), quiet_until: Timestamp(0) }
    }

    /// Forgets the counters of others after a gap in one's own beats: the database may have been away for everybody.
    pub fn handle_gap(&mut self, now: Timestamp) {
        self.seen.clear();
        self.quiet_until = now.after(self.times.quiet_after_gap);
    }

    /// The counters of all others, as a beat has found them that was sent at `sent` and confirmed at `now`. Returns who
    /// is to be fenced.
    pub fn handle_beats(
        &mut self,
        beats: impl IntoIterator<Item = (OwnerNo, Beat)>,
        sent: Timestamp,
        now: Timestamp,
    ) -> Vec<Suspect> {
        let before = std::mem::take(&mut self.seen);
        let mut suspects = Vec::new();
        for (owner, beat) in beats {
            let seen = match before.get(&owner) {
                Some(seen) if seen.beat == beat => *seen,
                Some(seen) => Seen { beat, since: now, met: seen.met },
                None => Seen { beat, since: now, met: now },
            };
            // Measured from a response to a request: the time in the database between the two is at least as long.
            let still = sent.since(seen.since);
            if still >= self.times.suspected_after && now >= self.quiet_until {
                suspects.push(Suspect { owner, beat });
            }
            self.seen.insert(owner, seen);
        }
        suspects
    }

    /// True of an owner that still beats, for so long after it was met that one which had died at once would be suspected.
    #[must_use]
    pub fn is_steady(&self, owner: OwnerNo) -> bool {
        self.seen.get(&owner).is_some_and(|seen| seen.since.since(seen.met) >= self.times.suspected_after)
    }
}
