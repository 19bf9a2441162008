//! A timer for a deadline that changes often.

use std::pin::Pin;
use std::time::Duration;

use tokio::time::{Instant, Sleep};

/// Deadlines are computed from waits in whole milliseconds. The same deadline, computed twice, may differ by one.
const SAME: Duration = Duration::from_millis(1);

/// A timer that is armed for the deadline or for an earlier time.
///
/// The deadline of a run or of a model's response moves with nearly every event, and is mostly far away. If it moves later,
/// the timer is left alone, which saves an operation on the timer wheel. A timer that fires too early is armed again.
#[derive(Debug, Default)]
pub(crate) struct Alarm(Option<Pin<Box<Sleep>>>);

impl Alarm {
    /// Waits until `due`, or up to a millisecond longer. The future may be dropped at any time.
    pub(crate) async fn wait_until(&mut self, due: Instant) {
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
        alarm.wait_until(after(wait)).await;
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
        assert!(timeout(ms(10), alarm.wait_until(after(ms(200)))).await.is_err());
        let armed = alarm.armed_for();
        assert!(timeout(ms(10), alarm.wait_until(after(ms(60_000)))).await.is_err());
        assert_eq!(alarm.armed_for(), armed);
        assert!(
            timeout(ms(1_000), alarm.wait_until(after(ms(60_000)))).await.is_err(),
            "the timer fires for the earlier deadline and is armed again"
        );
        assert!(rings_after(&mut alarm, ms(30)).await <= ms(32), "a nearer deadline arms the timer at once");
    }
}
