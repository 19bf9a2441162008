//! Format of a recording: one call in one line of JSON.

use std::sync::Arc;

use agentloop_core::agent::ModelOptions;
use agentloop_core::message::SharedMessage;
use agentloop_core::model::delta::Delta;
use agentloop_core::model::error::ModelErrorKind;
use agentloop_core::time::{Millis, Timestamp};
use agentloop_core::tool::{Digest, ToolDeclaration};
use serde::{Deserialize, Serialize};

use crate::model::{ModelError, ModelRequest};

/// Version of the format. Only this version is read.
pub(super) const FORMAT: u32 = 1;
/// The first bytes of every line, as [`RecordedCall`] is written.
pub(super) const LINE_START: &str = "{\"v\":1,\"provider\":\"";

/// The version alone, read before the rest of a line.
#[derive(Debug, Deserialize)]
pub(super) struct FormatVersion {
    pub(super) v: u32,
}

/// One recorded call. Fields are only added, with a default.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct RecordedCall {
    /// Version of the format.
    pub(super) v: u32,
    /// Name of the provider that was called.
    pub(super) provider: String,
    /// Digest of the request, for people and their tools. Replaying computes it from the request.
    pub(super) digest: Digest,
    /// Start of the call, in milliseconds since 1970.
    pub(super) started_at: Timestamp,
    /// Time from the start to the first delta.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) first_delta: Option<Millis>,
    /// Time from the start to the end.
    pub(super) duration: Millis,
    /// The request as it was sent, without secrets.
    pub(super) request: RecordedRequest,
    /// The deltas of the response, in order.
    pub(super) deltas: Vec<Delta>,
    /// The end of the call.
    pub(super) end: CallEnd,
}

/// A request without its timeouts and caches.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct RecordedRequest {
    pub(super) model: String,
    pub(super) system_prompt: String,
    pub(super) messages: Vec<SharedMessage>,
    pub(super) tools: Vec<Arc<ToolDeclaration>>,
    pub(super) options: ModelOptions,
}

/// The end of a recorded model call, after its deltas.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum CallEnd {
    /// The response is complete.
    Finished,
    /// The call failed after the deltas.
    Failed {
        kind: ModelErrorKind,
        message: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        status: Option<u16>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_after: Option<Millis>,
    },
    /// The caller dropped the stream before its end.
    Cancelled,
}

impl From<&ModelRequest> for RecordedRequest {
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

impl From<&ModelError> for CallEnd {
    fn from(error: &ModelError) -> Self {
        let ModelError { kind, message, status, retry_after } = error.clone();
        Self::Failed { kind, message, status, retry_after }
    }
}

impl CallEnd {
    /// Returns the error that replaying reports after the deltas.
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
