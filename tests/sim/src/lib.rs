//! The server's engine under injected faults, from a seed.
//!
//! What runs is the real thing: the core, the engine with its driver, and the fleet of tool hosts. What is around it is
//! not: a store in memory that passes the behaviour tests of every store, models and hosts that do as the seed has it,
//! and a clock that jumps. All of it is one thread under virtual time, so that a seed is a whole history: the same seed
//! gives the same one, and a minute of it takes milliseconds.
//!
//! What goes wrong: the server is killed before or after any write, or told to stop; the store is slow, fails, is away,
//! or loses the answer to what it wrote; streams of hosts break, are silent, lose frames and repeat them; hosts dawdle,
//! fail, turn calls down, vanish, and forget what they did; model answers fail, are cut and overflow; the clock is set
//! forwards and back; callers leave in the middle of a call; subscribers lag, leave and come back; sessions are forked and
//! deleted, and others have their names.
//!
//! What is held against it: what callers were told, what hosts did to the world by their own count, and what the
//! journals say.

mod check;
mod curator;
mod gate;
mod host;
mod model;
mod people;
mod plan;
mod random;
mod server;
mod simulate;
mod stepper;
pub mod store;
mod subscriber;
mod trace;
mod world;

pub use plan::{Only, Plant};
pub use simulate::{Options, Outcome, simulate};
