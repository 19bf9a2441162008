//! Tool calls of a host: those that run, their output and questions, and results that the server has not recorded yet.

pub(super) mod calls;
pub(super) mod credit;
pub(super) mod frame_bound;
pub(super) mod key;
pub(super) mod outcome;
pub(super) mod output_buffer;
pub(super) mod question;
pub(super) mod result_cache;
pub(super) mod task;
