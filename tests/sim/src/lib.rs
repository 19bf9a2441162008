//! The server's engine under injected faults, from a seed.

pub mod store;
