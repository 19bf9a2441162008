//! Requests to extensions on hosts, and their responses.

use agentloop_core::message::SharedMessage;
use agentloop_core::run::plan::Instruction;
use agentloop_core::time::{Millis, Timestamp};
use serde::{Deserialize, Serialize};

use crate::extension::{ContextItem, ExtensionError, HookVerdict, Occasion, PlanView, RunContext};

/// Bytes of a request beside its texts: ids, times, the run's own fields.
const OVERHEAD_BYTES: usize = 8 * 1024;

/// A request to an extension on a host.
#[derive(Debug, Clone, PartialEq)]
pub struct ExtensionRequest {
    /// The host sends it back with the response.
    pub id: String,
    /// Name of the extension, as its host declared it.
    pub name: String,
    /// A response after this time is ignored.
    pub deadline: Timestamp,
    /// Time until then when it is sent, for a host whose clock differs.
    pub time_left: Millis,
    /// The run that the request is about.
    pub run: RunContext,
    /// The kind of request, with its data.
    pub body: RequestBody,
}

/// A request of another replica, which has encoded it for the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForwardedRequest {
    /// The id to send in place of the one that is encoded.
    pub id: String,
    /// The message of the contract.
    pub encoded: Vec<u8>,
}

impl ForwardedRequest {
    /// Approximate size on the wire, in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        OVERHEAD_BYTES + self.encoded.len()
    }
}

/// The kinds of requests.
#[derive(Debug, Clone, PartialEq)]
pub enum RequestBody {
    /// To a planner: decide the next instruction.
    Plan(Box<PlanView>),
    /// To a hook: give a verdict.
    Hook(Box<Occasion>),
    /// To a context source: find context.
    Context {
        /// The text of the user's last message.
        query: String,
        /// The most bytes of all items together.
        max_bytes: usize,
    },
    /// To a context source: remember messages.
    Remember {
        /// The messages that a run added to its session.
        messages: Vec<SharedMessage>,
    },
}

/// A response of a host.
#[derive(Debug, Clone, PartialEq)]
pub struct ExtensionResponse {
    /// The id of the request.
    pub id: String,
    /// The response, or the reason why there is no valid one.
    pub result: Result<ResponseBody, ExtensionError>,
}

/// The kinds of responses.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResponseBody {
    /// A planner's decision: the next instruction.
    Instruction(Instruction),
    /// A hook's verdict on the occasion.
    Hook(HookVerdict),
    /// A source's context items, the best ones first.
    Context(Vec<ContextItem>),
    /// A source's confirmation that it has remembered.
    Remembered,
}

impl ExtensionRequest {
    /// Approximate size on the wire, in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        let labels: usize =
            self.run.state.spec().labels.iter().map(|(name, value)| name.len() + value.len()).sum();
        OVERHEAD_BYTES + labels + self.body.size()
    }
}

impl RequestBody {
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
