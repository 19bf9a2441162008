//! Times and bounds of the tool-host side.

use agentloop_core::host::FleetOptions;
use agentloop_core::limits::GRPC_MESSAGE_BYTES_MAX;
use agentloop_core::time::Millis;

/// How tool hosts are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostOptions {
    /// Times and bounds of placing calls.
    pub fleet: FleetOptions,
    /// How often hosts are to send a heartbeat. Default 5 s: three of them fit into the default lease.
    pub heartbeat_interval: Millis,
    /// From offer to result, for tools that declare nothing. Default 2 min.
    pub call_timeout: Millis,
    /// How long a tool is still offered to models after its last host went. Default 10 min.
    pub tool_retention: Millis,
    /// How long hosts are asked to stay away when the server sends them away. Default 1 s.
    pub reconnect_after: Millis,
    /// Streams of hosts at a time, over all tenants. Default 1024.
    pub connections_max: usize,
    /// The largest frame that is taken, in bytes. Default 4 MiB; larger is of no use.
    pub max_frame_bytes: usize,
}

impl Default for HostOptions {
    fn default() -> Self {
        Self {
            fleet: FleetOptions::default(),
            heartbeat_interval: Millis::secs(5),
            call_timeout: Millis::secs(120),
            tool_retention: Millis::secs(600),
            reconnect_after: Millis::secs(1),
            connections_max: 1_024,
            max_frame_bytes: GRPC_MESSAGE_BYTES_MAX,
        }
    }
}
