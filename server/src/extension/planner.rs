//! Planners: code that decides what a run does next.

use agentloop_core::message::{SharedMessage, ToolCall};
use agentloop_core::run::human::Answer;
use agentloop_core::run::plan::{Instruction, Situation};
use agentloop_core::time::{Millis, Timestamp};
use async_trait::async_trait;

use super::{ExtensionError, RunContext};

/// A planner has this long to answer unless it says otherwise.
pub const PLANNER_TIMEOUT: Millis = Millis::secs(30);

/// A planner. The engine asks it wherever a run that names it stands still, and does what it says: the run's limits
/// hold all the same, and what cannot be done fails the run.
#[async_trait]
pub trait Planner: Send + Sync + 'static {
    /// How long it may take to answer.
    fn timeout(&self) -> Millis {
        PLANNER_TIMEOUT
    }

    /// Decides. May be asked again about the same decision: after a restart, or where it failed and says that asking
    /// again may help.
    ///
    /// # Errors
    /// When it fails; the run fails with it.
    async fn plan(&self, view: PlanView) -> Result<Instruction, ExtensionError>;
}

/// What a planner is shown.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanView {
    /// The run.
    pub run: RunContext,
    /// No answer counts after this.
    pub deadline: Timestamp,
    /// Which decision of the run this is, from 1; the same again where it is asked again.
    pub decision: u32,
    /// Why it is asked.
    pub situation: Situation,
    /// The conversation as the model would see it, oldest first: its end, where it is long.
    pub messages: Vec<SharedMessage>,
    /// The tool calls that wait.
    pub calls: Vec<ToolCall>,
    /// The last answer of a human to what the planner asked.
    pub answer: Option<Answer>,
}
