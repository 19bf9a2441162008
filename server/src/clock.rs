//! The source of the time of day. The core takes the time as an argument; only the code around it reads a clock.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use agentloop_core::time::{Millis, Timestamp};

/// Tells the time of day.
///
/// Every wait of a run follows it, so it should pass evenly. If the clock is behind a run's last event,
/// the run uses the time of that event. So a jump back, also one over a restart, makes no wait longer than when it began.
pub trait Clock: Send + Sync + 'static {
    /// The time of day, in milliseconds since 1970.
    fn now(&self) -> Timestamp;
}

/// The time of day when the process first read this clock, and the time that passed since. Setting the operating system's
/// clock changes nothing until the next start. Time in which the machine sleeps counts.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        static CLOCK: OnceLock<SteadyClock<fn() -> Duration>> = OnceLock::new();
        CLOCK.get_or_init(|| SteadyClock::new(time_of_day, running)).now()
    }
}

/// A clock that reads the time of day once, and adds the time that passes by another clock, which nobody sets.
pub struct SteadyClock<R> {
    time_of_day: Timestamp,
    began: Duration,
    running: R,
}

impl<R: Fn() -> Duration> SteadyClock<R> {
    /// Reads both clocks. `running` tells the time since some moment before, and never goes back.
    pub fn new(time_of_day: impl FnOnce() -> Timestamp, running: R) -> Self {
        Self { time_of_day: time_of_day(), began: running(), running }
    }
}

impl<R: Fn() -> Duration + Send + Sync + 'static> Clock for SteadyClock<R> {
    fn now(&self) -> Timestamp {
        let passed = (self.running)().saturating_sub(self.began);
        self.time_of_day.after(Millis::of(passed))
    }
}

impl<R> fmt::Debug for SteadyClock<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SteadyClock")
            .field("time_of_day", &self.time_of_day)
            .field("began", &self.began)
            .finish_non_exhaustive()
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the clock that all others use")]
fn time_of_day() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp(Millis::of(since_epoch).0)
}

/// Time since some moment before the process, by a clock that nobody sets and that goes on while the machine sleeps.
fn running() -> Duration {
    // Elsewhere than on Linux, the monotonic clock is the one that may count sleep.
    #[cfg(target_os = "linux")]
    let clock = rustix::time::ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    let clock = rustix::time::ClockId::Monotonic;
    Duration::try_from(rustix::time::clock_gettime(clock)).unwrap_or_default()
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
    fn the_system_clock_never_goes_back() {
        let times: Vec<Timestamp> = (0..1_000).map(|_| SystemClock.now()).collect();
        assert!(times.is_sorted());
    }

    #[test]
    fn time_passes_by_the_clock_that_nobody_sets() {
        // It had run before.
        let passed = TestClock::at(Timestamp(300));
        let running = passed.clone();
        let clock = SteadyClock::new(|| Timestamp(5_000), move || Duration::from_millis(running.now().0));
        assert_eq!(clock.now(), Timestamp(5_000));
        passed.advance(Millis(7));
        assert_eq!(clock.now(), Timestamp(5_007));
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
