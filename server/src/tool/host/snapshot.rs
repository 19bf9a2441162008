//! What there is, for people.

use std::sync::Arc;

use agentloop_core::host::HostView;
use agentloop_core::id::HostId;
use agentloop_core::time::Timestamp;
use agentloop_core::tool::{Digest, ToolDeclaration};

/// A tool host.
pub type HostSnapshot = HostView;

/// A registered tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolSnapshot {
    /// As its hosts declare it.
    pub declaration: Arc<ToolDeclaration>,
    /// Of the declaration.
    pub digest: Digest,
    /// Who serves it and takes calls.
    pub hosts: Vec<HostId>,
    /// Calls that a host has or has room for.
    pub calls_in_flight: usize,
    /// Calls that wait.
    pub calls_queued: usize,
    /// When a host that serves it was last seen.
    pub last_seen: Timestamp,
}
