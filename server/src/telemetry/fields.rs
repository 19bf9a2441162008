//! Names of spans and of the fields on them, so that one search finds all that was logged about a run.
//!
//! With `tracing`'s macros: `tracing::info_span!(RUN_SPAN, { RUN_ID } = %id)`.

/// The span of one RPC.
pub const RPC_SPAN: &str = "rpc";
/// The span of one run's task.
pub const RUN_SPAN: &str = "run";
/// The span of one model call.
pub const MODEL_CALL_SPAN: &str = "model_call";
/// The span of one tool call.
pub const TOOL_CALL_SPAN: &str = "tool_call";
/// The span of one tool host's stream.
pub const HOST_SPAN: &str = "host";
/// The span of one background task.
pub const TASK_SPAN: &str = "task";

/// The run.
pub const RUN_ID: &str = "run.id";
/// The session.
pub const SESSION_ID: &str = "session.id";
/// The tool call.
pub const CALL_ID: &str = "call.id";
/// The tool host.
pub const HOST_ID: &str = "host.id";
/// Whose data it is about.
pub const TENANT: &str = "tenant";
/// The background task.
pub const TASK_NAME: &str = "task.name";
