//! Replicas of the server, as the contract shows them.

use agentloop_core::time::Millis;
use agentloop_proto::v1 as wire;

use super::{duration, timestamp};
use crate::cluster::{Peer, ReplicaPart, ReplicaRow};

/// A replica on the wire.
pub fn replica(row: ReplicaRow, problem: Option<String>) -> wire::Replica {
    let ReplicaRow { peer: Peer { number, address }, version, joined_at, part, silent_for, .. } = row;
    let state = match part {
        ReplicaPart::Owner => wire::ReplicaState::Owner,
        ReplicaPart::Standby => wire::ReplicaState::Standby,
        ReplicaPart::Fenced => wire::ReplicaState::Fenced,
    };
    let silent_for = silent_for.map(|for_so_long| u64::try_from(for_so_long.as_millis()).unwrap_or(u64::MAX));
    wire::Replica {
        number: number.0,
        address,
        version,
        joined_at: Some(timestamp(joined_at)),
        state: state.into(),
        silent_for: silent_for.map(|millis| duration(Millis(millis))),
        configuration_digest: row.configuration_digest,
        shards: row.shards.into(),
        keeps_hosts: row.keeps_hosts,
        problem: problem.unwrap_or_default(),
    }
}
