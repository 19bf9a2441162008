//! Work that follows a run: titles, summaries, follow-ups, recall.

pub(in crate::engine) mod follow_up;
pub(in crate::engine) mod notes;
pub(in crate::engine) mod recall;
pub(in crate::engine) mod runner;
