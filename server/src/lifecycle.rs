//! How the process starts its tasks and ends them.
//!
//! Stopping has two steps. *Soft*: take no new work, finish what is at hand, let go of what is owned. *Hard*: stop
//! where you are, which is safe anywhere, since everything that counts is in the store. Hard implies soft.

use std::future::Future;
use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

use crate::telemetry::fields::{TASK_NAME, TASK_SPAN};

/// How long tasks have to notice that they are to stop at once. They need one turn each.
const HARD_STOP_WAIT: Duration = Duration::from_secs(1);

/// Starts tasks, and tells them to stop. Clones are the same.
#[derive(Debug, Clone)]
pub struct Tasks {
    tracker: TaskTracker,
    soft: CancellationToken,
    hard: CancellationToken,
    crashed: Arc<Mutex<Vec<&'static str>>>,
}

/// How it all ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exit {
    /// Every task ended by itself.
    Clean,
    /// Tasks were stopped where they were: the grace time was over, or somebody insisted.
    Forced,
    /// These tasks panicked.
    Crashed(Vec<&'static str>),
}

impl Exit {
    /// For the operating system: 0 only for [`Exit::Clean`].
    #[must_use]
    pub fn code(&self) -> u8 {
        match self {
            Self::Clean => 0,
            Self::Crashed(_) => 1,
            Self::Forced => 2,
        }
    }
}

impl Default for Tasks {
    fn default() -> Self {
        Self::new()
    }
}

impl Tasks {
    /// None yet.
    #[must_use]
    pub fn new() -> Self {
        let hard = CancellationToken::new();
        Self { tracker: TaskTracker::new(), soft: hard.child_token(), hard, crashed: Arc::default() }
    }

    /// Cancelled when no new work is to be taken. Whoever cancels it begins the shutdown.
    #[must_use]
    pub fn soft(&self) -> &CancellationToken {
        &self.soft
    }

    /// Cancelled when everything is to stop at once.
    #[must_use]
    pub fn hard(&self) -> &CancellationToken {
        &self.hard
    }

    /// Where tasks are counted that others start; a shutdown waits for them too.
    #[must_use]
    pub fn tracker(&self) -> &TaskTracker {
        &self.tracker
    }

    /// Starts a task that the process cannot do without: should it panic, the process shuts down.
    ///
    /// The task is dropped at its next await when everything is to stop at once.
    pub fn spawn(
        &self,
        name: &'static str,
        future: impl Future<Output = ()> + Send + 'static,
    ) -> JoinHandle<()> {
        let tasks = self.clone();
        // Every layer around a future moves it, and some are large.
        let future = Box::pin(future);
        self.start(name, async move {
            if AssertUnwindSafe(future).catch_unwind().await.is_err() {
                tasks.crashed(name);
            }
        })
    }

    /// Starts a task whose panic is its owner's business: the handle yields it as an error.
    ///
    /// `None` is the output of a task that was dropped because everything is to stop at once.
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

    /// Shuts the process down, as after a panic of a task of this name, once `failed` is cancelled.
    pub fn depend_on(&self, name: &'static str, failed: CancellationToken) {
        let tasks = self.clone();
        drop(self.start(name, async move {
            if tasks.soft.run_until_cancelled(failed.cancelled()).await.is_some() {
                tasks.crashed(name);
            }
        }));
    }

    fn start(&self, name: &'static str, future: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        let hard = self.hard.clone();
        let span = tracing::info_span!(TASK_SPAN, { TASK_NAME } = name);
        let until_hard = async move {
            // A task that was cut short has nothing to report.
            let _cut = hard.run_until_cancelled(future).await;
        };
        self.tracker.spawn(until_hard.instrument(span))
    }

    fn crashed(&self, name: &'static str) {
        tracing::error!("a task that the process depends on has panicked; shutting down");
        self.crashed.lock().unwrap_or_else(PoisonError::into_inner).push(name);
        self.soft.cancel();
    }

    /// Begins the shutdown if nobody has, and returns when every task has ended. What is left after `grace` is
    /// stopped at once.
    pub async fn shut_down(&self, grace: Duration) -> Exit {
        self.soft.cancel();
        self.tracker.close();
        let in_time = tokio::select! {
            biased;
            () = self.tracker.wait() => true,
            () = self.hard.cancelled() => false,
            () = tokio::time::sleep(grace) => false,
        };
        let cut_short = self.hard.is_cancelled() || !in_time;
        if !in_time {
            tracing::warn!(tasks = self.tracker.len(), "stopping what has not ended");
            self.hard.cancel();
            // Only a task that never awaits is left after this, and the end of the process ends that one too.
            let _late = tokio::time::timeout(HARD_STOP_WAIT, self.tracker.wait()).await;
        }
        self.exit(cut_short)
    }

    fn exit(&self, cut_short: bool) -> Exit {
        let crashed = self.crashed.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match (crashed.is_empty(), cut_short) {
            (false, _) => Exit::Crashed(crashed),
            (true, true) => Exit::Forced,
            (true, false) => Exit::Clean,
        }
    }
}

/// The wish of whoever runs the process that it end: SIGTERM or SIGINT.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// From here on the two signals no longer end the process by themselves.
    ///
    /// # Errors
    /// When the operating system refuses.
    pub fn install() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Turns the first signal into a soft stop and the second into a hard one.
    ///
    /// This is not one of the tasks that a shutdown waits for, or it would wait for the second signal.
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

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
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
        assert_eq!(tasks.shut_down(GRACE).await, Exit::Clean, "it holds nobody up");
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
    async fn the_first_signal_is_soft_and_the_second_hard() {
        let tasks = Tasks::new();
        let obeying = Signals::install().unwrap().obey(&tasks);
        raise("-TERM");
        tasks.soft().cancelled().await;
        assert!(!tasks.hard().is_cancelled());
        raise("-INT");
        tasks.hard().cancelled().await;
        obeying.await.unwrap();
    }
}
