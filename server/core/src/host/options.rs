//! Times and bounds of a fleet.

use crate::time::Millis;

/// How a fleet behaves. The defaults suit hosts in other data centres and tools that take seconds to hours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FleetOptions {
    /// A host that was silent for this long is lost. Default 15 s, three heartbeats.
    pub lease_timeout: Millis,
    /// How long a lost host may take to come back before its calls are given up. Default 10 s.
    pub grace_period: Millis,
    /// How long a call waits for a host of its tool to connect at all. Default 30 s.
    pub host_wait: Millis,
    /// From sending a call to the host's word that it works on it; and from the word of a host that it has an answer to
    /// that answer, where the call's next try waits for it. Default 10 s.
    pub accept_timeout: Millis,
    /// A host that rejected a call as busy is left alone for this long. Default 1 s.
    pub busy_pause: Millis,
    /// How long a cancelled tool may take to clean up. Default 5 s.
    pub cancel_grace: Millis,
    /// Calls that wait for one tool. Default 1024.
    pub queue_per_tool_max: usize,
}

impl Default for FleetOptions {
    fn default() -> Self {
        Self {
            lease_timeout: Millis::secs(15),
            grace_period: Millis::secs(10),
            host_wait: Millis::secs(30),
            accept_timeout: Millis::secs(10),
            busy_pause: Millis::secs(1),
            cancel_grace: Millis::secs(5),
            queue_per_tool_max: 1_024,
        }
    }
}
