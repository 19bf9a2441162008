//! The time to the next attempt of a failed model call, second by second.

use std::time::{Duration, SystemTime};

use agentloop_client::v1::{ModelCallFailed, RunEvent, RunStatus, run_event::Event};
use prost_types::Timestamp;

const SECOND: Duration = Duration::from_secs(1);

/// The time of the next attempt, as the events of a run tell it. Without one, nothing is counted down.
#[derive(Debug, Default)]
pub(super) struct Countdown {
    next_try: Option<SystemTime>,
}

impl Countdown {
    /// Handles an event that is seen `now`: a failed attempt begins a countdown, and the end of the wait ends it.
    pub(super) fn handle(&mut self, event: &RunEvent, now: SystemTime) {
        match &event.event {
            Some(Event::ModelCallFailed(failed)) => self.next_try = next_try(failed, event.at.as_ref(), now),
            _ if event.status() != RunStatus::BackingOff => self.next_try = None,
            _ => {}
        }
    }

    /// The time that is left, if one is counted down.
    pub(super) fn left(&self, now: SystemTime) -> Option<Duration> {
        self.next_try.map(|at| at.duration_since(now).unwrap_or_default())
    }

    /// Waits until one second less is left; for ever if nothing is.
    pub(super) async fn next_second(&self) {
        match self.left(SystemTime::now()).filter(|left| !left.is_zero()) {
            Some(left) => tokio::time::sleep(to_next_second(left)).await,
            None => std::future::pending().await,
        }
    }
}

/// The time of the next attempt by the clock of this machine.
fn next_try(failed: &ModelCallFailed, failed_at: Option<&Timestamp>, now: SystemTime) -> Option<SystemTime> {
    let retry_at = SystemTime::try_from(failed.retry_at?).ok()?;
    let left = retry_at.duration_since(now).unwrap_or_default();
    // The server's clock may be ahead of the one here, but no wait is longer than the server's own.
    let failed_at = failed_at.and_then(|at| SystemTime::try_from(*at).ok());
    let wait = failed_at.and_then(|at| retry_at.duration_since(at).ok()).unwrap_or(left);
    now.checked_add(left.min(wait))
}

/// The time until another whole number of seconds is left, where a second that has begun counts as one.
fn to_next_second(left: Duration) -> Duration {
    match Duration::from_nanos(left.subsec_nanos().into()) {
        Duration::ZERO => left.min(SECOND),
        more => more,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_000;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
    }

    fn event(status: RunStatus, event: Event) -> RunEvent {
        RunEvent { at: Some(at(NOW)), status: status.into(), event: Some(event), ..RunEvent::default() }
    }

    fn failed(retry_at: Option<u64>) -> RunEvent {
        let failed = ModelCallFailed { retry_at: retry_at.map(at), ..ModelCallFailed::default() };
        event(RunStatus::BackingOff, Event::ModelCallFailed(failed))
    }

    /// The seconds that are left after these events, by a clock that shows this many seconds.
    fn left(events: &[RunEvent], clock: u64) -> Option<u64> {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(clock);
        let mut countdown = Countdown::default();
        events.iter().for_each(|event| countdown.handle(event, now));
        countdown.left(now).map(|left| left.as_secs())
    }

    #[test]
    fn a_failed_attempt_is_counted_down_until_the_wait_ends() {
        let told = event(RunStatus::BackingOff, Event::InputMessage(Default::default()));
        let started = event(RunStatus::ModelRunning, Event::ModelCallStarted(Default::default()));
        assert_eq!(left(&[failed(Some(NOW + 5))], NOW), Some(5));
        assert_eq!(left(&[failed(Some(NOW + 5)), told], NOW), Some(5), "the wait goes on");
        assert_eq!(left(&[failed(Some(NOW + 5)), started], NOW), None);
        assert_eq!(left(&[failed(Some(NOW + 5)), failed(None)], NOW), None, "there is no further attempt");
    }

    #[test]
    fn neither_the_past_nor_another_clock_makes_the_wait_longer() {
        assert_eq!(left(&[failed(Some(NOW + 5))], NOW + 3), Some(2), "it was joined late");
        assert_eq!(left(&[failed(Some(NOW + 5))], NOW + 60), Some(0), "it is over");
        assert_eq!(left(&[failed(Some(NOW + 5))], NOW - 60), Some(5), "the clock here is behind");
    }

    #[test]
    fn the_number_changes_at_whole_seconds() {
        for (left, next) in [(5_000, 1_000), (4_999, 999), (4_001, 1), (300, 300), (0, 0)] {
            assert_eq!(to_next_second(Duration::from_millis(left)), Duration::from_millis(next), "{left}");
        }
    }
}
