//! The source of the time of day. The core takes the time as an argument; only the code around it reads a clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use agentloop_core::time::{Millis, Timestamp};

/// Tells the time of day.
///
/// The time may jump, because operators and time servers set clocks. Arithmetic on [`Timestamp`] saturates, so a jump
/// back only makes a wait longer.
pub trait Clock: Send + Sync + 'static {
    /// The time of day, in milliseconds since 1970.
    fn now(&self) -> Timestamp;
}

/// The operating system's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock that all others use")]
    fn now(&self) -> Timestamp {
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Timestamp(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX))
    }
}

/// A clock for tests that stands still until it is moved. Clones share one time.
#[derive(Debug, Clone, Default)]
pub struct TestClock(Arc<AtomicU64>);

impl TestClock {
    /// A clock that stands at `now`.
    #[must_use]
    pub fn at(now: Timestamp) -> Self {
        Self(Arc::new(AtomicU64::new(now.0)))
    }

    /// Moves the clock forward.
    pub fn advance(&self, length: Millis) {
        self.0.fetch_add(length.0, Ordering::SeqCst);
    }

    /// Sets the clock, forward or back.
    pub fn set(&self, now: Timestamp) {
        self.0.store(now.0, Ordering::SeqCst);
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_clock_is_past_the_writing_of_this_test() {
        assert!(SystemClock.now() > Timestamp(1_790_000_000_000));
    }

    #[test]
    fn the_test_clock_moves_only_when_told() {
        let clock = TestClock::at(Timestamp(5));
        let same = clock.clone();
        clock.advance(Millis(2));
        assert_eq!(same.now(), Timestamp(7));
        same.set(Timestamp(1));
        assert_eq!(clock.now(), Timestamp(1));
    }
}
