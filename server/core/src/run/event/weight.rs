//! Approximate size of an event, for bounds on memory.

use crate::run::event::{Event, Record};
use crate::text::json::encoded_len;

/// Size of an event without its texts.
const RECORD_BYTES: usize = 256;

impl Record {
    /// Approximate size in bytes, in memory and on the wire. It bounds how many records are kept at a time.
    #[must_use]
    pub fn weight(&self) -> usize {
        RECORD_BYTES + self.event.weight()
    }
}

impl Event {
    fn weight(&self) -> usize {
        match self {
            Self::MessageAdded { message, .. }
            | Self::Imported { message, .. }
            | Self::MessageHeld { message, .. }
            | Self::ContextAdded { message, .. }
            | Self::AssistantMessage { message, .. }
            | Self::CallSettled { message, .. } => message.size(),
            Self::CallProposed { arguments, title, .. } => {
                arguments.as_ref().map_or(0, String::len) + title.len()
            }
            Self::CallCheckpoint { checkpoint, .. } => checkpoint.len(),
            Self::CompactionFailed { error, .. }
            | Self::ModelCallFailed { error, .. }
            | Self::Paused { error }
            | Self::Finished { error: Some(error), .. } => error.message.len(),
            Self::CallAttemptFailed { message, .. } => message.len(),
            Self::Compacted { compaction, .. } => compaction.summary.len(),
            Self::ExtensionApplied { applied, .. } => applied.outcome.len() + applied.system_prompt.len(),
            // Rare, and with many texts: counted as JSON.
            Self::Started { .. }
            | Self::SessionEntered { .. }
            | Self::Planned { .. }
            | Self::TodosUpdated { .. }
            | Self::HumanRequested { .. }
            | Self::HumanApproved { .. }
            | Self::HumanResolved { .. } => encoded_len(self),
            Self::MessageEntered { .. }
            | Self::CompactionStarted { .. }
            | Self::ModelCallStarted { .. }
            | Self::CallOffered { .. }
            | Self::CallAccepted { .. }
            | Self::Resumed { .. }
            | Self::Finished { error: None, .. } => 0,
        }
    }
}
