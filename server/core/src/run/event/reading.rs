//! Properties that all kinds of events share: entry, content, kind.

use crate::entry::Entry;
use crate::id::EntryNo;
use crate::run::event::{EntryContent, Event};

impl Event {
    /// The entry that this event adds to the session, and where its content is; `None` if it adds none.
    #[must_use]
    pub fn entry(&self) -> Option<(EntryNo, EntryContent)> {
        match self {
            Self::MessageAdded { entry, .. }
            | Self::Imported { entry, .. }
            | Self::ContextAdded { entry, .. }
            | Self::AssistantMessage { entry, .. }
            | Self::CallSettled { entry, .. }
            | Self::Compacted { entry, .. } => Some((*entry, EntryContent::Own)),
            Self::MessageEntered { entry, held } => Some((*entry, EntryContent::Held(*held))),
            Self::Started { .. }
            | Self::SessionEntered { .. }
            | Self::MessageHeld { .. }
            | Self::CompactionStarted { .. }
            | Self::CompactionFailed { .. }
            | Self::ModelCallStarted { .. }
            | Self::ModelCallFailed { .. }
            | Self::ExtensionApplied { .. }
            | Self::Planned { .. }
            | Self::CallProposed { .. }
            | Self::CallOffered { .. }
            | Self::CallAccepted { .. }
            | Self::CallCheckpoint { .. }
            | Self::CallAttemptFailed { .. }
            | Self::TodosUpdated { .. }
            | Self::HumanRequested { .. }
            | Self::HumanApproved { .. }
            | Self::HumanResolved { .. }
            | Self::Paused { .. }
            | Self::Resumed { .. }
            | Self::Finished { .. } => None,
        }
    }

    /// The content that this event brings for the session. It enters with this event, or with a later one.
    #[must_use]
    pub fn content(&self) -> Option<Entry> {
        match self {
            Self::MessageAdded { message, .. }
            | Self::Imported { message, .. }
            | Self::MessageHeld { message, .. }
            | Self::ContextAdded { message, .. }
            | Self::AssistantMessage { message, .. }
            | Self::CallSettled { message, .. } => Some(Entry::Message(message.clone())),
            Self::Compacted { compaction, .. } => Some(Entry::Compaction(compaction.clone())),
            Self::Started { .. }
            | Self::SessionEntered { .. }
            | Self::MessageEntered { .. }
            | Self::CompactionStarted { .. }
            | Self::CompactionFailed { .. }
            | Self::ModelCallStarted { .. }
            | Self::ModelCallFailed { .. }
            | Self::ExtensionApplied { .. }
            | Self::Planned { .. }
            | Self::CallProposed { .. }
            | Self::CallOffered { .. }
            | Self::CallAccepted { .. }
            | Self::CallCheckpoint { .. }
            | Self::CallAttemptFailed { .. }
            | Self::TodosUpdated { .. }
            | Self::HumanRequested { .. }
            | Self::HumanApproved { .. }
            | Self::HumanResolved { .. }
            | Self::Paused { .. }
            | Self::Resumed { .. }
            | Self::Finished { .. } => None,
        }
    }

    /// True if nothing outside depends on the event, so that it may be written together with later ones.
    #[must_use]
    pub fn may_wait(&self) -> bool {
        matches!(self, Self::CallAccepted { .. } | Self::CallCheckpoint { resume_no: 0, .. })
    }

    /// Name of the kind: the tag `kind` of the event's JSON, and the column of the view `journal`.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Started { .. } => "started",
            Self::SessionEntered { .. } => "session_entered",
            Self::MessageAdded { .. } => "input_added",
            Self::Imported { .. } => "imported",
            Self::MessageHeld { .. } => "input_held",
            Self::MessageEntered { .. } => "input_entered",
            Self::ContextAdded { .. } => "context_added",
            Self::ExtensionApplied { .. } => "extension_applied",
            Self::CompactionStarted { .. } => "compaction_started",
            Self::CompactionFailed { .. } => "compaction_failed",
            Self::Compacted { .. } => "compacted",
            Self::ModelCallStarted { .. } => "model_call_started",
            Self::ModelCallFailed { .. } => "model_call_failed",
            Self::AssistantMessage { .. } => "assistant_message",
            Self::Planned { .. } => "planned",
            Self::CallProposed { .. } => "call_proposed",
            Self::CallOffered { .. } => "call_offered",
            Self::CallAccepted { .. } => "call_accepted",
            Self::CallCheckpoint { .. } => "call_checkpoint",
            Self::CallAttemptFailed { .. } => "call_attempt_failed",
            Self::CallSettled { .. } => "call_settled",
            Self::TodosUpdated { .. } => "todos_updated",
            Self::HumanRequested { .. } => "human_requested",
            Self::HumanApproved { .. } => "human_approved",
            Self::HumanResolved { .. } => "human_resolved",
            Self::Paused { .. } => "paused",
            Self::Resumed { .. } => "resumed",
            Self::Finished { .. } => "finished",
        }
    }
}
