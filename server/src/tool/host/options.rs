//! Times and limits for serving tool hosts.

use agentloop_core::host::FleetOptions;
use agentloop_core::limits::GRPC_MESSAGE_BYTES_MAX;
use agentloop_core::time::Millis;
use agentloop_core::tool::TermsOptions;

use crate::auth::ReservedName;
use crate::mask::Masks;

/// Times and limits for serving tool hosts. Filled by `app/hosts.rs`. The defaults are those of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteToolsOptions {
    /// Times and limits for placing calls on hosts.
    pub fleet: FleetOptions,
    /// Interval at which hosts are to send a heartbeat. Default 5 s: three of them fit into the default lease. The
    /// configuration has 1.5 s with `[cluster]`.
    pub heartbeat_interval: Millis,
    /// Time from offer to result for tools that declare no timeout. Default 10 min.
    pub tool_timeout: Millis,
    /// Time for which a tool is still offered to models after its last host left. Default 10 min.
    pub tool_retention: Millis,
    /// Delay before a host connects again after the server sent it away. Default 1 s.
    pub reconnect_after: Millis,
    /// Open host streams at a time, over all tenants. Default 10,000.
    pub max_hosts: usize,
    /// The largest frame accepted from a host, in bytes. Default 4 MiB, the limit of a gRPC message, so a larger value
    /// has no effect.
    pub max_frame_bytes: usize,
    /// The terms that the configuration sets for tools, and the reaction to weaker ones. Default: weaker ones are
    /// refused.
    pub terms: TermsOptions,
    /// Names of tools that only the hosts of one principal may offer. Default: none.
    pub reserved: Vec<ReservedName>,
    /// The arguments of tools that people do not see, not even in the title of a call. Default: none.
    pub masks: Masks,
}

impl Default for RemoteToolsOptions {
    fn default() -> Self {
        Self {
            fleet: FleetOptions::default(),
            heartbeat_interval: Millis::secs(5),
            tool_timeout: Millis::secs(600),
            tool_retention: Millis::secs(600),
            reconnect_after: Millis::secs(1),
            max_hosts: 10_000,
            max_frame_bytes: GRPC_MESSAGE_BYTES_MAX,
            terms: TermsOptions::default(),
            reserved: Vec::new(),
            masks: Masks::default(),
        }
    }
}
