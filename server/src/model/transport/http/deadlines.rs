//! Time limits of one model call, on a single timer.

use std::time::Duration;

use agentloop_core::agent::ModelTimeouts;
use tokio::time::Instant;

use crate::alarm::Alarm;
use crate::model::{ModelError, ModelErrorKind};

/// Used if a limit is too large for the clock.
const FAR: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

/// Remaining time of a call.
pub(super) struct CallDeadlines {
    alarm: Alarm,
    total: Instant,
    /// Deadline of the first event; `None` once it has arrived.
    first_event: Option<Instant>,
    idle: Duration,
}

impl CallDeadlines {
    pub(super) fn start(timeouts: &ModelTimeouts) -> Self {
        let now = Instant::now();
        Self {
            alarm: Alarm::default(),
            total: after(now, timeouts.total.duration()),
            first_event: Some(after(now, timeouts.first_token.duration())),
            idle: timeouts.idle.duration(),
        }
    }

    /// Records that the first event has arrived. From here on the idle timeout applies.
    pub(super) fn first_event_arrived(&mut self) {
        self.first_event = None;
    }

    /// Waits for the future until the next deadline.
    ///
    /// # Errors
    /// If a deadline passes first. The total deadline is checked before the future is polled, so that a
    /// provider that always has something to send cannot outrun it.
    pub(super) async fn within<T>(&mut self, future: impl Future<Output = T>) -> Result<T, ModelError> {
        let now = Instant::now();
        if now >= self.total {
            return Err(total_error());
        }
        let silent = self.first_event.unwrap_or_else(|| after(now, self.idle));
        tokio::select! { biased;
            value = future => Ok(value),
            () = self.alarm.wait_until(self.total.min(silent)) => {
                Err(if self.total <= silent { total_error() } else { self.silence_error() })
            }
        }
    }

    fn silence_error(&self) -> ModelError {
        let what = match self.first_event {
            Some(_) => "no event came in time",
            None => "the stream went silent",
        };
        ModelError::new(ModelErrorKind::Timeout, what)
    }
}

fn total_error() -> ModelError {
    ModelError::new(ModelErrorKind::Timeout, "the response took too long in all")
}

fn after(now: Instant, wait: Duration) -> Instant {
    now.checked_add(wait).unwrap_or_else(|| now + FAR)
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use agentloop_core::time::Millis;

    use super::*;

    fn start(total: u64, first_token: u64, idle: u64) -> CallDeadlines {
        let [total, first_token, idle] = [total, first_token, idle].map(Millis::secs);
        CallDeadlines::start(&ModelTimeouts { total, first_token, idle, ..ModelTimeouts::default() })
    }

    async fn piece_after(deadlines: &mut CallDeadlines, seconds: u64) -> Result<(), String> {
        let wait = tokio::time::sleep(Duration::from_secs(seconds));
        deadlines.within(wait).await.map_err(|error| error.message)
    }

    /// Seconds until the deadlines end a wait.
    async fn patience(deadlines: &mut CallDeadlines) -> (u64, String) {
        let began = Instant::now();
        let error = deadlines.within(pending::<()>()).await.unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::Timeout);
        // The timer's ticks need not coincide with the start of the test.
        ((began.elapsed() + Duration::from_millis(500)).as_secs(), error.message)
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_event_is_waited_for_from_the_start() {
        let mut deadlines = start(100, 10, 3);
        piece_after(&mut deadlines, 4).await.unwrap();
        assert_eq!(patience(&mut deadlines).await, (6, "no event came in time".to_owned()));
    }

    #[tokio::test(start_paused = true)]
    async fn silence_is_counted_from_the_last_piece_on() {
        let mut deadlines = start(100, 10, 3);
        deadlines.first_event_arrived();
        for _ in 0..10 {
            piece_after(&mut deadlines, 2).await.unwrap();
        }
        assert_eq!(patience(&mut deadlines).await, (3, "the stream went silent".to_owned()));
    }

    #[tokio::test(start_paused = true)]
    async fn the_total_counts_through_all_pieces() {
        let mut deadlines = start(20, 10, 15);
        deadlines.first_event_arrived();
        piece_after(&mut deadlines, 12).await.unwrap();
        assert_eq!(patience(&mut deadlines).await, (8, "the response took too long in all".to_owned()));
        let at_once = deadlines.within(std::future::ready(())).await.unwrap_err();
        assert_eq!(
            at_once.message, "the response took too long in all",
            "even where there is always something"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_piece_leaves_the_timer_alone() {
        let mut deadlines = start(100, 10, 30);
        let armed = Some(after(Instant::now(), Duration::from_secs(10)));
        piece_after(&mut deadlines, 1).await.unwrap();
        assert_eq!(deadlines.alarm.armed_for(), armed);
        deadlines.first_event_arrived();
        for _ in 0..8 {
            piece_after(&mut deadlines, 1).await.unwrap();
            assert_eq!(deadlines.alarm.armed_for(), armed);
        }
        let before = Instant::now();
        piece_after(&mut deadlines, 2).await.unwrap();
        assert_eq!(
            deadlines.alarm.armed_for(),
            Some(after(before, Duration::from_secs(30))),
            "it fired, and is armed again"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn bounds_beyond_all_time_are_none() {
        let mut deadlines = CallDeadlines::start(&ModelTimeouts {
            total: Millis(u64::MAX),
            first_token: Millis(u64::MAX),
            idle: Millis(u64::MAX),
            ..ModelTimeouts::default()
        });
        piece_after(&mut deadlines, 1_000_000).await.unwrap();
        deadlines.first_event_arrived();
        piece_after(&mut deadlines, 1_000_000).await.unwrap();
    }
}
