//! How a try of a tool call ends: the words that runs and hosts share.

use serde::{Deserialize, Serialize};

use crate::message::Image;
use crate::time::Millis;

/// Whether a try may have had effects. Only [`Ran::No`] may be tried again blindly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ran {
    /// Certainly not.
    No,
    /// Nobody knows.
    Maybe,
    /// Certainly.
    Yes,
}

/// A host's answer to a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallOutcome {
    /// It ran.
    Succeeded {
        /// What the model reads.
        output: String,
        /// Pictures beside it.
        images: Vec<Image>,
    },
    /// It failed.
    Failed {
        /// What the model reads, unless it is tried again.
        message: String,
        /// Whether another try may help.
        retryable: bool,
        /// Not before this.
        delay: Millis,
        /// What is known of its effects.
        ran: Ran,
    },
    /// The host does not take it, and no host will: the model is told.
    Rejected {
        /// What the model reads.
        message: String,
    },
}
