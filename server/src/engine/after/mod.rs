//! Jobs that follow a run: titles and summaries, calls of hooks and memories. Beside them the `recall` context source.

pub(in crate::engine) mod follow_up;
pub(in crate::engine) mod notes;
pub(in crate::engine) mod recall;
pub(in crate::engine) mod runner;
