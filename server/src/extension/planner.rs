//! Planners: code that decides what a run does next.

use agentloop_core::message::{SharedMessage, ToolCall};
use agentloop_core::run::human::Answer;
use agentloop_core::run::plan::{Instruction, Situation};
use agentloop_core::time::{Millis, Timestamp};
use async_trait::async_trait;

use super::{ExtensionError, RunContext};

/// The default of [`Planner::timeout`].
pub const PLANNER_TIMEOUT: Millis = Millis::secs(30);

/// A planner. The engine calls it whenever a run that names it needs its next instruction, and carries that out. The
/// run's limits still hold. An instruction that cannot be carried out fails the run.
#[async_trait]
pub trait Planner: Send + Sync + 'static {
    /// The longest time for one call.
    fn timeout(&self) -> Millis {
        PLANNER_TIMEOUT
    }

    /// Decides the next instruction. May be called again about the same decision: after a restart, or after a failure
    /// that is retryable.
    ///
    /// # Errors
    /// [`ExtensionError::Failed`]; the run then fails.
    async fn plan(&self, view: PlanView) -> Result<Instruction, ExtensionError>;
}

/// A call of a planner: the run, and the reason why it needs an instruction.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanView {
    /// The run to decide about.
    pub run: RunContext,
    /// A response after this time is ignored.
    pub deadline: Timestamp,
    /// Number of the decision, counted from 1 in the run. A repeated call has the same number.
    pub decision: u32,
    /// The reason why the run needs an instruction.
    pub situation: Situation,
    /// The last messages of the conversation as the model sees them, oldest first.
    pub messages: Vec<SharedMessage>,
    /// The tool calls that wait for the planner.
    pub calls: Vec<ToolCall>,
    /// The human's answer to the planner's last question.
    pub answer: Option<Answer>,
}
