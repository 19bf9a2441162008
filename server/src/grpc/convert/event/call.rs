//! Events of tool calls.

use agentloop_core::context::build::is_cut;
use agentloop_core::id::{Attempt, CallSlot, EntryNo, HostId, InstanceId};
use agentloop_core::message::Message;
use agentloop_core::run::event::{AfterAttempt, Ran};
use agentloop_core::time::Millis;
use agentloop_core::tool::EffectClass;
use agentloop_proto::v1 as wire;
use wire::run_event::Event as Wire;

use super::EventConverter;
use crate::grpc::convert::message::tool_result;
use crate::grpc::convert::{duration, timestamp};

impl EventConverter {
    pub(super) fn call_proposed(
        &self,
        slot: CallSlot,
        tool: &str,
        effect: EffectClass,
        needs_approval: bool,
        title: &str,
    ) -> Wire {
        Wire::ToolCallProposed(wire::ToolCallProposed {
            call_id: self.call_id(slot),
            tool: tool.to_owned(),
            effect: effect_class(effect).into(),
            requires_approval: needs_approval,
            title: title.to_owned(),
        })
    }

    pub(super) fn call_offered(
        &self,
        slot: CallSlot,
        tool: &str,
        attempt: Attempt,
        host: &HostId,
        instance: Option<&InstanceId>,
        effect: Option<EffectClass>,
    ) -> Wire {
        Wire::ToolCallOffered(wire::ToolCallOffered {
            call_id: self.call_id(slot),
            tool: tool.to_owned(),
            attempt: attempt.0,
            host_id: host.to_string(),
            instance_id: instance.map(ToString::to_string).unwrap_or_default(),
            effect: effect.map_or(wire::EffectClass::Unspecified, effect_class).into(),
        })
    }

    pub(super) fn call_accepted(&self, slot: CallSlot, attempt: Attempt, host: &HostId) -> Wire {
        Wire::ToolCallAccepted(wire::ToolCallAccepted {
            call_id: self.call_id(slot),
            attempt: attempt.0,
            host_id: host.to_string(),
        })
    }

    pub(super) fn call_checkpoint(&self, slot: CallSlot, attempt: Attempt, checkpoint: &[u8]) -> Wire {
        Wire::ToolCallCheckpoint(wire::ToolCallCheckpoint {
            call_id: self.call_id(slot),
            attempt: attempt.0,
            checkpoint: checkpoint.to_vec(),
        })
    }

    pub(super) fn call_attempt_failed(
        &self,
        slot: CallSlot,
        attempt: Attempt,
        message: &str,
        ran: Ran,
        then: AfterAttempt,
    ) -> Wire {
        Wire::ToolCallAttemptFailed(wire::ToolCallAttemptFailed {
            call_id: self.call_id(slot),
            attempt: attempt.0,
            message: message.to_owned(),
            effect: attempt_effect(ran).into(),
            state: after_attempt(then).into(),
            retry_at: match then {
                AfterAttempt::Retry { at } => at.map(timestamp),
                AfterAttempt::InDoubt | AfterAttempt::Settle => None,
            },
        })
    }

    pub(super) fn call_settled(
        &self,
        entry: EntryNo,
        attempt: Attempt,
        host: Option<&HostId>,
        message: &Message,
        took: Millis,
    ) -> Wire {
        Wire::ToolCallResult(wire::ToolCallResult {
            entry_no: entry.0,
            attempt: attempt.0,
            host_id: host.map(ToString::to_string).unwrap_or_default(),
            result: message.tool_result().map(|result| tool_result(&self.run, result)),
            duration: Some(duration(took)),
            truncated: is_cut(message),
        })
    }
}

fn after_attempt(then: AfterAttempt) -> wire::ToolCallState {
    match then {
        AfterAttempt::Retry { .. } => wire::ToolCallState::Ready,
        AfterAttempt::InDoubt => wire::ToolCallState::InDoubt,
        AfterAttempt::Settle => wire::ToolCallState::Settled,
    }
}

fn attempt_effect(ran: Ran) -> wire::AttemptEffect {
    match ran {
        Ran::No => wire::AttemptEffect::None,
        Ran::Maybe => wire::AttemptEffect::Maybe,
        Ran::Yes => wire::AttemptEffect::Done,
    }
}

/// Converts a tool's effect class.
#[must_use]
pub fn effect_class(class: EffectClass) -> wire::EffectClass {
    match class {
        EffectClass::ReadOnly => wire::EffectClass::ReadOnly,
        EffectClass::Idempotent => wire::EffectClass::Idempotent,
        EffectClass::Keyed => wire::EffectClass::Keyed,
        EffectClass::Unsafe => wire::EffectClass::Unsafe,
    }
}
