//! The one task that writes, and what it writes.

pub(in crate::store::sqlite) mod append;
pub(in crate::store::sqlite) mod audit;
pub(in crate::store::sqlite) mod batch;
pub(in crate::store::sqlite) mod blobs;
pub(in crate::store::sqlite) mod jobs;
pub(in crate::store::sqlite) mod ops;
pub(in crate::store::sqlite) mod own;
pub(in crate::store::sqlite) mod sessions;
pub(in crate::store::sqlite) mod statements;
pub(in crate::store::sqlite) mod task;
