//! Starts the tasks of the process and stops them.
//!
//! A shutdown has two steps. *Soft*: tasks take no new work, finish what they have begun, and end. *Hard*: tasks are
//! dropped where they are. That is safe anywhere, because the store has everything that was acknowledged. Hard implies
//! soft.

use std::future::Future;
use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use parking_lot::Mutex;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

use crate::telemetry::fields::{TASK_NAME, TASK_SPAN};

/// The wait for tasks to be dropped after a hard stop. Each has to be polled once more.
const HARD_STOP_WAIT: Duration = Duration::from_secs(1);

/// Starts tasks, and tells them to stop. Clones share the same tasks.
#[derive(Debug, Clone)]
pub struct Tasks {
    tracker: TaskTracker,
    soft: CancellationToken,
    hard: CancellationToken,
    crashed: Arc<Mutex<Vec<&'static str>>>,
}

/// The result of a shutdown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exit {
    /// Every task ended by itself.
    Clean,
    /// Tasks were dropped where they were, after the grace time or a second signal.
    Forced,
    /// These tasks, on which the process depends, panicked.
    Crashed(Vec<&'static str>),
    /// Another replica has taken this one for dead, and its place. A supervisor starts it again, and it joins as a new replica.
    Fenced,
}

/// The end of the tasks of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TasksEnded {
    /// All tasks ended by themselves before the wait was over.
    InTime,
    /// The wait for them was over.
    Late,
    /// A second signal, or another hard stop, came first.
    Cut,
}

impl Exit {
    /// The exit code of the process. 0 only for [`Exit::Clean`].
    #[must_use]
    pub fn code(&self) -> u8 {
        match self {
            Self::Clean => 0,
            Self::Crashed(_) => 1,
            Self::Forced => 2,
            // EX_TEMPFAIL of sysexits.h: try again.
            Self::Fenced => 75,
        }
    }
}

impl Default for Tasks {
    fn default() -> Self {
        Self::new()
    }
}

impl Tasks {
    /// A tracker without tasks.
    #[must_use]
    pub fn new() -> Self {
        let hard = CancellationToken::new();
        Self { tracker: TaskTracker::new(), soft: hard.child_token(), hard, crashed: Arc::default() }
    }

    /// Cancelled at the soft stop. Cancelling it begins the shutdown.
    #[must_use]
    pub fn soft(&self) -> &CancellationToken {
        &self.soft
    }

    /// Cancelled at the hard stop.
    #[must_use]
    pub fn hard(&self) -> &CancellationToken {
        &self.hard
    }

    /// The tracker for tasks that other libraries start. A shutdown waits for them too.
    #[must_use]
    pub fn tracker(&self) -> &TaskTracker {
        &self.tracker
    }

    /// Starts a task on which the process depends: if it panics, the process shuts down.
    ///
    /// A hard stop drops the task at its next await.
    pub fn spawn(
        &self,
        name: &'static str,
        future: impl Future<Output = ()> + Send + 'static,
    ) -> JoinHandle<()> {
        let tasks = self.clone();
        // Boxed, because each wrapper moves the future, and some are large.
        let future = Box::pin(future);
        self.start(name, async move {
            if AssertUnwindSafe(future).catch_unwind().await.is_err() {
                tasks.fail(name);
            }
        })
    }

    /// Starts a task whose panic its owner handles: the handle returns it as an error.
    ///
    /// The output is `None` if a hard stop dropped the task.
    pub fn spawn_contained<T: Send + 'static>(
        &self,
        name: &'static str,
        future: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<Option<T>> {
        let hard = self.hard.clone();
        let span = tracing::info_span!(TASK_SPAN, { TASK_NAME } = name);
        let future = Box::pin(future);
        self.tracker.spawn(async move { hard.run_until_cancelled(future).await }.instrument(span))
    }

    /// Shuts the process down once `failed` is cancelled, as if a task of this name had panicked.
    pub fn depend_on(&self, name: &'static str, failed: CancellationToken) {
        let tasks = self.clone();
        drop(self.start(name, async move {
            if tasks.soft.run_until_cancelled(failed.cancelled()).await.is_some() {
                tasks.fail(name);
            }
        }));
    }

    fn start(&self, name: &'static str, future: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        let hard = self.hard.clone();
        let span = tracing::info_span!(TASK_SPAN, { TASK_NAME } = name);
        let until_hard = async move {
            // `None` if a hard stop came first. There is nothing to report then.
            let _cut = hard.run_until_cancelled(future).await;
        };
        self.tracker.spawn(until_hard.instrument(span))
    }

    /// Shuts the process down because the part of this name has failed.
    pub fn fail(&self, name: &'static str) {
        tracing::error!("a part that the process depends on has failed; shutting down");
        self.crashed.lock().push(name);
        self.soft.cancel();
    }

    /// Begins the shutdown, if it has not begun, and waits until every task has ended. Tasks that are left after `grace`
    /// are dropped.
    pub async fn shut_down(&self, grace: Duration) -> Exit {
        let ended = self.end_tasks(grace).await;
        self.exit(ended != TasksEnded::InTime)
    }

    /// As [`Self::shut_down`], of a process whose work goes on elsewhere: that tasks are left after `wait` is no fault.
    pub async fn hand_over(&self, wait: Duration) -> Exit {
        let ended = self.end_tasks(wait).await;
        self.exit(ended == TasksEnded::Cut)
    }

    async fn end_tasks(&self, wait: Duration) -> TasksEnded {
        self.soft.cancel();
        self.tracker.close();
        let in_time = tokio::select! {
            biased;
            () = self.tracker.wait() => true,
            () = self.hard.cancelled() => false,
            () = tokio::time::sleep(wait) => false,
        };
        let ended = match in_time {
            _ if self.hard.is_cancelled() => TasksEnded::Cut,
            true => TasksEnded::InTime,
            false => TasksEnded::Late,
        };
        if !in_time {
            tracing::warn!(
                tasks = self.tracker.len(),
                "the grace time is over; stopping the remaining tasks at once"
            );
            self.hard.cancel();
            // A task that never awaits may remain. The end of the process ends it.
            let _late = tokio::time::timeout(HARD_STOP_WAIT, self.tracker.wait()).await;
        }
        ended
    }

    fn exit(&self, cut_short: bool) -> Exit {
        let crashed = self.crashed.lock().clone();
        match (crashed.is_empty(), cut_short) {
            (false, _) => Exit::Crashed(crashed),
            (true, true) => Exit::Forced,
            (true, false) => Exit::Clean,
        }
    }
}

/// The signals of a server. SIGTERM and SIGINT tell it to end. SIGHUP tells it to read files again, and never ends it:
/// not before the server can read them, and not if it has none. So it does not end with the terminal that it was
/// started in.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    /// Installs handlers. From here on the signals do not end the process by themselves.
    ///
    /// # Errors
    /// The operating system's.
    pub fn install() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Turns the first signal into a soft stop and the second into a hard one.
    ///
    /// The task is not tracked: a shutdown would otherwise wait for the second signal.
    #[expect(clippy::disallowed_methods, reason = "a shutdown must not wait for it")]
    pub fn obey(self, tasks: &Tasks) -> JoinHandle<()> {
        tokio::spawn(self.relay(tasks.clone()))
    }

    async fn relay(mut self, tasks: Tasks) {
        let first = self.next().await;
        tracing::info!(signal = first, "shutting down; a second signal stops at once");
        tasks.soft().cancel();
        let second = self.next().await;
        tracing::warn!(signal = second, "stopping at once");
        tasks.hard().cancel();
    }

    /// The next signal that tells the process to end.
    async fn next(&mut self) -> &'static str {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return "SIGTERM",
                _ = self.interrupt.recv() => return "SIGINT",
                // A server with such files listens for it, too.
                _ = self.hangup.recv() => {
                    tracing::info!("SIGHUP: certificates and tokens are read again, if there are any");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::process::Command;

    use super::*;

    const GRACE: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn a_shutdown_waits_for_tasks_that_heed_it() {
        let tasks = Tasks::new();
        let soft = tasks.soft().clone();
        let (ended, end) = tokio::sync::oneshot::channel();
        tasks.spawn("polite", async move {
            soft.cancelled().await;
            ended.send(()).unwrap();
        });
        assert_eq!(tasks.shut_down(GRACE).await, Exit::Clean);
        assert_eq!(end.await, Ok(()));
        assert!(!tasks.hard().is_cancelled());
    }

    #[tokio::test(start_paused = true)]
    async fn what_does_not_heed_it_is_stopped_after_the_grace_time() {
        let tasks = Tasks::new();
        let deaf = tasks.spawn("deaf", pending());
        let contained = tasks.spawn_contained("deaf too", pending::<()>());
        let start = tokio::time::Instant::now();
        assert_eq!(tasks.shut_down(GRACE).await, Exit::Forced);
        assert_eq!(start.elapsed(), GRACE);
        assert!(deaf.is_finished());
        assert_eq!(contained.await.unwrap(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_hand_over_that_is_late_is_clean_and_one_that_is_cut_is_not() {
        let late = Tasks::new();
        late.spawn("deaf", pending());
        assert_eq!(late.hand_over(GRACE).await, Exit::Clean);

        let cut = Tasks::new();
        cut.spawn("deaf", pending());
        let signal = async {
            tokio::time::sleep(GRACE / 2).await;
            cut.hard().cancel();
        };
        let (exit, ()) = tokio::join!(cut.hand_over(GRACE), signal);
        assert_eq!(exit, Exit::Forced);
    }

    #[tokio::test]
    async fn a_panic_shuts_down_and_is_told_at_the_end() {
        let tasks = Tasks::new();
        tasks.spawn("writer", async { panic!("on purpose") });
        tasks.soft().cancelled().await;
        let exit = tasks.shut_down(GRACE).await;
        assert_eq!(exit, Exit::Crashed(vec!["writer"]));
        assert_ne!(exit.code(), 0);
    }

    #[tokio::test]
    async fn what_the_process_depends_on_fails() {
        let (tasks, failed) = (Tasks::new(), CancellationToken::new());
        tasks.depend_on("store", failed.clone());
        failed.cancel();
        tasks.soft().cancelled().await;
        assert_eq!(tasks.shut_down(GRACE).await, Exit::Crashed(vec!["store"]));

        let tasks = Tasks::new();
        tasks.depend_on("store", CancellationToken::new());
        assert_eq!(tasks.shut_down(GRACE).await, Exit::Clean, "the dependency does not delay a shutdown");
    }

    #[tokio::test]
    async fn a_contained_panic_is_its_owners_business() {
        let tasks = Tasks::new();
        let panicked = tasks.spawn_contained("run", async { panic!("on purpose") });
        let fine = tasks.spawn_contained("run", async { 7 });
        assert!(panicked.await.unwrap_err().is_panic());
        assert_eq!(fine.await.unwrap(), Some(7));
        assert!(!tasks.soft().is_cancelled());
        assert_eq!(tasks.shut_down(GRACE).await, Exit::Clean);
    }

    #[tokio::test]
    async fn hard_implies_soft() {
        let tasks = Tasks::new();
        tasks.spawn("deaf", pending());
        tasks.hard().cancel();
        assert!(tasks.soft().is_cancelled());
        assert_eq!(tasks.shut_down(GRACE).await, Exit::Forced);
    }

    #[test]
    fn only_a_clean_exit_is_a_success() {
        assert_eq!(Exit::Clean.code(), 0);
        assert_ne!(Exit::Forced.code(), 0);
        assert_ne!(Exit::Crashed(vec!["x"]).code(), 0);
    }

    fn raise(signal: &str) {
        let status = Command::new("kill").args([signal, &std::process::id().to_string()]).status().unwrap();
        assert!(status.success());
    }

    #[tokio::test]
    async fn the_first_signal_to_end_is_soft_and_the_second_hard() {
        let tasks = Tasks::new();
        let signals = Signals::install().unwrap();
        raise("-HUP");
        let obeying = signals.obey(&tasks);
        raise("-HUP");
        raise("-TERM");
        tasks.soft().cancelled().await;
        assert!(!tasks.hard().is_cancelled());
        raise("-INT");
        tasks.hard().cancelled().await;
        obeying.await.unwrap();
    }
}
