//! Events that change the session or its context: messages, responses of extensions, compactions.

use agentloop_core::entry::{Compaction, CompactionReason};
use agentloop_core::extension::ExtensionCall;
use agentloop_core::id::{CallSlot, EntryNo, Seq};
use agentloop_core::message::{Message, Usage};
use agentloop_core::run::event::Steer;
use agentloop_core::run::status::RunError;
use agentloop_core::todo::TodoItem;
use agentloop_proto::v1 as wire;
use wire::run_event::Event as Wire;

use super::EventConverter;
use crate::grpc::convert::compaction::compacted;
use crate::grpc::convert::duration;
use crate::grpc::convert::host::extension;
use crate::grpc::convert::message::{message, usage};
use crate::grpc::convert::run::run_error;
use crate::grpc::convert::todo::todo;

impl EventConverter {
    /// `entry` is 0 for a message that waits to enter the session.
    pub(super) fn input_message(&self, entry: EntryNo, input: &Message, steer: Option<&Steer>) -> Wire {
        Wire::InputMessage(wire::InputMessage {
            entry_no: entry.0,
            message: Some(message(&self.run, input)),
            steer_id: steer.map(|steer| steer.id.to_string()).unwrap_or_default(),
        })
    }

    pub(super) fn context_added(&self, source: &str, entry: EntryNo, added: &Message) -> Wire {
        Wire::ContextAdded(wire::ContextAdded {
            source: source.to_owned(),
            entry_no: entry.0,
            message: Some(message(&self.run, added)),
        })
    }

    pub(super) fn extension_applied(&self, slot: Option<CallSlot>, applied: &ExtensionCall) -> Wire {
        Wire::ExtensionApplied(wire::ExtensionApplied {
            name: applied.name.clone(),
            outcome: applied.outcome.clone(),
            error: applied.error.clone().unwrap_or_default(),
            kind: extension::kind(applied.extension).into(),
            call_id: slot.map(|slot| self.call_id(slot)).unwrap_or_default(),
            duration: Some(duration(applied.duration)),
        })
    }
}

pub(super) fn input_entered(entry: EntryNo, held: Seq) -> Wire {
    Wire::InputEntered(wire::InputEntered { input_seq: held.0, entry_no: entry.0 })
}

pub(super) fn todos_updated(items: &[TodoItem]) -> Wire {
    Wire::TodosUpdated(wire::TodosUpdated { items: items.iter().map(todo).collect() })
}

pub(super) fn compaction_started(strategy: &str, reason: CompactionReason, tokens: u64) -> Wire {
    Wire::CompactionStarted(wire::CompactionStarted {
        strategy: strategy.to_owned(),
        reason: compaction_reason(reason).into(),
        tokens_before: tokens,
    })
}

pub(super) fn compaction_failed(strategy: &str, error: &RunError) -> Wire {
    Wire::CompactionFailed(wire::CompactionFailed {
        strategy: strategy.to_owned(),
        error: Some(run_error(error)),
    })
}

/// Estimated tokens of the context before and after a compaction.
pub(super) struct TokenChange {
    pub(super) before: u64,
    pub(super) after: u64,
}

pub(super) fn context_compacted(
    entry: EntryNo,
    compaction: &Compaction,
    used: Usage,
    tokens: TokenChange,
) -> Wire {
    Wire::ContextCompacted(wire::ContextCompacted {
        tokens_before: tokens.before,
        tokens_after: tokens.after,
        usage: Some(usage(used)),
        ..compacted(entry, compaction)
    })
}

fn compaction_reason(reason: CompactionReason) -> wire::CompactionReason {
    match reason {
        CompactionReason::Messages => wire::CompactionReason::Messages,
        CompactionReason::Tokens => wire::CompactionReason::Tokens,
        CompactionReason::Overflow => wire::CompactionReason::Overflow,
        CompactionReason::Planned => wire::CompactionReason::Planned,
    }
}
