//! The end of a connection, and the time that a stopped call gets.

use std::time::Duration;

use crate::host::error::HostError;

/// Time that a stopped call may take to end, where the server sets none.
pub(crate) const STOP_GRACE: Duration = Duration::from_secs(5);

/// The reason for the end of a connection. It decides if the host connects again.
#[derive(Debug)]
pub(crate) enum ConnectionEnd {
    /// The connection was lost or could not be made; holds the reason. The host connects again.
    Lost(String),
    /// The server asked the host to connect again.
    GoAway,
    /// The host has shut down.
    Drained,
    /// The host stops, because another connection would fail the same way.
    Fatal(HostError),
}
