//! Shards, and the numbers of the protocol. Each is a type of its own, so that two of them cannot be swapped by accident.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::id::{SessionId, TenantId};

/// Number of shards. The shard of a session is stored with it, so that a later version may choose another number.
pub const SHARDS: u16 = 1_024;

/// A shard: a part of all sessions, which has one owner. From 0 to [`SHARDS`], which is not reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardNo(pub u16);

/// Number of one start of a server. It is never used again, and says nothing about the order of starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct OwnerNo(pub u64);

/// A counter that its owner raises while it lives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Beat(pub u64);

/// The number of claims of a shard so far. Owner numbers do not rise when 1 takes over from 3; terms always do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term(pub u64);

impl fmt::Display for ShardNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for OwnerNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The shard of a session. All runs of the session are in it.
#[must_use]
pub fn shard_of(tenant: &TenantId, session: &SessionId) -> ShardNo {
    // FNV-1a. No id contains the byte 0, so no two keys give the same bytes.
    let bytes = tenant.as_str().bytes().chain([0]).chain(session.as_str().bytes());
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325, mix);
    // The low bits of FNV are weak where ids differ in their last characters alone.
    let spread = (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48;
    ShardNo(u16::try_from(spread % u64::from(SHARDS)).expect("the remainder is below the number of shards"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shard(tenant: &str, session: &str) -> ShardNo {
        shard_of(&TenantId::parse(tenant).unwrap(), &SessionId::parse(session).unwrap())
    }

    /// The shard is stored with the session. A function that changed would look for sessions in the wrong place.
    #[test]
    fn the_shard_of_a_session_never_changes() {
        assert_eq!(shard("local", "s"), ShardNo(625));
        assert_eq!(shard("local", "session-1"), ShardNo(719));
        assert_eq!(shard("a", "bc"), ShardNo(408));
        assert_eq!(shard("ab", "c"), ShardNo(176));
    }

    #[test]
    fn sessions_spread_over_all_shards() {
        let mut sessions = vec![0_u32; usize::from(SHARDS)];
        for number in 0..100_000 {
            sessions[usize::from(shard("local", &format!("session-{number}")).0)] += 1;
        }
        // 97.7 on average.
        assert!(sessions.iter().all(|count| (50..160).contains(count)), "{sessions:?}");
    }
}
