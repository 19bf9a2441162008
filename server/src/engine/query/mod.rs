//! What callers ask of a run.

pub(in crate::engine) mod decide;
pub(in crate::engine) mod replay;
pub(in crate::engine) mod step;
pub(in crate::engine) mod view;
