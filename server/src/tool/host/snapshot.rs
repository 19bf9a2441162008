//! Snapshots of tools and hosts, for `ListTools` and `ListHosts`.

use std::sync::Arc;

use agentloop_core::host::HostView;
use agentloop_core::id::HostId;
use agentloop_core::time::Timestamp;
use agentloop_core::tool::{Digest, ToolDeclaration};

use crate::tool::catalogue::terms::RefusedDeclaration;

/// A tool host as `ListHosts` shows it.
pub type HostSnapshot = HostView;

/// A registered tool as `ListTools` shows it.
#[derive(Debug, Clone)]
pub struct ToolSnapshot {
    /// The newest declaration that was accepted.
    pub declaration: Arc<ToolDeclaration>,
    /// Digest of the declaration.
    pub digest: Digest,
    /// Digest of its terms. Hosts that serve the tool must have the same.
    pub terms: Digest,
    /// The hosts that serve it and accept calls.
    pub hosts: Vec<HostId>,
    /// Calls that a host has, or that room is granted for.
    pub calls_in_flight: usize,
    /// Calls that wait in the queue for a host.
    pub calls_queued: usize,
    /// The last time at which a host served it; the present time while one does.
    pub last_seen: Timestamp,
    /// Declarations that were refused because they are weaker than the terms, the newest last.
    pub refused: Vec<RefusedDeclaration>,
    /// True if the configuration sets the terms.
    pub configured: bool,
}
