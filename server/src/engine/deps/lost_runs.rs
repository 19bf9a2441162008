//! Runs whose store failed. They are logged together, because a database that is away fails in every live run.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio_util::sync::CancellationToken;

use crate::lifecycle::Tasks;

/// The time between the first failure and its line, in which more runs may fail. A replica that others have taken for dead
/// logs a line of its own. It learns of its end from its next beat, and its process ends within this time.
const TELL_AFTER: Duration = Duration::from_millis(900);
/// The least time between two lines.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// Counts the runs in which the store failed, and logs one line for those that fail together.
#[derive(Debug, Clone, Default)]
pub(in crate::engine) struct LostRuns(Arc<Mutex<Lost>>);

#[derive(Debug, Default)]
struct Lost {
    /// Runs since the last line.
    runs: usize,
    /// The failure of the run that was noted last.
    error: String,
    /// True while a task is going to log them.
    is_told: bool,
}

impl LostRuns {
    /// Notes that the store failed in the run of the present span.
    pub(in crate::engine) fn note(&self, error: &impl Display, tasks: &Tasks) {
        tracing::debug!(%error, "the store failed in this run; it is tried again until the store is back");
        let mut lost = self.lost();
        lost.runs += 1;
        lost.error = error.to_string();
        if !std::mem::replace(&mut lost.is_told, true) {
            drop(tasks.spawn("lost runs", self.clone().tell(tasks.soft().clone())));
        }
    }

    /// Logs lines until no more runs have failed since the last one.
    async fn tell(self, soft: CancellationToken) {
        tokio::time::sleep(TELL_AFTER).await;
        while self.tell_once() {
            // A shutdown does not wait for it.
            let _stopping = soft.run_until_cancelled(tokio::time::sleep(TELL_EVERY)).await;
        }
    }

    /// Logs the line. Returns false if no run has failed since the last line; then the next failure starts another task.
    fn tell_once(&self) -> bool {
        let mut lost = self.lost();
        let runs = std::mem::take(&mut lost.runs);
        lost.is_told = runs > 0;
        if lost.is_told {
            let error = &lost.error;
            tracing::error!(runs, %error, "the store failed in runs; they are tried again until the store is back");
        }
        lost.is_told
    }

    fn lost(&self) -> MutexGuard<'_, Lost> {
        self.0.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{LogFormat, LogOptions};
    use crate::store::StoreError;
    use crate::telemetry::testing::logged;

    fn away(why: &str) -> StoreError {
        StoreError::Unavailable { what: why.to_owned() }
    }

    /// The lines of level ERROR that are logged while the store fails in so many runs at once, and in so many more later.
    fn errors(first: usize, later: usize) -> Vec<String> {
        let options = LogOptions { format: LogFormat::Text, level: "error".to_owned() };
        let log = logged(&options, [], || {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            runtime.enable_time().start_paused(true).build().unwrap().block_on(async {
                let (lost, tasks) = (LostRuns::default(), Tasks::new());
                (0..first).for_each(|_| lost.note(&away("no connection"), &tasks));
                tokio::time::sleep(TELL_AFTER * 2).await;
                (0..later).for_each(|_| lost.note(&away("still none"), &tasks));
                tokio::time::sleep(TELL_EVERY * 3).await;
            });
        });
        log.lines().map(str::to_owned).collect()
    }

    #[test]
    fn runs_that_fail_together_are_one_line() {
        let lines = errors(200, 0);
        assert!(lines[0].contains("runs=200") && lines[0].contains("no connection"), "{lines:?}");
        assert_eq!(lines.len(), 1, "{lines:?}");
    }

    #[test]
    fn runs_that_fail_later_are_another_line() {
        let lines = errors(2, 7);
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[1].contains("runs=7") && lines[1].contains("still none"), "{lines:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_after_a_quiet_time_is_told_too() {
        let (lost, tasks) = (LostRuns::default(), Tasks::new());
        for _ in 0..2 {
            lost.note(&away("no connection"), &tasks);
            assert!(lost.lost().is_told);
            tokio::time::sleep(TELL_EVERY * 3).await;
            assert!(!lost.lost().is_told, "the task has ended");
        }
    }
}
