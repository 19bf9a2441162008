//! End of an attempt of a tool call, in types that runs and hosts share.

use serde::{Deserialize, Serialize};

use crate::message::{Attachments, Image};
use crate::time::Millis;
use crate::tool::Digest;

/// Knowledge of whether an attempt ran. Only after [`Ran::No`] is another attempt safe for every tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ran {
    /// It certainly did not run.
    No,
    /// It may have run.
    Maybe,
    /// It ran: the host said so.
    Yes,
}

/// The reason for which a host is told to stop a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CancelCause {
    /// The run was aborted. The text beside it is the reason that was given.
    Aborted,
    /// The call's deadline passed.
    Deadline,
    /// The call has a result, or goes on elsewhere.
    Settled,
    /// The run ended for another reason.
    RunEnded,
}

/// Outcome of an attempt, as the host reports it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallOutcome {
    /// The tool ran and returned a result.
    Succeeded {
        /// The output for the model.
        output: String,
        /// Pictures that belong to the output.
        images: Vec<Image>,
        /// The typed output, files and links beside the text.
        attachments: Box<Attachments>,
    },
    /// The tool failed, or could not finish.
    Failed {
        /// The error. The model reads it unless there is another attempt.
        message: String,
        /// True if another attempt may succeed.
        retryable: bool,
        /// Least wait before another attempt.
        delay: Millis,
        /// Knowledge of whether the attempt had effects.
        ran: Ran,
    },
    /// The host does not run the call, and no other host would. The model is told.
    Rejected {
        /// The reason for the model.
        message: String,
    },
}

impl CallOutcome {
    /// Digest by which a host's outcome is told from another one of the same attempt.
    #[must_use]
    pub fn digest(&self) -> Digest {
        match self {
            Self::Succeeded { output, images, attachments } => {
                let images = images.iter().map(Image::digest);
                let images: Vec<Digest> = images.collect();
                let pieces = [b"succeeded".as_slice(), output.as_bytes()].into_iter();
                let pieces = pieces.chain(images.iter().map(|image| image.as_str().as_bytes()));
                // A result without attachments has the digest of before.
                let attachments = (!attachments.is_empty()).then(|| attachments.digest());
                let pieces = pieces.chain(attachments.iter().map(|digest| digest.as_str().as_bytes()));
                Digest::of(&pieces.collect::<Vec<_>>())
            }
            Self::Failed { message, retryable, delay: _, ran } => {
                let ran = match ran {
                    Ran::No => 0,
                    Ran::Maybe => 1,
                    Ran::Yes => 2,
                };
                Digest::of(&[b"failed", message.as_bytes(), &[u8::from(*retryable), ran]])
            }
            Self::Rejected { message } => Digest::of(&[b"rejected", message.as_bytes()]),
        }
    }
}
