//! Calls: what the host has of the server's, what they say, and results that the server has not recorded yet.

pub(super) mod ask;
pub(super) mod bound;
pub(super) mod buffer;
pub(super) mod calls;
pub(super) mod credit;
pub(super) mod memory;
pub(super) mod outcome;
pub(super) mod task;
