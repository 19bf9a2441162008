//! The bounds on the time of one call, on one timer.

use std::time::Duration;

use agentloop_core::agent::ModelTimeouts;
use tokio::time::Instant;

use crate::alarm::Alarm;
use crate::model::{ModelError, ModelErrorKind};

/// As good as never.
const FAR: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

/// How long a call may still take.
pub(super) struct Clock {
    alarm: Alarm,
    total: Instant,
    /// Gone once the first event has come.
    first_event: Option<Instant>,
    idle: Duration,
}

impl Clock {
    pub(super) fn start(timeouts: &ModelTimeouts) -> Self {
        let now = Instant::now();
        Self {
            alarm: Alarm::default(),
            total: after(now, timeouts.total.duration()),
            first_event: Some(after(now, timeouts.first_token.duration())),
            idle: timeouts.idle.duration(),
        }
    }

    /// The first event has come: from here on, silence is bounded.
    pub(super) fn heard(&mut self) {
        self.first_event = None;
    }

    /// What the future gives, if it gives it in time.
    ///
    /// # Errors
    /// When it does not. The total is looked at before anything else, so that a provider that always has something to
    /// say cannot outrun it.
    pub(super) async fn within<T>(&mut self, future: impl Future<Output = T>) -> Result<T, ModelError> {
        let now = Instant::now();
        if now >= self.total {
            return Err(too_long());
        }
        let silent = self.first_event.unwrap_or_else(|| after(now, self.idle));
        tokio::select! { biased;
            value = future => Ok(value),
            () = self.alarm.ring(self.total.min(silent)) => {
                Err(if self.total <= silent { too_long() } else { self.silence() })
            }
        }
    }

    fn silence(&self) -> ModelError {
        let what = match self.first_event {
            Some(_) => "no event came in time",
            None => "the stream went silent",
        };
        ModelError::new(ModelErrorKind::Timeout, what)
    }
}

fn too_long() -> ModelError {
    ModelError::new(ModelErrorKind::Timeout, "the answer took too long in all")
}

fn after(now: Instant, wait: Duration) -> Instant {
    now.checked_add(wait).unwrap_or_else(|| now + FAR)
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use agentloop_core::time::Millis;

    use super::*;

    fn clock(total: u64, first_token: u64, idle: u64) -> Clock {
        let [total, first_token, idle] = [total, first_token, idle].map(Millis::secs);
        Clock::start(&ModelTimeouts { total, first_token, idle, ..ModelTimeouts::default() })
    }

    async fn piece_after(clock: &mut Clock, seconds: u64) -> Result<(), String> {
        let wait = tokio::time::sleep(Duration::from_secs(seconds));
        clock.within(wait).await.map_err(|error| error.message)
    }

    /// Seconds until the clock gives up.
    async fn patience(clock: &mut Clock) -> (u64, String) {
        let began = Instant::now();
        let error = clock.within(pending::<()>()).await.unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::Timeout);
        // The timer's ticks need not be where the test began.
        ((began.elapsed() + Duration::from_millis(500)).as_secs(), error.message)
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_event_is_waited_for_from_the_start() {
        let mut clock = clock(100, 10, 3);
        piece_after(&mut clock, 4).await.unwrap();
        assert_eq!(patience(&mut clock).await, (6, "no event came in time".to_owned()));
    }

    #[tokio::test(start_paused = true)]
    async fn silence_is_counted_from_the_last_piece_on() {
        let mut clock = clock(100, 10, 3);
        clock.heard();
        for _ in 0..10 {
            piece_after(&mut clock, 2).await.unwrap();
        }
        assert_eq!(patience(&mut clock).await, (3, "the stream went silent".to_owned()));
    }

    #[tokio::test(start_paused = true)]
    async fn the_total_counts_through_all_pieces() {
        let mut clock = clock(20, 10, 15);
        clock.heard();
        piece_after(&mut clock, 12).await.unwrap();
        assert_eq!(patience(&mut clock).await, (8, "the answer took too long in all".to_owned()));
        let at_once = clock.within(std::future::ready(())).await.unwrap_err();
        assert_eq!(
            at_once.message, "the answer took too long in all",
            "even where there is always something"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_piece_leaves_the_timer_alone() {
        let mut clock = clock(100, 10, 30);
        let armed = Some(after(Instant::now(), Duration::from_secs(10)));
        piece_after(&mut clock, 1).await.unwrap();
        assert_eq!(clock.alarm.armed_for(), armed);
        clock.heard();
        for _ in 0..8 {
            piece_after(&mut clock, 1).await.unwrap();
            assert_eq!(clock.alarm.armed_for(), armed);
        }
        let before = Instant::now();
        piece_after(&mut clock, 2).await.unwrap();
        assert_eq!(
            clock.alarm.armed_for(),
            Some(after(before, Duration::from_secs(30))),
            "it fired, and is armed again"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn bounds_beyond_all_time_are_none() {
        let mut clock = Clock::start(&ModelTimeouts {
            total: Millis(u64::MAX),
            first_token: Millis(u64::MAX),
            idle: Millis(u64::MAX),
            ..ModelTimeouts::default()
        });
        piece_after(&mut clock, 1_000_000).await.unwrap();
        clock.heard();
        piece_after(&mut clock, 1_000_000).await.unwrap();
    }
}
