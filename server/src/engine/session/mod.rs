//! Admission of runs to a session: starts, the queue, deletion, retention.

mod admit;
pub(in crate::engine) mod delete;
mod first_input;
pub(in crate::engine) mod join;
pub(in crate::engine) mod locks;
pub(in crate::engine) mod new_sessions;
pub(in crate::engine) mod queue;
pub(in crate::engine) mod request;
pub(in crate::engine) mod retention;
pub(in crate::engine) mod start;
