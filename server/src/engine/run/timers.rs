//! Wakes parked runs when their time comes: expiries, long waits.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use crate::engine::Engine;

/// Runs woken at a time.
const BATCH: u32 = 256;
/// The longest sleep, so that a clock that was moved is noticed.
const SLEEP_MAX: Duration = Duration::from_secs(60);
/// The shortest, while runs are being woken or the store does not answer.
const SLEEP_MIN: Duration = Duration::from_secs(1);

/// Tells the waker that a run has parked until a time.
#[derive(Clone, Default)]
pub(in crate::engine) struct Wake(Arc<Notify>);

impl Wake {
    /// A run has parked until a time, which the store knows.
    pub(in crate::engine) fn parked(&self) {
        self.0.notify_one();
    }
}

/// Wakes what is due, then sleeps until the next is.
pub(in crate::engine) async fn watch(engine: Engine) {
    let stop = engine.deps().tasks.soft().clone();
    while !stop.is_cancelled() {
        let sleep = wake_due(&engine).await;
        tokio::select! { biased;
            () = stop.cancelled() => return,
            () = engine.wake().0.notified() => {}
            () = tokio::time::sleep(sleep) => {}
        }
    }
}

async fn wake_due(engine: &Engine) -> Duration {
    let now = engine.deps().clock.now();
    let (due, next) = match engine.deps().store.due(now, BATCH).await {
        Ok(found) => found,
        Err(error) => {
            tracing::warn!(%error, "cannot ask the store which runs are due");
            return SLEEP_MIN;
        }
    };
    for key in &due {
        if let Err(error) = engine.bring_up(key).await {
            tracing::warn!(run.id = %key.run, %error, "cannot wake a run");
        }
    }
    if !due.is_empty() {
        return SLEEP_MIN;
    }
    next.map_or(SLEEP_MAX, |next| next.since(now).duration().clamp(Duration::from_millis(1), SLEEP_MAX))
}
