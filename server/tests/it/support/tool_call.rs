//! Responses of a model that call a tool.

use agentloop_core::message::FinishReason;
use agentloop_core::model::delta::Delta;

/// The whole response of a model that calls this tool once, without arguments.
pub(crate) fn tool_call(tool: &str) -> [Delta; 3] {
    [
        Delta::ToolCallStart { index: 0, provider_id: None, name: tool.to_owned() },
        Delta::ToolCallArguments { index: 0, fragment: "{}".to_owned() },
        Delta::Finish { reason: FinishReason::ToolCalls },
    ]
}
