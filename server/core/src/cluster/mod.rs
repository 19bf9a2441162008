//! Several replicas of the server over one database: the owners of sessions, their leases, and takeovers.
//!
//! A replica is one start of a server; the database gives it an owner number that is never used again. Sessions are
//! divided into shards. Within the shards that it owns, a replica is what a single server is: the only one that writes.
//!
//! - [`shard`]: the numbers, and the shard of a session.
//! - [`lease`]: how long an owner may trust that nobody has taken its shards.
//! - [`suspicion`]: when a replica may take those of another.
//! - [`member`]: one replica's part in the protocol. It connects the two, and says what to claim and what to release.
//!
//! Nothing here reads a clock or a database. Time is the replica's own monotonic clock, which counts the time that the
//! machine was suspended. **No two clocks are compared**: a beat is a counter, and each side measures on its own clock
//! for how long it has not changed.
//!
//! **Invariants**, which `tests/sim` attacks with frozen, slow and disconnected replicas:
//!
//! - A replica takes a shard for its own only while its lease is valid. The lease ends before another replica may fence it.
//! - A shard's term rises with every claim.
//! - A fenced owner writes nothing. The database decides that, not the owner's memory.

pub mod lease;
pub mod member;
pub mod shard;
pub mod suspicion;

#[cfg(test)]
mod tests;
