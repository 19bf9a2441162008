//! Frames of a host's stream as plain data. The wire types stay in the server's `grpc` and are converted there.

mod host_frame;
mod server_frame;

use serde::{Deserialize, Serialize};

use crate::id::{Attempt, CallId};
pub use crate::outcome::{CallOutcome, CancelCause, Ran};
pub use crate::question::{InputAnswer, InputReply, QuestionContent, SelectOption};

pub use host_frame::{
    CallInHand, CallResult, CancelOutcome, Capability, Hello, HostFrame, RejectReason, Resumable,
};
pub use server_frame::{
    CallCaller, CallRequest, CapabilityRefusal, CapabilityVerdict, Disposition, RefusalKind, ResultVerdict,
    ServerFrame, Welcome,
};

/// Names one attempt of a call.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CallRef {
    /// The call, with its run.
    pub call: CallId,
    /// The attempt of that call. Frames about an earlier one are late.
    pub attempt: Attempt,
}
