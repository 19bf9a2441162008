//! Hooks: code that is called before and after runs and tool calls, and may change or veto them.

use agentloop_core::extension::{HookDeclaration, HookPoint};
use agentloop_core::limits::{
    INPUT_MESSAGES_MAX, PROMPT_ADDITION_BYTES_MAX, SHORT_TEXT_BYTES_MAX, TOOL_ARGUMENTS_BYTES_MAX,
    TOOL_RESULT_BYTES_MAX,
};
use agentloop_core::message::{Message, SharedMessage, ToolCall, ToolResult};
use agentloop_core::time::Timestamp;
use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::{ExtensionError, RunContext};

/// A hook. The engine calls it at each of its points, in the order in which the run names its hooks, and drops the call
/// after its timeout.
#[async_trait]
pub trait Hook: Send + Sync + 'static {
    /// The hook's points and timeout, and whether it is required.
    fn declaration(&self) -> HookDeclaration;

    /// Waits until the hook can be called, for as long as a run may wait for that. The engine awaits it before it calls a
    /// required hook, so that a hook whose host begins anew has its whole timeout.
    async fn ready(&self) {}

    /// Gives a verdict. May be called again about the same thing.
    ///
    /// # Errors
    /// [`ExtensionError::Failed`]; the run or the call goes on without a verdict, unless the hook is required.
    async fn call(&self, request: HookRequest) -> Result<HookVerdict, ExtensionError>;
}

/// A call of a hook.
#[derive(Debug, Clone, PartialEq)]
pub struct HookRequest {
    /// The run that the call is about.
    pub run: RunContext,
    /// A response after this time is ignored.
    pub deadline: Timestamp,
    /// The point at which it is called, with its data.
    pub occasion: Occasion,
}

/// The point at which a hook is called, with the data that it may change.
#[derive(Debug, Clone, PartialEq)]
pub enum Occasion {
    /// A run is about to begin.
    PreRun {
        /// The messages that the caller sent with the run.
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
        /// The result, as it would be recorded.
        result: ToolResult,
    },
    /// A run has ended. Its state says how.
    PostRun,
}

impl Occasion {
    /// The point without its data.
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

/// A hook's verdict. The default changes nothing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HookVerdict {
    /// A note for people, recorded with the run.
    pub annotation: String,
    /// Before runs and tool calls: the reason why the run or the call must not go on.
    pub veto: Option<String>,
    /// Before runs: replaces the caller's messages, unless empty.
    pub input_messages: Vec<Message>,
    /// Before runs: is added to the system prompt.
    pub system_prompt_addition: String,
    /// Before tool calls: replaces the arguments. JSON text.
    pub arguments: Option<String>,
    /// After tool calls: replaces the output.
    pub output: Option<String>,
}

impl HookVerdict {
    /// The verdict, if every field that is set belongs to this point and is within its bound. Texts for people are cut: they often
    /// quote arguments, and a veto must not be lost because those are long.
    ///
    /// # Errors
    /// The first problem, for people.
    pub fn checked(mut self, point: HookPoint) -> Result<Self, String> {
        for text in self.veto.iter_mut().chain([&mut self.annotation]) {
            text.truncate(text.floor_char_boundary(SHORT_TEXT_BYTES_MAX));
        }
        let own = [
            ("a veto", self.veto.is_some(), &[HookPoint::PreRun, HookPoint::PreTool][..]),
            ("messages", !self.input_messages.is_empty(), &[HookPoint::PreRun]),
            ("a system prompt", !self.system_prompt_addition.is_empty(), &[HookPoint::PreRun]),
            ("arguments", self.arguments.is_some(), &[HookPoint::PreTool]),
            ("an output", self.output.is_some(), &[HookPoint::PostTool]),
        ];
        if let Some((what, ..)) = own.iter().find(|(_, said, points)| *said && !points.contains(&point)) {
            return Err(format!("{what} is not allowed at this point"));
        }
        let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let bounds = [
            ("system_prompt_addition", self.system_prompt_addition.len(), PROMPT_ADDITION_BYTES_MAX),
            ("arguments", length(&self.arguments), TOOL_ARGUMENTS_BYTES_MAX),
            ("output", length(&self.output), TOOL_RESULT_BYTES_MAX),
            ("input_messages", self.input_messages.len(), INPUT_MESSAGES_MAX),
        ];
        match bounds.iter().find(|(_, size, max)| size > max) {
            Some((what, size, max)) => Err(format!("{what} has a size of {size}, which is more than {max}")),
            None => Ok(self),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_veto_holds_however_long_its_reason_is() {
        let reason = format!("not allowed: {}", "é".repeat(SHORT_TEXT_BYTES_MAX));
        let verdict = HookVerdict { veto: Some(reason), ..HookVerdict::default() };
        let veto = verdict.clone().checked(HookPoint::PreTool).expect("it is taken").veto.expect("a veto");
        assert!(veto.len() <= SHORT_TEXT_BYTES_MAX && veto.starts_with("not allowed: é"));
        assert_eq!(
            verdict.checked(HookPoint::PostTool),
            Err("a veto is not allowed at this point".to_owned())
        );
    }
}
