//! The loop of a host: one connection after the other until it shuts down. Calls go on between connections.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::host::{
    config::{HostConfig, HostEvent},
    error::HostError,
    link::{
        connection::Connection,
        end::{ConnectionEnd, STOP_GRACE},
        handshake,
        state::HostState,
    },
};

/// A connection that lasted longer resets the backoff.
const STABLE_AFTER: Duration = Duration::from_secs(1);

/// Connects a host again and again.
pub(crate) struct ReconnectLoop {
    state: HostState,
}

/// Number of connections in a row that did not last.
#[derive(Debug, Default)]
struct Failures(u32);

impl Failures {
    /// Counts a connection that lasted for this time, and tells how many failed before it.
    fn before(&mut self, lasted: Duration) -> u32 {
        let before = if lasted > STABLE_AFTER { 0 } else { self.0 };
        self.0 = before.saturating_add(1);
        before
    }
}

impl ReconnectLoop {
    pub(crate) fn new(config: HostConfig) -> Result<Self, HostError> {
        Ok(ReconnectLoop { state: HostState::new(config)? })
    }

    /// The token that starts the shutdown when it is cancelled.
    pub(crate) fn shutdown_token(&self) -> CancellationToken {
        self.state.drain.requested.clone()
    }

    /// Serves calls until the host has shut down or must stop. Then closes the open runtimes.
    pub(crate) async fn run(&mut self) -> Result<(), HostError> {
        let result = self.reconnect().await;
        let HostState { runtimes, config, .. } = &mut self.state;
        let closing =
            runtimes.ids().into_iter().filter_map(|id| runtimes.close(config.runtimes.as_ref(), &id));
        // Bounded, so that a runtime that does not close cannot stop the shutdown.
        tokio::time::timeout(STOP_GRACE, join_all(closing)).await.ok();
        result
    }

    async fn reconnect(&mut self) -> Result<(), HostError> {
        let mut failures = Failures::default();
        loop {
            let since = Instant::now();
            let end = self.serve_connection().await;
            let (reason, asked) = match end {
                ConnectionEnd::Drained => return self.result(),
                ConnectionEnd::Fatal(error) => return Err(error),
                ConnectionEnd::GoAway(away) => (away.to_string(), away.until.duration_since(Instant::now())),
                ConnectionEnd::Lost(reason) => (reason, Duration::ZERO),
            };
            let config = &self.state.config;
            let retry_in = config.backoff.wait(failures.before(since.elapsed())).max(asked);
            tracing::warn!(host_id = %config.host_id, %reason, ?retry_in, "connection lost");
            config.listener.notify(&HostEvent::Lost { reason, retry_in });
            if self.wait_offline(Instant::now() + retry_in).await {
                return self.result();
            }
        }
    }

    fn result(&mut self) -> Result<(), HostError> {
        self.state.drain.result(self.state.calls.unacknowledged())
    }

    async fn serve_connection(&mut self) -> ConnectionEnd {
        let state = &mut self.state;
        if let Err(error) = state.begin_connection() {
            return ConnectionEnd::Fatal(error);
        }
        let connecting = tokio::select! {
            connecting = handshake::connect(state) => connecting,
            () = state.drain.requested.cancelled(), if state.calls.is_idle() => return ConnectionEnd::Drained,
        };
        match connecting {
            Ok(welcomed) => match state.accept_welcome(&welcomed.welcome) {
                Ok(()) => Connection::new(state, welcomed).serve().await,
                Err(error) => ConnectionEnd::Fatal(error),
            },
            Err(end) => end,
        }
    }

    /// Waits between two connections, and handles the events of running calls. Returns true once the host has shut down.
    async fn wait_offline(&mut self, until: Instant) -> bool {
        let state = &mut self.state;
        loop {
            if state.drain.is_requested() && state.calls.is_idle() {
                return true;
            }
            tokio::select! {
                () = sleep_until(until) => return false,
                Some(event) = state.events.recv() => drop(state.handle_task_event(event)),
                stage = state.drain.next_stage() => {
                    if state.enter_stage(stage) {
                        return true;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_lasted_begins_the_backoff_anew() {
        let mut failures = Failures::default();
        let (short, stable) = (Duration::from_millis(900), Duration::from_millis(1_100));
        let counted = [short, short, short, stable, short, short].map(|lasted| failures.before(lasted));
        assert_eq!(counted, [0, 1, 2, 0, 1, 2]);
    }
}
