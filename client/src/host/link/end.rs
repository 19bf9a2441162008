//! The end of a connection, and the time that a stopped call gets.

use std::{fmt, time::Duration};

use agentloop_proto::v1::GoAway;
use tokio::time::Instant;

use crate::host::error::HostError;

/// Time that a stopped call may take to end, where the server sets none.
pub(crate) const STOP_GRACE: Duration = Duration::from_secs(5);
/// Bound on the wait that a `go_away` gives.
const GO_AWAY_MAX: Duration = Duration::from_secs(60);

/// A `go_away` of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GoingAway {
    /// The server's reason, for people.
    reason: String,
    /// The time before which the host does not connect again.
    pub(crate) until: Instant,
}

impl GoingAway {
    pub(crate) fn new(go_away: GoAway) -> Self {
        let wait = duration(go_away.reconnect_after.as_ref()).unwrap_or_default().min(GO_AWAY_MAX);
        GoingAway { reason: go_away.reason, until: Instant::now() + wait }
    }
}

impl fmt::Display for GoingAway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the server asks to connect again later: {}", self.reason)
    }
}

/// A duration of the contract; `None` where it is absent or negative.
pub(crate) fn duration(given: Option<&prost_types::Duration>) -> Option<Duration> {
    given.and_then(|duration| Duration::try_from(*duration).ok())
}

/// The reason for the end of a connection. It decides if the host connects again.
#[derive(Debug)]
pub(crate) enum ConnectionEnd {
    /// The connection was lost or could not be made; holds the reason. The host connects again.
    Lost(String),
    /// The server told the host to connect again, and not before this time.
    GoAway(GoingAway),
    /// The host has shut down.
    Drained,
    /// The host stops, because another connection would fail the same way.
    Fatal(HostError),
}
