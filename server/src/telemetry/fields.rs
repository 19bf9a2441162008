//! Names of spans and of their fields, so that one search finds every log line about a run.
//!
//! With `tracing`'s macros: `tracing::info_span!(RUN_SPAN, { RUN_ID } = %id)`.

/// The span of one run's task.
pub const RUN_SPAN: &str = "run";
/// The span of one background task.
pub const TASK_SPAN: &str = "task";

/// The field for the id of the run.
pub const RUN_ID: &str = "run.id";
/// The field for the name of the background task.
pub const TASK_NAME: &str = "task.name";
