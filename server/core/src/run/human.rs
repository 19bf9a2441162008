//! What humans are asked and what they say.

use serde::{Deserialize, Serialize};

use crate::id::{CallSlot, RequestId};
use crate::time::Timestamp;
use crate::tool::Digest;

/// What kind of answer is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QuestionKind {
    /// May this call run?
    Approve,
    /// This call's host was lost: what became of it?
    InDoubt,
}

/// A question to a human about a tool call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// Derived from the run, the call and the attempt.
    pub request: RequestId,
    /// What kind of answer is asked.
    pub kind: QuestionKind,
    /// The call.
    pub slot: CallSlot,
    /// Its tool.
    pub tool: String,
    /// Its arguments, JSON text.
    pub arguments: String,
    /// Of tool and arguments: what is approved.
    pub digest: Digest,
    /// When it was asked.
    pub asked_at: Timestamp,
    /// When it is denied by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

/// What a human decides about a tool call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "decision", rename_all = "snake_case")]
pub enum Decision {
    /// Run it as it is. Of a call in doubt: run it once more.
    Approve,
    /// Run it with other arguments.
    ApproveWithEdits {
        /// The whole arguments, JSON text.
        arguments: String,
    },
    /// Do not run it; the model goes on.
    Deny {
        /// What the model reads.
        message: String,
    },
    /// Do not run it, and end the run.
    DenyAndStop {
        /// Kept with the run.
        message: String,
    },
    /// Do not run it; this is its result.
    AnswerInPlace {
        /// What the model reads.
        output: String,
    },
    /// Nobody answered in time.
    Expired,
    /// The call or the run ended first.
    Withdrawn,
}

impl Decision {
    /// In a word, as errors and logs name it.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Approve => "approve",
            Self::ApproveWithEdits { .. } => "approve_with_edits",
            Self::Deny { .. } => "deny",
            Self::DenyAndStop { .. } => "deny_and_stop",
            Self::AnswerInPlace { .. } => "answer_in_place",
            Self::Expired => "expired",
            Self::Withdrawn => "withdrawn",
        }
    }
}

/// A decision, by whom and when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// What was decided.
    pub decision: Decision,
    /// Who decided; empty where nobody did.
    pub by: String,
    /// When.
    pub at: Timestamp,
}
