//! Hosts and tools as listings and metrics show them.

use std::collections::BTreeMap;

use crate::id::{HostId, InstanceId};
use crate::time::Timestamp;

/// Health of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostHealth {
    /// Connected, and accepts calls within its credit.
    Connected,
    /// Connected, but accepts no new calls.
    Draining,
    /// Disconnected. Its calls wait for it to reconnect within the grace period.
    Lost,
}

/// Numbers of hosts and calls, for metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FleetCounts {
    /// Connected hosts, draining ones included.
    pub connected: usize,
    /// Calls that are granted, assigned, or whose result is being recorded.
    pub calls: usize,
    /// Calls that wait in the queues of tools.
    pub queued: usize,
}

impl std::ops::Add for FleetCounts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            connected: self.connected + other.connected,
            calls: self.calls + other.calls,
            queued: self.queued + other.queued,
        }
    }
}

/// One host in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostView {
    /// The id that the host gave itself.
    pub host: HostId,
    /// The process behind the id, if it is connected and gave its name.
    pub instance: Option<InstanceId>,
    /// Connected, draining or lost.
    pub health: HostHealth,
    /// Language and library of the host, as it names them.
    pub sdk: String,
    /// Labels that the host gave itself.
    pub labels: BTreeMap<String, String>,
    /// Its last words about itself, for people.
    pub status: String,
    /// Names of the tools that it serves.
    pub tools: Vec<String>,
    /// Calls that are assigned to it.
    pub calls: usize,
    /// Calls that it would accept now.
    pub free_credit: u64,
    /// Time of its last connection.
    pub connected_at: Timestamp,
    /// Time of its last frame.
    pub last_heard: Timestamp,
    /// Frames that did not fit the state and were ignored. A growing number hints at a faulty host.
    pub ignored_frames: u64,
}

/// One tool in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolView {
    /// Name of the tool, unique within its tenant.
    pub name: String,
    /// Connected hosts that serve it and are not draining.
    pub hosts: Vec<HostId>,
    /// Calls of it that are granted or assigned.
    pub calls: usize,
    /// Calls of it that wait for a host.
    pub queued: usize,
}
