//! Work that a run's task starts and waits for. Most of it is a future whose output is one input for the run.

pub(in crate::engine) mod coalesce;
pub(in crate::engine) mod compact;
pub(in crate::engine) mod complete;
pub(in crate::engine) mod extensions;
pub(in crate::engine) mod model_call;
pub(in crate::engine) mod prepare;
pub(in crate::engine) mod tool_hooks;
