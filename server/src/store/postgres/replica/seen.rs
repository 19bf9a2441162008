//! The rows of all replicas, as this one has seen them over time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use agentloop_core::cluster::member::{ClusterView, OwnerSeen};
use agentloop_core::cluster::shard::{Beat, OwnerNo};
use agentloop_core::cluster::suspicion::Suspect;
use agentloop_core::time::Timestamp;

use super::statements::{Beaten, StoredReplica};
use crate::cluster::{HUB, Peer, ReplicaPart, ReplicaRow};

/// The newest rows, and since when each counter stands where it is.
#[derive(Debug, Clone, Default)]
pub(in crate::store::postgres) struct Seen {
    /// The owner of each shard; `None` where there is none. Empty before the first beat.
    owners: Vec<Option<OwnerNo>>,
    replicas: BTreeMap<OwnerNo, ReplicaSeen>,
}

#[derive(Debug, Clone)]
struct ReplicaSeen {
    stored: StoredReplica,
    /// Arrival of the response that showed this counter first.
    since: Timestamp,
}

impl Seen {
    /// Takes note of the rows of a beat that was confirmed at `now`.
    pub(in crate::store::postgres) fn update(&mut self, beaten: &Beaten, now: Timestamp) {
        if !beaten.owners.is_empty() {
            self.owners.clone_from(&beaten.owners);
        }
        let before = std::mem::take(&mut self.replicas);
        for stored in &beaten.replicas {
            let known = before.get(&stored.number).filter(|seen| seen.stored.beat == stored.beat);
            let since = known.map_or(now, |seen| seen.since);
            self.replicas.insert(stored.number, ReplicaSeen { stored: stored.clone(), since });
        }
    }

    /// True if the suspect's counter has stood still for the suspect's own lease, which may be longer than this replica's.
    /// `sent` is the time of the beat that found it unchanged.
    pub(in crate::store::postgres) fn is_over(&self, suspect: &Suspect, sent: Timestamp) -> bool {
        let seen = self.replicas.get(&suspect.owner);
        seen.is_some_and(|seen| sent.since(seen.since) >= seen.stored.lease)
    }

    /// The owner of each shard, as `me` tells it: of its own it names those alone that `has_owner` names, which may be newer than
    /// the last beat.
    pub(in crate::store::postgres) fn owners(
        &self,
        me: OwnerNo,
        shards: u16,
        has_owner: impl Fn(u16) -> bool,
    ) -> Arc<[Option<OwnerNo>]> {
        let owner = |shard: u16| match self.owners.get(usize::from(shard)).copied().flatten() {
            _ if has_owner(shard) => Some(me),
            owner => owner.filter(|owner| *owner != me),
        };
        (0..shards).map(owner).collect()
    }

    /// The other replicas that are not fenced.
    pub(in crate::store::postgres) fn peers(&self, me: OwnerNo) -> Arc<BTreeMap<OwnerNo, Peer>> {
        let others = self.replicas.values().map(|seen| &seen.stored);
        let others = others.filter(|stored| stored.number != me && !stored.is_fenced);
        let peer = |stored: &StoredReplica| Peer { number: stored.number, address: stored.address.clone() };
        Arc::new(others.map(|stored| (stored.number, peer(stored))).collect())
    }

    /// All replicas, in the order of their numbers, as `me` sees them.
    pub(in crate::store::postgres) fn rows(&self, me: OwnerNo, now: Timestamp) -> Vec<ReplicaRow> {
        let row = |seen: &ReplicaSeen| {
            let stored = &seen.stored;
            let shards = self.owners.iter().filter(|owner| **owner == Some(stored.number)).count();
            ReplicaRow {
                peer: Peer { number: stored.number, address: stored.address.clone() },
                version: stored.version.clone(),
                joined_at: stored.started_at,
                shards: u16::try_from(shards).unwrap_or(u16::MAX),
                keeps_hosts: self.owners.get(usize::from(HUB.0)) == Some(&Some(stored.number)),
                part: match (stored.is_fenced, shards > 0) {
                    (true, _) => ReplicaPart::Fenced,
                    (false, true) => ReplicaPart::Owner,
                    (false, false) => ReplicaPart::Standby,
                },
                silent_for: (stored.number != me).then(|| now.since(seen.since).duration()),
                configuration_digest: stored.configuration_digest.clone(),
            }
        };
        self.replicas.values().map(row).collect()
    }
}

/// The rows of a beat as the protocol takes them.
pub(in crate::store::postgres) fn view(beaten: &Beaten) -> ClusterView {
    let seen = |stored: &StoredReplica| OwnerSeen {
        owner: stored.number,
        beat: Beat(stored.beat),
        is_draining: stored.is_draining,
    };
    let is_half_fenced = |stored: &&StoredReplica| stored.is_fenced && !stored.is_ended;
    let half_fenced = beaten.replicas.iter().filter(is_half_fenced).map(|stored| stored.number);
    // An owner whose row is gone frees nothing itself. One whose fence has ended may have shards still: replicas of an earlier
    // version, which may have ended it, do not know of them.
    let is_missing = |owner: &OwnerNo| {
        let is_it = |stored: &StoredReplica| stored.number == *owner && !stored.is_ended;
        !beaten.replicas.iter().any(is_it)
    };
    let missing: BTreeSet<OwnerNo> = beaten.owners.iter().copied().flatten().filter(is_missing).collect();
    let count = |shards: usize| u16::try_from(shards).unwrap_or(u16::MAX);
    ClusterView {
        owners: beaten.replicas.iter().filter(|stored| !stored.is_fenced).map(seen).collect(),
        half_fenced: half_fenced.chain(missing).collect(),
        mine: beaten.mine.clone(),
        free: count(beaten.owners.iter().filter(|owner| owner.is_none()).count()),
        shards: count(beaten.owners.len()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use agentloop_core::cluster::shard::{ShardNo, Term};

    use agentloop_core::time::Millis;

    use super::*;

    fn stored(number: u64, beat: u64) -> StoredReplica {
        StoredReplica {
            number: OwnerNo(number),
            address: format!("10.0.0.{number}:1"),
            version: "1".to_owned(),
            configuration_digest: "c".to_owned(),
            started_at: Timestamp(5),
            lease: Millis(2_500),
            beat,
            is_draining: false,
            is_fenced: false,
            is_ended: false,
        }
    }

    /// These are the owners of the shards; 0 is none.
    fn owner_list(owners: &[u64]) -> Vec<Option<OwnerNo>> {
        owners.iter().map(|owner| (*owner > 0).then_some(OwnerNo(*owner))).collect()
    }

    fn beaten(owners: &[u64], replicas: Vec<StoredReplica>) -> Beaten {
        Beaten { is_beaten: true, owners: owner_list(owners), mine: vec![(ShardNo(2), Term(7))], replicas }
    }

    #[test]
    fn free_shards_are_counted_and_own_ones_listed() {
        let found = view(&beaten(&[2, 0, 1, 0], vec![stored(1, 4), stored(2, 9)]));
        assert_eq!((found.free, found.shards, found.owners.len()), (2, 4, 2));
        assert_eq!(found.mine, [(ShardNo(2), Term(7))]);
    }

    #[test]
    fn fences_that_have_not_ended_are_shown() {
        let half = StoredReplica { is_fenced: true, ..stored(1, 4) };
        let ended = StoredReplica { is_ended: true, is_fenced: true, ..stored(2, 4) };
        let found = view(&beaten(&[1, 1], vec![half, ended, stored(3, 1)]));
        assert_eq!((found.half_fenced, found.owners.len()), (vec![OwnerNo(1)], 1));
        let left = StoredReplica { is_ended: true, is_fenced: true, ..stored(2, 4) };
        let found = view(&beaten(&[2, 3], vec![left, stored(3, 1)]));
        assert_eq!(found.half_fenced, [OwnerNo(2)], "a replica of an earlier version has ended it");
        let missing = view(&beaten(&[9, 3, 9], vec![stored(3, 1)]));
        assert_eq!((missing.half_fenced, missing.free), (vec![OwnerNo(9)], 0));
    }

    /// A replica with a short lease would fence one that trusts a long one.
    #[test]
    fn a_longer_lease_of_another_is_waited_for() {
        let mut seen = Seen::default();
        let slow = StoredReplica { lease: Millis(10_000), ..stored(2, 4) };
        seen.update(&beaten(&[2], vec![stored(1, 1), slow.clone()]), Timestamp(1_000));
        let suspect = Suspect { owner: OwnerNo(2), beat: Beat(4) };
        seen.update(&beaten(&[2], vec![stored(1, 2), slow.clone()]), Timestamp(5_000));
        assert!(!seen.is_over(&suspect, Timestamp(10_999)));
        assert!(seen.is_over(&suspect, Timestamp(11_000)));
        let moved = StoredReplica { beat: 5, ..slow };
        seen.update(&beaten(&[2], vec![stored(1, 3), moved]), Timestamp(11_000));
        assert!(!seen.is_over(&suspect, Timestamp(11_000)));
        let silent: Vec<_> =
            seen.rows(OwnerNo(1), Timestamp(11_500)).iter().map(|row| row.silent_for).collect();
        assert_eq!(silent, [None, Some(Duration::from_millis(500))]);
    }

    /// The beat does not show shards that a replica has claimed since, or gives away.
    #[test]
    fn of_its_own_shards_a_replica_knows_more_than_the_beat() {
        let mut seen = Seen::default();
        seen.update(&beaten(&[1, 1, 2, 0], vec![stored(1, 1), stored(2, 1)]), Timestamp(1));
        assert_eq!(*seen.owners(OwnerNo(1), 4, |shard| shard == 0 || shard == 3), owner_list(&[1, 0, 2, 1]));
        assert_eq!(*seen.owners(OwnerNo(2), 4, |shard| shard == 2), owner_list(&[1, 1, 2, 0]));
    }

    #[test]
    fn a_fenced_replica_is_no_peer() {
        let mut seen = Seen::default();
        let fenced = StoredReplica { is_fenced: true, ..stored(3, 1) };
        seen.update(&beaten(&[2, 2], vec![stored(1, 1), stored(2, 1), fenced]), Timestamp(1));
        let peer = Peer { number: OwnerNo(2), address: "10.0.0.2:1".to_owned() };
        assert_eq!(seen.peers(OwnerNo(1)).values().collect::<Vec<_>>(), [&peer]);
        let rows = seen.rows(OwnerNo(1), Timestamp(1));
        let shown: Vec<_> = rows.iter().map(|row| (row.part, row.shards, row.keeps_hosts)).collect();
        let (stands_by, owns, fenced) = (ReplicaPart::Standby, ReplicaPart::Owner, ReplicaPart::Fenced);
        assert_eq!(shown, [(stands_by, 0, false), (owns, 2, true), (fenced, 0, false)]);
    }
}
