//! Hooks: code that has its say around runs and tool calls.

use agentloop_core::extension::{HookPoint, HookTerms};
use agentloop_core::limits::{
    INPUT_MESSAGES_MAX, PROMPT_ADDITION_BYTES_MAX, SHORT_TEXT_BYTES_MAX, TOOL_ARGUMENTS_BYTES_MAX,
    TOOL_RESULT_BYTES_MAX,
};
use agentloop_core::message::{Message, SharedMessage, ToolCall, ToolResult};
use agentloop_core::time::Timestamp;
use async_trait::async_trait;

use super::{ExtensionError, RunContext};

/// A hook. The engine asks it at each of its points, in the order of the run's list, and gives it up when its time is
/// up.
#[async_trait]
pub trait Hook: Send + Sync + 'static {
    /// Where it has its say, how long it may take, and what its failure means.
    fn terms(&self) -> HookTerms;

    /// Has its say. May be asked again about the same thing.
    ///
    /// # Errors
    /// When it fails: the run or the call goes on without it, unless it is required.
    async fn call(&self, request: HookRequest) -> Result<HookVerdict, ExtensionError>;
}

/// What a hook is asked.
#[derive(Debug, Clone, PartialEq)]
pub struct HookRequest {
    /// The run.
    pub run: RunContext,
    /// No answer counts after this.
    pub deadline: Timestamp,
    /// What it is asked about.
    pub occasion: Occasion,
}

/// What a hook is asked about.
#[derive(Debug, Clone, PartialEq)]
pub enum Occasion {
    /// A run is about to begin.
    PreRun {
        /// What the caller brought.
        messages: Vec<SharedMessage>,
    },
    /// A tool call is about to run.
    PreTool {
        /// The call, with the arguments that it would run with.
        call: ToolCall,
    },
    /// A tool call has its result, which is not recorded yet.
    PostTool {
        /// The call, with the arguments that it ran with.
        call: ToolCall,
        /// The result.
        result: ToolResult,
    },
    /// The run is over: the state says how.
    PostRun,
}

impl Occasion {
    /// At which point it is asked.
    #[must_use]
    pub fn point(&self) -> HookPoint {
        match self {
            Self::PreRun { .. } => HookPoint::PreRun,
            Self::PreTool { .. } => HookPoint::PreTool,
            Self::PostTool { .. } => HookPoint::PostTool,
            Self::PostRun => HookPoint::PostRun,
        }
    }
}

/// What a hook has to say. Where nothing is set, everything stays as it is.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HookVerdict {
    /// For people; kept with the run.
    pub annotation: String,
    /// Why it must not go on. Before runs and tool calls alone.
    pub veto: Option<String>,
    /// Before runs: put in place of the caller's messages, where there is any.
    pub input_messages: Vec<Message>,
    /// Before runs: put after the system prompt.
    pub system_prompt_addition: String,
    /// Before tool calls: put in place of the arguments, JSON text.
    pub arguments: Option<String>,
    /// After tool calls: put in place of the output.
    pub output: Option<String>,
}

impl HookVerdict {
    /// Whether this can be said at a point, and is no longer than it may be.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check(&self, point: HookPoint) -> Result<(), String> {
        let own = [
            ("a veto", self.veto.is_some(), &[HookPoint::PreRun, HookPoint::PreTool][..]),
            ("messages", !self.input_messages.is_empty(), &[HookPoint::PreRun]),
            ("a system prompt", !self.system_prompt_addition.is_empty(), &[HookPoint::PreRun]),
            ("arguments", self.arguments.is_some(), &[HookPoint::PreTool]),
            ("an output", self.output.is_some(), &[HookPoint::PostTool]),
        ];
        if let Some((what, ..)) = own.iter().find(|(_, said, points)| *said && !points.contains(&point)) {
            return Err(format!("{what} has no place at this point"));
        }
        let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let bounds = [
            ("annotation", self.annotation.len(), SHORT_TEXT_BYTES_MAX),
            ("veto", length(&self.veto), SHORT_TEXT_BYTES_MAX),
            ("system_prompt_addition", self.system_prompt_addition.len(), PROMPT_ADDITION_BYTES_MAX),
            ("arguments", length(&self.arguments), TOOL_ARGUMENTS_BYTES_MAX),
            ("output", length(&self.output), TOOL_RESULT_BYTES_MAX),
            ("input_messages", self.input_messages.len(), INPUT_MESSAGES_MAX),
        ];
        match bounds.iter().find(|(_, size, max)| size > max) {
            Some((what, size, max)) => Err(format!("{what} is {size}, which is more than {max}")),
            None => Ok(()),
        }
    }
}
