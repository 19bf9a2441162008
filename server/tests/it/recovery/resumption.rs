//! Paused runs that are resumed when they are taken over, and the failures of that.

use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use agentloop_server::lifecycle::Tasks;
use agentloop_server::store::{Store, StoreError};
use parking_lot::Mutex;
use tracing::subscriber::DefaultGuard;

use crate::recovery::silent::Unconfigured;
use crate::support::intercepted::{Intercept, Intercepted};
use crate::support::patience::in_time;

/// Writes that fail once, after paused runs were read.
#[derive(Default)]
struct FailsOnce {
    failure: Mutex<Option<StoreError>>,
    /// Begins to shut down when paused runs have been read.
    stops: Mutex<Option<Tasks>>,
    are_read: AtomicBool,
}

impl Intercept for FailsOnce {
    async fn read<T: Send>(&self, method: &'static str, read: impl Future<Output = T> + Send) -> T {
        let found = read.await;
        if method == "runs" {
            self.are_read.store(true, Ordering::SeqCst);
            if let Some(tasks) = self.stops.lock().take() {
                tasks.soft().cancel();
            }
        }
        found
    }

    async fn write<T: Send>(
        &self,
        write: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        let failure = match self.are_read.load(Ordering::SeqCst) {
            true => self.failure.lock().take(),
            false => None,
        };
        match failure {
            Some(failure) => Err(failure),
            None => write.await,
        }
    }
}

#[tokio::test]
async fn a_paused_run_goes_on_although_the_store_fails_when_it_is_resumed() {
    let fails = Arc::new(Intercepted::new(FailsOnce::default()).await);
    let store: Arc<dyn Store> = fails.clone();
    let mut of = Unconfigured::start(&store, 1 << 30).await;
    of.configure();
    let failure = StoreError::Unavailable { what: "the disk is full".to_owned() };
    *fails.intercept.failure.lock() = Some(failure);
    in_time(of.process.engine.continue_gained_shards()).await;
    assert!(fails.intercept.failure.lock().is_none(), "a write has failed");
    in_time(of.asked.recv()).await.expect("the model is asked");
    of.process.stop().await;
}

/// Keeps the errors that this thread logs, until the guard is dropped.
fn errors_of_this_thread() -> (Arc<File>, DefaultGuard) {
    let log = Arc::new(tempfile::tempfile().expect("a file"));
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::ERROR)
        .with_ansi(false)
        .with_writer(log.clone())
        .finish();
    (log, tracing::subscriber::set_default(subscriber))
}

fn written(mut log: &File) -> String {
    let mut lines = String::new();
    log.rewind().expect("a file");
    log.read_to_string(&mut lines).expect("a log is text");
    lines
}

#[tokio::test]
async fn a_paused_run_whose_session_is_given_away_before_it_is_resumed_is_no_error() {
    let fails = Arc::new(Intercepted::new(FailsOnce::default()).await);
    let store: Arc<dyn Store> = fails.clone();
    let of = Unconfigured::start(&store, 1 << 30).await;
    of.configure();
    *fails.intercept.failure.lock() = Some(StoreError::Elsewhere);
    let (log, _logged) = errors_of_this_thread();
    in_time(of.process.engine.continue_gained_shards()).await;
    assert!(fails.intercept.failure.lock().is_none(), "a write was refused");
    assert_eq!(written(&log), "");
    of.process.stop().await;
}

#[tokio::test]
async fn a_paused_run_that_is_not_resumed_because_the_server_stops_is_no_error() {
    let stops = Arc::new(Intercepted::new(FailsOnce::default()).await);
    let store: Arc<dyn Store> = stops.clone();
    let of = Unconfigured::start(&store, 1 << 30).await;
    of.configure();
    *stops.intercept.stops.lock() = Some(of.process.tasks.clone());
    let (log, _logged) = errors_of_this_thread();
    in_time(of.process.engine.continue_gained_shards()).await;
    assert!(stops.intercept.stops.lock().is_none(), "the server stops");
    assert_eq!(written(&log), "");
    of.process.stop().await;
}
