//! One live run: its task, how the task starts and starts again, and what reaches it.

mod damaged;
mod deliver;
mod disconnect;
pub(in crate::engine) mod new_task;
pub(in crate::engine) mod recover;
pub(in crate::engine) mod recovery_order;
pub(in crate::engine) mod spawn;
pub(in crate::engine) mod table;
pub(in crate::engine) mod task;
pub(in crate::engine) mod timers;
pub(in crate::engine) mod tool_events;
