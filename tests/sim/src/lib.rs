//! The server's engine under injected faults, from a seed.
//!
//! The core, the engine with its driver, and the fleet of tool hosts are real. Around them are fakes: a store in memory
//! that passes the conformance tests of stores, models and hosts that follow the seed, and a clock that jumps. All of it
//! runs on one thread under virtual time, so the same seed gives the same history, and a minute takes milliseconds.
//!
//! Faults:
//!
//! - the server is killed before or after any write, or stopped;
//! - the store is slow, fails, is away, or loses the response to a write;
//! - streams of hosts break, go silent, lose frames and repeat them;
//! - hosts are slow, fail, reject calls, vanish, and forget their work;
//! - responses of models fail, are cut and overflow;
//! - the clock is set forwards and back;
//! - callers leave during an RPC; subscribers lag, leave and come back;
//! - sessions are forked and deleted, and their ids used again.
//!
//! [`cluster`] is a simulation of its own: replicas over one database. [`capacity`] is another: the load that they carry.
//!
//! Checks: the answers that callers got, the effects that hosts counted themselves, and the journals must agree.

mod approvers;
mod callers;
pub mod capacity;
mod check;
pub mod cluster;
mod faulty_store;
mod host;
mod ledger;
mod model;
mod operator;
mod plan;
mod random;
mod server;
mod server_process;
mod session_forks;
mod simulate;
mod stepper;
pub mod store;
mod subscriber;
mod trace;
mod waits;
mod world;

pub use plan::{Only, PlantedBug};
pub use simulate::{Options, Outcome, simulate};
