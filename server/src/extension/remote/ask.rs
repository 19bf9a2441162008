//! What is asked of hosts, and what they answer.

use agentloop_core::message::SharedMessage;
use agentloop_core::run::plan::Instruction;
use agentloop_core::time::Timestamp;

use crate::extension::{ContextItem, ExtensionError, HookVerdict, Occasion, PlanView, RunContext};

/// Room for what stands beside the texts of a question: ids, times, the run's own fields.
const OVERHEAD_BYTES: usize = 8 * 1024;

/// A question on its way to a host.
#[derive(Debug, Clone, PartialEq)]
pub struct Ask {
    /// To be sent back.
    pub id: String,
    /// The extension.
    pub name: String,
    /// No answer counts after this.
    pub deadline: Timestamp,
    /// The run.
    pub run: RunContext,
    /// What is asked.
    pub question: Question,
}

/// What is asked.
#[derive(Debug, Clone, PartialEq)]
pub enum Question {
    /// Decide what to do next.
    Plan(Box<PlanView>),
    /// Have your say.
    Hook(Box<Occasion>),
    /// Give context.
    Context {
        /// About what.
        query: String,
        /// All texts together.
        max_bytes: usize,
    },
    /// Remember.
    Remember {
        /// What a run added to its session.
        messages: Vec<SharedMessage>,
    },
}

/// An answer as it came in.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    /// As in the question.
    pub id: String,
    /// What was said, or why nothing was that counts.
    pub answer: Result<Said, ExtensionError>,
}

/// What an extension said.
#[derive(Debug, Clone, PartialEq)]
pub enum Said {
    /// A planner's decision.
    Instruction(Instruction),
    /// A hook's say.
    Hook(HookVerdict),
    /// Context.
    Context(Vec<ContextItem>),
    /// It remembered.
    Remembered,
}

impl Ask {
    /// Roughly its bytes on the wire.
    #[must_use]
    pub fn size(&self) -> usize {
        let labels: usize =
            self.run.state.spec.labels.iter().map(|(name, value)| name.len() + value.len()).sum();
        OVERHEAD_BYTES + labels + self.question.size()
    }
}

impl Question {
    fn size(&self) -> usize {
        match self {
            Self::Plan(view) => {
                let messages: usize = view.messages.iter().map(|message| message.size()).sum();
                messages + view.calls.iter().map(|call| call.arguments.len()).sum::<usize>()
            }
            Self::Hook(occasion) => match &**occasion {
                Occasion::PreRun { messages } => messages.iter().map(|message| message.size()).sum(),
                Occasion::PreTool { call } => call.arguments.len(),
                Occasion::PostTool { call, result } => call.arguments.len() + result.size(),
                Occasion::PostRun => 0,
            },
            Self::Remember { messages } => messages.iter().map(|message| message.size()).sum(),
            Self::Context { query, .. } => query.len(),
        }
    }
}
