//! The traits by which an embedder replaces a part of the server or adds to it, in one place. Each is documented where it
//! is defined. [`ServerBuilder`](super::ServerBuilder) takes the implementations.

/// Tells the time of runs.
pub use crate::clock::Clock;
/// Makes a run's context smaller by another strategy.
pub use crate::engine::Compactor;
/// Is called at the end of each run.
pub use crate::engine::FinishExecutor;
/// Answers questions in a human's place.
pub use crate::engine::HumanExecutor;
/// Does a kind of background work after runs.
pub use crate::engine::JobExecutor;
/// Sees every durable event of all runs.
pub use crate::engine::Observer;
/// Sees the events of one run.
pub use crate::engine::RunObserver;
/// Adds texts to the context before a run's first model call.
pub use crate::extension::ContextSource;
/// Is called at points around a run and its tool calls.
pub use crate::extension::Hook;
/// Decides what a run does next.
pub use crate::extension::Planner;
/// Makes new ids, and draws random numbers.
pub use crate::ids::Ids;
/// Calls one model, and streams its response.
pub use crate::model::Model;
/// Finds the model of a name.
pub use crate::model::Models;
/// Keeps everything that is durable.
pub use crate::store::Store;
/// Runs the calls of a tool in this process.
pub use crate::tool::ToolExecutor;
/// Finds hosts for tool calls, and sends the calls there.
pub use crate::tool::Tools;
