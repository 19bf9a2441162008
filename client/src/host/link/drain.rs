//! The end of a host, in steps: finish what runs, then stop it, then leave whatever is left.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::host::{HostError, link::runtime::STOP_GRACE};

/// Where a host that is to finish stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// No more calls; those it has are finished.
    Draining,
    /// The time for that is up: they are stopped.
    Stopping,
    /// So is the time for stopping.
    Over,
}

/// The clock of a shutdown.
#[derive(Debug)]
pub(crate) struct Drain {
    /// Cancelled when the host is to finish.
    pub(crate) requested: CancellationToken,
    timeout: Duration,
    /// Why the host has to finish, where nobody asked for it.
    cause: Option<HostError>,
    /// The last stage that was entered, and when the next one is due.
    entered: Option<(Stage, Instant)>,
}

impl Drain {
    pub(crate) fn new(timeout: Duration) -> Self {
        Drain { requested: CancellationToken::new(), timeout, cause: None, entered: None }
    }

    pub(crate) fn is_requested(&self) -> bool {
        self.requested.is_cancelled()
    }

    /// Whether the first stage was entered, of which the server is told.
    pub(crate) fn has_begun(&self) -> bool {
        self.entered.is_some()
    }

    /// Waits for the next stage. Dropping the future loses nothing.
    pub(crate) async fn next(&mut self) -> Stage {
        let Some((stage, due)) = self.entered else {
            self.requested.cancelled().await;
            self.entered = Some((Stage::Draining, Instant::now() + self.timeout));
            return Stage::Draining;
        };
        match stage {
            Stage::Draining => {
                sleep_until(due).await;
                // Beyond the grace of the calls, time to hand over what came of them.
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

    /// The host cannot go on: it finishes what it has, and ends with this error.
    pub(crate) fn because_of(&mut self, cause: HostError) {
        self.cause = Some(cause);
        self.requested.cancel();
    }

    /// How the host ended, with so many results that nobody has acknowledged.
    pub(crate) fn verdict(&mut self, unacknowledged: usize) -> Result<(), HostError> {
        if let Some(cause) = self.cause.take() {
            if unacknowledged > 0 {
                tracing::error!(unacknowledged, "results could not be delivered");
            }
            return Err(cause);
        }
        if unacknowledged == 0 { Ok(()) } else { Err(HostError::Undelivered(unacknowledged)) }
    }
}
