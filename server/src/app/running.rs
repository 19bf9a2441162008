//! The common part of running servers: the reload of their files, and their end.

use std::sync::Arc;
use std::time::Duration;

use crate::app::security::{self, Reloader};
use crate::lifecycle::{Exit, Signals, Tasks};
use crate::telemetry::otlp::Otlp;

/// A server that runs, but for its store.
pub(super) struct Running {
    pub(super) tasks: Tasks,
    /// Flushed at the end.
    pub(super) otlp: Option<Otlp>,
    pub(super) reloader: Option<Arc<Reloader>>,
    /// The time for which a shutdown waits for the tasks.
    pub(super) grace: Duration,
}

impl Running {
    /// Reads the certificate and the tokens again.
    pub(super) async fn reload(&self) {
        if let Some(reloader) = &self.reloader {
            security::reload(reloader.clone()).await;
        }
    }

    /// Waits until a signal or a task begins a shutdown. A second signal stops at once.
    pub(super) async fn until(&self, signals: Signals) {
        drop(signals.obey(&self.tasks));
        self.tasks.soft().cancelled().await;
    }

    /// Sends what is left to export. Comes after the last write.
    pub(super) async fn end_export(self, exit: Exit) -> Exit {
        if let Some(otlp) = self.otlp {
            // It blocks, and logs its own failures.
            let _told = tokio::task::spawn_blocking(move || otlp.shut_down()).await;
        }
        tracing::info!(?exit, "stopped");
        exit
    }
}
