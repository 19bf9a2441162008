//! The shutdown of a host in stages: finish running calls, then stop them, then give up.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::host::{error::HostError, link::end::STOP_GRACE};

/// A stage of the shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The host accepts no more calls, and finishes those that run.
    Draining,
    /// The drain timeout has passed: running calls are stopped.
    Stopping,
    /// The time to stop has passed: the host gives up.
    Over,
}

/// The progress of a shutdown.
#[derive(Debug)]
pub(crate) struct Drain {
    /// Cancelled when the host must shut down.
    pub(crate) requested: CancellationToken,
    timeout: Duration,
    /// The error that makes the host shut down; `None` if the caller requested it.
    cause: Option<HostError>,
    /// The last stage that was entered, and the time of the next one.
    entered: Option<(Stage, Instant)>,
}

impl Drain {
    pub(crate) fn new(timeout: Duration) -> Self {
        Drain { requested: CancellationToken::new(), timeout, cause: None, entered: None }
    }

    pub(crate) fn is_requested(&self) -> bool {
        self.requested.is_cancelled()
    }

    /// True once the first stage was entered. The server is told so.
    pub(crate) fn has_begun(&self) -> bool {
        self.entered.is_some()
    }

    /// Waits for the next stage. Dropping the future loses nothing.
    pub(crate) async fn next_stage(&mut self) -> Stage {
        let Some((stage, due)) = self.entered else {
            self.requested.cancelled().await;
            self.entered = Some((Stage::Draining, Instant::now() + self.timeout));
            return Stage::Draining;
        };
        match stage {
            Stage::Draining => {
                sleep_until(due).await;
                // Twice the grace of the calls, to leave time to deliver their results.
                self.entered = Some((Stage::Stopping, Instant::now() + 2 * STOP_GRACE));
                Stage::Stopping
            }
            Stage::Stopping | Stage::Over => {
                sleep_until(due).await;
                self.entered = Some((Stage::Over, due));
                Stage::Over
            }
        }
    }

    /// Starts the shutdown because of an error, which becomes the host's result.
    pub(crate) fn fail_with(&mut self, cause: HostError) {
        self.cause = Some(cause);
        self.requested.cancel();
    }

    /// The host's result, when it ends with this many results that the server has not acknowledged.
    pub(crate) fn result(&mut self, unacknowledged: usize) -> Result<(), HostError> {
        if let Some(cause) = self.cause.take() {
            if unacknowledged > 0 {
                tracing::error!(unacknowledged, "results could not be delivered");
            }
            return Err(cause);
        }
        if unacknowledged == 0 { Ok(()) } else { Err(HostError::Undelivered(unacknowledged)) }
    }
}
