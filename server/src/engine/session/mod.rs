//! Admission of runs to a session: starts, the queue, deletion, retention.

pub(in crate::engine) mod delete;
pub(in crate::engine) mod join;
pub(in crate::engine) mod locks;
pub(in crate::engine) mod queue;
pub(in crate::engine) mod retention;
pub(in crate::engine) mod start;
