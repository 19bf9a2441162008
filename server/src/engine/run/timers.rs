//! Wakes parked runs when their time comes: a question expires, or a long backoff is over.

use std::sync::Arc;
use std::time::Duration;

use agentloop_core::id::RunKey;
use agentloop_core::time::Timestamp;
use futures_util::StreamExt as _;
use tokio::sync::Notify;

use crate::engine::Engine;
use crate::engine::deps::recovery_bounds::BRING_UP_TOGETHER;
use crate::engine::error::EngineError;
use crate::store::StoreError;

/// Due runs that are read from the store and woken at a time.
const BATCH: u32 = 256;
/// The longest sleep, so that a change of the system clock is noticed.
const SLEEP_MAX: Duration = Duration::from_secs(60);
/// The longest sleep while runs are being woken, and the sleep while the store does not respond.
const SLEEP_MIN: Duration = Duration::from_secs(1);

const MILLISECOND: Duration = Duration::from_millis(1);
/// The least time between two looks for due runs while some are being woken.
const WAKE_APART: Duration = Duration::from_millis(20);

/// Tells the timer task that the earliest wake time may have changed.
#[derive(Clone, Default)]
pub(in crate::engine) struct WakeSignal(Arc<Notify>);

impl WakeSignal {
    /// A run has parked, and its wake time is in the store.
    pub(in crate::engine) fn run_parked(&self) {
        self.0.notify_one();
    }
}

/// The timer task: wakes due runs, then sleeps until the next one is due.
pub(in crate::engine) async fn watch(engine: Engine) {
    let stop = engine.deps().tasks.soft().clone();
    while !stop.is_cancelled() {
        let sleep = wake_due(&engine).await;
        tokio::select! { biased;
            () = stop.cancelled() => return,
            () = engine.wake_signal().0.notified() => {}
            () = tokio::time::sleep(sleep) => {}
        }
    }
}

/// Wakes due runs and returns the time to sleep afterwards.
async fn wake_due(engine: &Engine) -> Duration {
    let now = engine.deps().clock.now();
    let (due, next) = match read_due(engine, now).await {
        Ok(found) => found,
        Err(error) => {
            tracing::warn!(%error, "cannot read the due runs from the store; trying again");
            return SLEEP_MIN;
        }
    };
    let woken = futures_util::stream::iter(&due).for_each_concurrent(BRING_UP_TOGETHER, |key| async move {
        match engine.ensure_live(key).await {
            Ok(()) | Err(EngineError::ShuttingDown) => {}
            Err(error) => tracing::warn!(run.id = %key.run, %error, "cannot wake a run"),
        }
    });
    woken.await;
    until_next_look(due.len(), next.map_or(SLEEP_MAX, |next| next.since(now).duration()))
}

/// The sleep after so many runs were woken, where the next one is due in that time. Runs that were woken stay due until they have
/// written something, so the store is not read at once.
fn until_next_look(woken: usize, next: Duration) -> Duration {
    match woken {
        0 => next.clamp(MILLISECOND, SLEEP_MAX),
        _ => next.clamp(WAKE_APART, SLEEP_MIN),
    }
}

/// The next due runs, and the time at which one is due after them. Runs that are kept live because the clock was set back
/// stay due by their rows; they must not hide others.
async fn read_due(engine: &Engine, now: Timestamp) -> Result<(Vec<RunKey>, Option<Timestamp>), StoreError> {
    let store = &engine.deps().store;
    let found = store.due(now, BATCH).await?;
    let is_full = found.0.len() >= usize::try_from(BATCH).unwrap_or(usize::MAX);
    if is_full && found.0.iter().all(|key| engine.0.live_runs.live(key).is_some()) {
        let live = u32::try_from(engine.0.live_runs.len()).unwrap_or(u32::MAX);
        return store.due(now, BATCH.saturating_add(live)).await;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_is_due_soon_after_another_one_is_not_late() {
        let soon = Duration::from_millis(30);
        assert_eq!((until_next_look(1, soon), until_next_look(0, soon)), (soon, soon));
        assert_eq!(until_next_look(1, Duration::ZERO), WAKE_APART, "the store is not asked all the time");
        assert_eq!(
            until_next_look(1, SLEEP_MAX * 2),
            SLEEP_MIN,
            "a run that could not be woken is tried again"
        );
        assert_eq!(until_next_look(0, SLEEP_MAX * 2), SLEEP_MAX);
    }
}
