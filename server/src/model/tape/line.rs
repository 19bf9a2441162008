//! One recorded call: the format of a line.

use std::sync::Arc;

use agentloop_core::agent::ModelOptions;
use agentloop_core::delta::Delta;
use agentloop_core::error::ModelErrorKind;
use agentloop_core::message::SharedMessage;
use agentloop_core::time::{Millis, Timestamp};
use agentloop_core::tool::{Digest, ToolDeclaration};
use serde::{Deserialize, Serialize};

use crate::model::{ModelError, ModelRequest};

/// The format that is written, and the only one that is read.
pub(super) const FORMAT: u32 = 1;

/// What is read first: whether the rest can be.
#[derive(Debug, Deserialize)]
pub(super) struct Head {
    pub(super) v: u32,
}

/// One call. Fields are only ever added, with a default.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Line {
    /// The format.
    pub(super) v: u32,
    /// The name of the provider that was asked.
    pub(super) provider: String,
    /// For people and their tools; whoever replays computes it from the request.
    pub(super) digest: Digest,
    /// When the call began: milliseconds since 1970.
    pub(super) started_at: Timestamp,
    /// From there to the first delta.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) first_delta: Option<Millis>,
    /// From there to the end.
    pub(super) duration: Millis,
    /// What was asked.
    pub(super) request: Asked,
    /// What was answered, in order.
    pub(super) deltas: Vec<Delta>,
    /// How it ended.
    pub(super) end: End,
}

/// A request without what only concerns the waiting for its answer.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Asked {
    pub(super) model: String,
    pub(super) system_prompt: String,
    pub(super) messages: Vec<SharedMessage>,
    pub(super) tools: Vec<Arc<ToolDeclaration>>,
    pub(super) options: ModelOptions,
}

/// How a call ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum End {
    /// The answer is complete.
    Finished,
    /// By an error, after the deltas.
    Failed {
        kind: ModelErrorKind,
        message: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        status: Option<u16>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_after: Option<Millis>,
    },
    /// Nobody wanted the rest of the answer.
    Cancelled,
}

impl From<&ModelRequest> for Asked {
    fn from(request: &ModelRequest) -> Self {
        Self {
            model: request.model.clone(),
            system_prompt: request.system_prompt.clone(),
            messages: request.messages.clone(),
            tools: request.tools.to_vec(),
            options: request.options.clone(),
        }
    }
}

impl From<&ModelError> for End {
    fn from(error: &ModelError) -> Self {
        let ModelError { kind, message, status, retry_after } = error.clone();
        Self::Failed { kind, message, status, retry_after }
    }
}

impl End {
    /// What the caller of the model is told after the deltas.
    pub(super) fn error(&self) -> Option<ModelError> {
        match self.clone() {
            Self::Finished => None,
            Self::Failed { kind, message, status, retry_after } => {
                Some(ModelError { kind, message, status, retry_after })
            }
            Self::Cancelled => Some(ModelError::new(
                ModelErrorKind::Connection,
                "the recording of this call ends here: the call was cancelled",
            )),
        }
    }
}
