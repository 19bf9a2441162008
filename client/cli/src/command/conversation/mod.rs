//! The commands on sessions and their runs: they start, show, answer and end them.

pub(crate) mod abort;
pub(crate) mod approve;
pub(crate) mod fork;
pub(crate) mod overview;
pub(crate) mod queue;
pub(crate) mod replay;
pub(crate) mod resume;
pub(crate) mod run;
pub(crate) mod runs;
pub(crate) mod search;
pub(crate) mod sessions;
pub(crate) mod transfer;
pub(crate) mod watch;
