//! Writes: one task takes all that are queued and commits them together.

pub(super) mod append;
pub(super) mod audit;
pub(super) mod blobs;
mod claims;
pub(super) mod commit;
pub(super) mod connection;
pub(super) mod ops;
pub(super) mod own;
pub(super) mod put_off;
pub(super) mod sessions;
pub(super) mod statement;
pub(super) mod task;
mod transaction;
mod wait;
