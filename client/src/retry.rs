//! Backoff: the number of retries of a call, and the waits between them.

use std::time::Duration;

use crate::Error;

/// Exponential backoff with full jitter, for calls that failed for a passing reason. A wait that the server gives is
/// honoured up to [`Backoff::max`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// Attempts after the first. For streams: attempts in a row without a single event.
    pub max_retries: u32,
    /// Bound on the first wait. It doubles for each further one.
    pub initial: Duration,
    /// Bound on every wait.
    pub max: Duration,
}

impl Default for Backoff {
    /// Eight retries with bounds from 100 ms to 5 s, enough for a restart of the server.
    fn default() -> Self {
        Backoff { max_retries: 8, initial: Duration::from_millis(100), max: Duration::from_secs(5) }
    }
}

impl Backoff {
    /// No retries: the first failure is the result.
    pub const NEVER: Backoff = Backoff { max_retries: 0, initial: Duration::ZERO, max: Duration::ZERO };

    /// The wait before retry number `retry`, counted from 0.
    pub(crate) fn wait(&self, retry: u32) -> Duration {
        let bound = self.initial.saturating_mul(2u32.saturating_pow(retry)).min(self.max);
        bound.mul_f64(rand::random::<f64>())
    }
}

/// The retries of one call or stream.
#[derive(Debug)]
pub(crate) struct Retries {
    backoff: Backoff,
    used: u32,
}

impl Retries {
    pub(crate) fn new(backoff: Backoff) -> Self {
        Retries { backoff, used: 0 }
    }

    /// The wait before the next attempt. `None` if `error` is lasting, or the retries are used up.
    pub(crate) fn after(&mut self, error: &Error) -> Option<Duration> {
        if !error.is_transient() {
            return None;
        }
        self.next(error.retry_after())
    }

    /// Uses up one retry, for any reason. `given` is the wait that the server gives.
    pub(crate) fn next(&mut self, given: Option<Duration>) -> Option<Duration> {
        if self.used >= self.backoff.max_retries {
            return None;
        }
        let wait = self.backoff.wait(self.used).max(given.unwrap_or_default()).min(self.backoff.max);
        self.used += 1;
        Some(wait)
    }

    /// Counts from 0 again, after progress.
    pub(crate) fn reset(&mut self) {
        self.used = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_are_bounded_and_start_over_after_progress() {
        let mut retries = Retries::new(Backoff { max_retries: 2, ..Backoff::default() });
        let lost = Error::Unreachable("lost".into());
        assert!(retries.after(&lost).is_some());
        assert!(retries.after(&lost).is_some());
        assert_eq!(retries.after(&lost), None);
        retries.reset();
        assert!(retries.after(&lost).is_some());
    }

    #[test]
    fn a_lasting_error_is_not_retried() {
        let mut retries = Retries::new(Backoff::default());
        assert_eq!(retries.after(&Error::Incomplete("result")), None);
    }

    #[test]
    fn waits_stay_within_their_bounds() {
        let backoff = Backoff::default();
        for retry in 0..200 {
            assert!(backoff.wait(retry) <= backoff.max);
        }
        assert!(backoff.wait(0) <= backoff.initial);
    }

    #[test]
    fn a_wait_that_the_server_gives_is_bounded() {
        let mut retries = Retries::new(Backoff::default());
        assert_eq!(retries.next(Some(Duration::from_secs(3600))), Some(Backoff::default().max));
    }
}
