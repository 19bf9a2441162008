//! Something that is waited for on one timer, however often the time changes.

use std::pin::Pin;
use std::time::Duration;

use tokio::time::{Instant, Sleep};

/// Waits are told in whole milliseconds: the same time, told twice, may differ by one.
const SAME: Duration = Duration::from_millis(1);

/// A timer that is armed for some time at or before what is waited for.
///
/// What a run or a model's answer is waited for changes with nearly all that happens, and is mostly far away. A time
/// that moves away leaves the timer alone, so that it costs no trip to the timer wheel; when it fires too early, it is
/// armed again.
#[derive(Debug, Default)]
pub(crate) struct Alarm(Option<Pin<Box<Sleep>>>);

impl Alarm {
    /// Until it is `due`, or a millisecond later. May be given up at any time.
    pub(crate) async fn ring(&mut self, due: Instant) {
        let timer = self.0.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(due)));
        if due + SAME < timer.deadline() {
            timer.as_mut().reset(due);
        }
        loop {
            timer.as_mut().await;
            if Instant::now() >= due {
                return;
            }
            timer.as_mut().reset(due);
        }
    }

    #[cfg(test)]
    pub(crate) fn armed_for(&self) -> Option<Instant> {
        self.0.as_ref().map(|timer| timer.deadline())
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn after(wait: Duration) -> Instant {
        Instant::now() + wait
    }

    async fn rings_after(alarm: &mut Alarm, wait: Duration) -> Duration {
        let began = Instant::now();
        alarm.ring(after(wait)).await;
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn it_rings_when_the_wait_is_over() {
        let mut alarm = Alarm::default();
        for wait in [ms(50), ms(50), ms(10_000), ms(3), ms(0)] {
            let rang = rings_after(&mut alarm, wait).await;
            assert!(rang >= wait && rang <= wait + 2 * SAME, "{rang:?} for {wait:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_time_that_moves_away_leaves_the_timer_alone() {
        let mut alarm = Alarm::default();
        assert!(timeout(ms(10), alarm.ring(after(ms(200)))).await.is_err());
        let armed = alarm.armed_for();
        assert!(timeout(ms(10), alarm.ring(after(ms(60_000)))).await.is_err());
        assert_eq!(alarm.armed_for(), armed);
        assert!(
            timeout(ms(1_000), alarm.ring(after(ms(60_000)))).await.is_err(),
            "the early one is not heard"
        );
        assert!(rings_after(&mut alarm, ms(30)).await <= ms(32), "one that comes nearer is");
    }
}
