//! The hosts of one tenant, by id and by load.
//!
//! Changing a host only marks it. Marked hosts are ranked again when the order is next read, so that many changes in a
//! row cost one ranking.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Index;

use crate::host::host_state::{HostState, Rank};
use crate::id::HostId;
use crate::time::Timestamp;

/// All hosts of a tenant, with an index of the connected ones by load.
#[derive(Debug, Default)]
pub(super) struct HostsByLoad {
    hosts: BTreeMap<HostId, HostState>,
    /// Hosts that were connected when they were last ranked, by rank, then by id.
    order: BTreeSet<(Rank, HostId)>,
    /// The rank that each host has in `order`.
    ranks: BTreeMap<HostId, Rank>,
    /// Hosts that may have changed since they were last ranked.
    changed: BTreeSet<HostId>,
}

impl HostsByLoad {
    pub(super) fn get(&self, id: &HostId) -> Option<&HostState> {
        self.hosts.get(id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&HostId, &HostState)> {
        self.hosts.iter()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    /// A host that is about to be changed: it is ranked again.
    pub(super) fn get_mut(&mut self, id: &HostId) -> Option<&mut HostState> {
        let host = self.hosts.get_mut(id)?;
        mark(&mut self.changed, id);
        Some(host)
    }

    /// Like [`Self::get_mut`]. An unknown host is added as a disconnected one.
    pub(super) fn get_or_insert_disconnected(&mut self, id: &HostId, now: Timestamp) -> &mut HostState {
        mark(&mut self.changed, id);
        self.hosts.entry(id.clone()).or_insert_with(|| HostState::disconnected(now))
    }

    pub(super) fn remove(&mut self, id: &HostId) {
        self.hosts.remove(id);
        self.changed.remove(id);
        self.unrank(id);
    }

    /// The connected hosts, the least loaded first.
    pub(super) fn by_load(&mut self) -> impl Iterator<Item = (&HostId, &HostState)> {
        while let Some(id) = self.changed.pop_first() {
            self.unrank(&id);
            if let Some(rank) = self.hosts.get(&id).and_then(HostState::rank) {
                self.order.insert((rank, id.clone()));
                self.ranks.insert(id, rank);
            }
        }
        self.order.iter().map(|(_, id)| (id, &self.hosts[id]))
    }

    fn unrank(&mut self, id: &HostId) {
        if let Some(rank) = self.ranks.remove(id) {
            self.order.remove(&(rank, id.clone()));
        }
    }

    /// Asserts that every unmarked host has its right rank, and that no removed host is still ranked or marked.
    #[cfg(test)]
    pub(super) fn check(&self) {
        let ranked: BTreeSet<_> = self.ranks.iter().map(|(id, rank)| (*rank, id.clone())).collect();
        assert_eq!(ranked, self.order);
        assert!(self.ranks.keys().chain(&self.changed).all(|id| self.hosts.contains_key(id)));
        for (id, host) in self.hosts.iter().filter(|(id, _)| !self.changed.contains(*id)) {
            assert_eq!(self.ranks.get(id).copied(), host.rank(), "{id}");
        }
    }
}

fn mark(changed: &mut BTreeSet<HostId>, id: &HostId) {
    if !changed.contains(id) {
        changed.insert(id.clone());
    }
}

impl Index<&HostId> for HostsByLoad {
    type Output = HostState;

    fn index(&self, id: &HostId) -> &HostState {
        &self.hosts[id]
    }
}
