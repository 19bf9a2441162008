//! The hosts of one tenant, by their ids and by how much they have to do.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;

use crate::host::session::{Host, Rank};
use crate::id::HostId;
use crate::time::Timestamp;

/// The hosts. It is read as a map of them; those that were changed are ranked anew when it is asked for their order.
#[derive(Debug, Default)]
pub(super) struct HostsByLoad {
    hosts: BTreeMap<HostId, Host>,
    /// Those that had a stream when they were ranked. Of equals, the first by id comes first.
    order: BTreeSet<(Rank, HostId)>,
    /// How they stand in it.
    ranks: BTreeMap<HostId, Rank>,
    /// Those that may have been changed since.
    changed: BTreeSet<HostId>,
}

impl HostsByLoad {
    /// A host, to change it.
    pub(super) fn get_mut(&mut self, id: &HostId) -> Option<&mut Host> {
        let host = self.hosts.get_mut(id)?;
        mark(&mut self.changed, id);
        Some(host)
    }

    /// A host, to change it; one that is away, where it was not known.
    pub(super) fn known(&mut self, id: &HostId, now: Timestamp) -> &mut Host {
        mark(&mut self.changed, id);
        self.hosts.entry(id.clone()).or_insert_with(|| Host::away(now))
    }

    pub(super) fn remove(&mut self, id: &HostId) {
        self.hosts.remove(id);
        self.changed.remove(id);
        self.take_out(id);
    }

    /// Those that have a stream, the least loaded first.
    pub(super) fn by_load(&mut self) -> impl Iterator<Item = (&HostId, &Host)> {
        while let Some(id) = self.changed.pop_first() {
            self.take_out(&id);
            if let Some(rank) = self.hosts.get(&id).and_then(Host::rank) {
                self.order.insert((rank, id.clone()));
                self.ranks.insert(id, rank);
            }
        }
        self.order.iter().map(|(_, id)| (id, &self.hosts[id]))
    }

    fn take_out(&mut self, id: &HostId) {
        if let Some(rank) = self.ranks.remove(id) {
            self.order.remove(&(rank, id.clone()));
        }
    }

    /// Asserts that whoever is not known to have changed stands where it belongs, and nothing is kept of who is gone.
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

impl Deref for HostsByLoad {
    type Target = BTreeMap<HostId, Host>;

    fn deref(&self) -> &Self::Target {
        &self.hosts
    }
}
