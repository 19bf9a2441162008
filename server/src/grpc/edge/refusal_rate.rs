//! The refusals that the audit log has room for. Each tenant has its own room, and beyond it refusals are only counted: a flood
//! must not fill the disk, nor hide what others are refused.

use std::collections::{BTreeMap, HashMap};

use tokio::time::Instant;

/// Refusals that are written at once before they are only counted.
const REFUSALS_BURST: u32 = 100;
/// Refusals a second that are written for good.
const REFUSALS_PER_SECOND: u32 = 10;
/// Causes that are counted apart from each other, and the length of their names in bytes. Other replicas name some.
const CAUSES_MAX: usize = 64;
const CAUSE_BYTES_MAX: usize = 64;
/// Rooms that are kept before those with all of their room left are dropped.
const ROOMS_MAX: usize = 1_024;

/// Number of refusals that have no rows of their own, by the name of their cause.
pub(in crate::grpc) type CountedRefusals = BTreeMap<String, u64>;

/// Counts refusals of this cause. There are few causes.
pub(in crate::grpc) fn count(counted: &mut CountedRefusals, cause: &str, more: u64) {
    let is_new = counted.len() < CAUSES_MAX && cause.len() <= CAUSE_BYTES_MAX;
    let is_known = is_new || counted.contains_key(cause);
    let count = counted.entry(if is_known { cause } else { "other" }.to_owned()).or_default();
    *count = count.saturating_add(more);
}

/// The rooms by their names, and the refusals that had none.
#[derive(Default)]
pub(super) struct RefusalRooms {
    rooms: HashMap<String, Room>,
    pub(super) counted: CountedRefusals,
}

impl RefusalRooms {
    /// True if a refusal may be written now. Otherwise it is counted.
    pub(super) fn take(&mut self, room: &str, cause: &str) -> bool {
        let now = Instant::now();
        if self.rooms.len() >= ROOMS_MAX && !self.rooms.contains_key(room) {
            self.rooms.retain(|_, room| room.filled(now).left < REFUSALS_BURST);
        }
        let known = self.rooms.get(room).copied().unwrap_or(Room { left: REFUSALS_BURST, at: now });
        let mut filled = known.filled(now);
        let has_room = filled.left > 0;
        filled.left = filled.left.saturating_sub(1);
        self.rooms.insert(room.to_owned(), filled);
        if !has_room {
            count(&mut self.counted, cause, 1);
        }
        has_room
    }
}

/// Refusals that may be written.
#[derive(Clone, Copy)]
struct Room {
    left: u32,
    at: Instant,
}

impl Room {
    /// The room as it is now.
    fn filled(self, now: Instant) -> Self {
        let seconds = u32::try_from(now.duration_since(self.at).as_secs()).unwrap_or(u32::MAX);
        if seconds == 0 {
            return self;
        }
        let left = self.left.saturating_add(seconds.saturating_mul(REFUSALS_PER_SECOND));
        Self { left: left.min(REFUSALS_BURST), at: now }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_flood_in_one_room_leaves_the_others_alone() {
        let mut rooms = RefusalRooms::default();
        let written = (0..10_000).filter(|_| rooms.take("noisy", "denied")).count();
        assert_eq!(written, REFUSALS_BURST as usize);
        assert!(rooms.take("quiet", "denied") && !rooms.take("noisy", "denied"));
        assert_eq!(rooms.counted["denied"], 10_001 - u64::from(REFUSALS_BURST));
        tokio::time::advance(Duration::from_secs(1)).await;
        let written = (0..100).filter(|_| rooms.take("noisy", "denied")).count();
        assert_eq!(written, REFUSALS_PER_SECOND as usize);
    }

    #[test]
    fn names_of_causes_are_few_and_short() {
        let mut counted = CountedRefusals::new();
        count(&mut counted, &"x".repeat(65), 2);
        for cause in 0..1_000 {
            count(&mut counted, &cause.to_string(), 1);
        }
        count(&mut counted, "7", 5);
        assert!(counted.len() <= CAUSES_MAX + 1, "{}", counted.len());
        assert_eq!((counted["7"], counted.values().sum::<u64>()), (6, 1_007));
    }
}
