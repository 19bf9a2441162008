//! Timeouts and bounds of a fleet, with their defaults.

use crate::limits::CANCEL_GRACE_SECS;
use crate::time::Millis;

/// Timeouts and bounds of a fleet. Filled by `app/hosts.rs` of the server. The defaults are those of its configuration: they suit
/// hosts in other data centres and tools that take seconds to hours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FleetOptions {
    /// A host that sends nothing for this long counts as disconnected. Default 15 s, three heartbeats.
    pub lease_timeout: Millis,
    /// Time that a disconnected host has to reconnect before its calls are lost. Default 10 s.
    pub grace_period: Millis,
    /// Time that a call waits while no host of its tool is connected. Default 30 s.
    pub host_wait: Millis,
    /// Time that a host has to confirm a call that it was sent. Also the time that the next attempt of a call waits for
    /// a result which a reconnecting host said it has. Default 10 s.
    pub accept_timeout: Millis,
    /// Time that a host gets no new calls after it rejected one as busy. Default 1 s.
    pub busy_pause: Millis,
    /// Time that a cancelled tool has to clean up. Default 5 s.
    pub cancel_grace: Millis,
    /// Most calls that may wait for one tool, or for one host. Default 10,000.
    pub queue_per_tool: usize,
}

impl Default for FleetOptions {
    fn default() -> Self {
        Self {
            lease_timeout: Millis::secs(15),
            grace_period: Millis::secs(10),
            host_wait: Millis::secs(30),
            accept_timeout: Millis::secs(10),
            busy_pause: Millis::secs(1),
            cancel_grace: Millis::secs(CANCEL_GRACE_SECS),
            queue_per_tool: 10_000,
        }
    }
}
