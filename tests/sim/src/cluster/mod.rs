//! Replicas over one database, under injected faults, from a seed.
//!
//! The protocol of owners is real: `agentloop_core::cluster` decides what each replica does. Three parts of it are not in the
//! server, and are here. `routes` finds the owner of a shard for an RPC that another replica has accepted. `terms` drops
//! frames of earlier owners where they are received. `seeks` gives back room on tool hosts that was granted at more replicas
//! than one. Around all of them are models: the database with its rows, locks and connections, the processes with their
//! clocks and threads, the links between them, callers, and receivers. Everything is one queue of events, so the same seed
//! gives the same history.
//!
//! Faults:
//!
//! - replicas are killed, frozen and told to stop; their runtime stands still while their beats could go on;
//! - they are cut off from the database, alone and all together, and it is slow;
//! - responses to commits are lost; statements of broken connections arrive late, or stay open with their locks;
//! - links between replicas break;
//! - with `goes_back`, an asynchronous standby takes the primary's place, so the database goes back by up to 1 s.
//!
//! Checks: `check.rs` begins with them.

mod callers;
mod check;
mod database;
mod failover;
mod faults;
mod frame;
mod lane;
mod peers;
mod plan;
mod process;
mod replica;
mod room;
mod routes;
mod schedule;
mod seeks;
mod simulate;
mod standby;
mod statements;
mod terms;
mod world;
mod writes;

pub use self::plan::PlantedClusterBug;
pub use self::simulate::{ClusterOptions, simulate_cluster};
pub use self::world::ClusterOutcome;
