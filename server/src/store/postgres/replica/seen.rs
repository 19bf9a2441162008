//! The rows of all replicas, as this one has seen them over time.

use std::collections::BTreeMap;

use agentloop_core::cluster::member::{ClusterView, OwnerSeen};
use agentloop_core::cluster::shard::{Beat, OwnerNo, ShardNo, Term};
use agentloop_core::cluster::suspicion::Suspect;
use agentloop_core::time::{Millis, Timestamp};

use super::statements::{Beaten, StoredReplica};
use crate::cluster::{Peer, ReplicaPart, ReplicaRow};

/// The whole database is one shard of the protocol: one replica owns all of it.
pub(in crate::store::postgres) const DATABASE: ShardNo = ShardNo(0);

/// The newest rows, and since when each counter stands where it is.
#[derive(Debug, Clone, Default)]
pub(in crate::store::postgres) struct Seen {
    owner: Option<i64>,
    replicas: BTreeMap<i64, ReplicaSeen>,
}

#[derive(Debug, Clone)]
struct ReplicaSeen {
    stored: StoredReplica,
    /// Arrival of the answer that showed this counter first.
    since: Timestamp,
}

impl Seen {
    /// Takes note of the rows of a beat that was answered at `now`.
    pub(in crate::store::postgres) fn update(&mut self, beaten: &Beaten, now: Timestamp) {
        self.owner = beaten.owner;
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
        let seen = self.replicas.get(&number(suspect.owner));
        seen.is_some_and(|seen| sent.since(seen.since) >= seen.stored.lease)
    }

    /// The owner, if it is another replica, and is not fenced.
    pub(in crate::store::postgres) fn owner(&self, me: i64) -> Option<Peer> {
        let owner = self.owner.filter(|owner| *owner != me)?;
        let seen = self.replicas.get(&owner).filter(|seen| !seen.stored.is_fenced)?;
        Some(Peer { number: owner, address: seen.stored.address.clone() })
    }

    /// All replicas, in the order of their numbers, as `me` sees them.
    pub(in crate::store::postgres) fn rows(&self, me: i64, now: Timestamp) -> Vec<ReplicaRow> {
        let row = |seen: &ReplicaSeen| {
            let stored = &seen.stored;
            ReplicaRow {
                peer: Peer { number: stored.number, address: stored.address.clone() },
                version: stored.version.clone(),
                joined_at: stored.started_at,
                part: match (stored.is_fenced, self.owner == Some(stored.number)) {
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

/// The number of an owner, as the database has it.
pub(in crate::store::postgres) fn number(owner: OwnerNo) -> i64 {
    i64::try_from(owner.0).unwrap_or(i64::MAX)
}

/// The number of an owner, as the protocol has it. The database's are positive.
pub(in crate::store::postgres) fn owner_no(number: i64) -> OwnerNo {
    OwnerNo(number.unsigned_abs())
}

/// The rows of a beat as the protocol takes them.
pub(in crate::store::postgres) fn view(beaten: &Beaten, me: i64) -> ClusterView {
    let seen = |stored: &StoredReplica| OwnerSeen {
        owner: owner_no(stored.number),
        beat: Beat(stored.beat),
        is_draining: false,
    };
    let is_half_fenced = |stored: &&StoredReplica| stored.is_fenced && !stored.is_ended;
    let half_fenced = beaten.replicas.iter().filter(is_half_fenced).map(|stored| stored.number);
    // An owner whose row is gone frees nothing itself.
    let is_there = |owner: &i64| beaten.replicas.iter().any(|stored| stored.number == *owner);
    let missing = beaten.owner.filter(|owner| !is_there(owner));
    let mine = beaten.owner.filter(|owner| *owner == me);
    ClusterView {
        owners: beaten.replicas.iter().filter(|stored| !stored.is_fenced).map(seen).collect(),
        half_fenced: half_fenced.chain(missing).map(owner_no).collect(),
        mine: mine.map(|_| (DATABASE, Term(beaten.term))).into_iter().collect(),
        free: u16::from(beaten.owner.is_none()),
        shards: 1,
    }
}

/// A lease in milliseconds.
pub(in crate::store::postgres) fn millis(length: std::time::Duration) -> Millis {
    Millis(u64::try_from(length.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn stored(number: i64, beat: u64) -> StoredReplica {
        StoredReplica {
            number,
            address: format!("10.0.0.{number}:1"),
            version: "1".to_owned(),
            configuration_digest: "c".to_owned(),
            started_at: Timestamp(5),
            lease: Millis(2_500),
            beat,
            is_fenced: false,
            is_ended: false,
        }
    }

    fn beaten(owner: Option<i64>, replicas: Vec<StoredReplica>) -> Beaten {
        Beaten { is_beaten: true, owner, term: 7, replicas }
    }

    #[test]
    fn the_database_is_one_shard() {
        let of = |owner| view(&beaten(owner, vec![stored(1, 4), stored(2, 9)]), 1);
        assert_eq!((of(None).free, of(None).mine), (1, vec![]));
        assert_eq!((of(Some(1)).free, of(Some(1)).mine), (0, vec![(DATABASE, Term(7))]));
        assert_eq!((of(Some(2)).free, of(Some(2)).mine), (0, vec![]));
        assert_eq!(of(Some(2)).owners.len(), 2);
    }

    #[test]
    fn fences_that_have_not_ended_are_shown() {
        let half = StoredReplica { is_fenced: true, ..stored(1, 4) };
        let ended = StoredReplica { is_ended: true, is_fenced: true, ..stored(2, 4) };
        let found = view(&beaten(Some(1), vec![half, ended, stored(3, 1)]), 3);
        assert_eq!((found.half_fenced, found.owners.len()), (vec![OwnerNo(1)], 1));
        let missing = view(&beaten(Some(9), vec![stored(3, 1)]), 3);
        assert_eq!((missing.half_fenced, missing.free), (vec![OwnerNo(9)], 0));
    }

    /// A replica with a short lease would fence one that trusts a long one.
    #[test]
    fn a_longer_lease_of_another_is_waited_for() {
        let mut seen = Seen::default();
        let slow = StoredReplica { lease: Millis(10_000), ..stored(2, 4) };
        seen.update(&beaten(Some(2), vec![stored(1, 1), slow.clone()]), Timestamp(1_000));
        let suspect = Suspect { owner: OwnerNo(2), beat: Beat(4) };
        seen.update(&beaten(Some(2), vec![stored(1, 2), slow.clone()]), Timestamp(5_000));
        assert!(!seen.is_over(&suspect, Timestamp(10_999)));
        assert!(seen.is_over(&suspect, Timestamp(11_000)));
        let moved = StoredReplica { beat: 5, ..slow };
        seen.update(&beaten(Some(2), vec![stored(1, 3), moved]), Timestamp(11_000));
        assert!(!seen.is_over(&suspect, Timestamp(11_000)));
        let silent: Vec<_> = seen.rows(1, Timestamp(11_500)).iter().map(|row| row.silent_for).collect();
        assert_eq!(silent, [None, Some(Duration::from_millis(500))]);
    }

    #[test]
    fn the_owner_is_known_to_others_while_it_is_not_fenced() {
        let mut seen = Seen::default();
        seen.update(&beaten(Some(2), vec![stored(1, 1), stored(2, 1)]), Timestamp(1));
        let peer = Peer { number: 2, address: "10.0.0.2:1".to_owned() };
        assert_eq!((seen.owner(1), seen.owner(2)), (Some(peer), None));
        let fenced = StoredReplica { is_fenced: true, ..stored(2, 1) };
        seen.update(&beaten(Some(2), vec![stored(1, 2), fenced]), Timestamp(2));
        assert_eq!(seen.owner(1), None);
    }
}
