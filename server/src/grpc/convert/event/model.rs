//! Events of model calls.

use agentloop_core::id::{Attempt, EntryNo};
use agentloop_core::run::event::{Event, Observation};
use agentloop_core::run::status::RunError;
use agentloop_core::time::Timestamp;
use agentloop_proto::v1 as wire;
use wire::run_event::Event as Wire;

use super::EventConverter;
use crate::grpc::convert::message::{finish_reason, message, usage};
use crate::grpc::convert::run::run_error;
use crate::grpc::convert::{duration, timestamp};

impl EventConverter {
    pub(super) fn assistant_message(&self, event: &Event) -> Wire {
        let Event::AssistantMessage {
            model_call,
            attempt,
            entry,
            message: response,
            finish,
            usage: tokens,
            first_token,
            duration: took,
            tools,
            decision,
            full: _,
        } = event
        else {
            unreachable!("only called for this kind")
        };
        Wire::AssistantMessage(wire::AssistantMessage {
            model_call: *model_call,
            attempt: attempt.0,
            entry_no: entry.0,
            message: Some(message(&self.run, response)),
            finish_reason: finish_reason(finish).into(),
            usage: Some(usage(*tokens)),
            time_to_first_token: Some(duration(*first_token)),
            duration: Some(duration(*took)),
            decision: observe_decision(*decision).into(),
            tools_digest: tools.to_string(),
        })
    }
}

pub(super) fn call_started(model_call: u32, attempt: Attempt, last_entry: EntryNo) -> Wire {
    Wire::ModelCallStarted(wire::ModelCallStarted {
        model_call,
        attempt: attempt.0,
        last_entry_no: last_entry.0,
    })
}

pub(super) fn call_failed(
    model_call: u32,
    attempt: Attempt,
    error: &RunError,
    retry_at: Option<Timestamp>,
) -> Wire {
    Wire::ModelCallFailed(wire::ModelCallFailed {
        model_call,
        attempt: attempt.0,
        error: Some(run_error(error)),
        retry_at: retry_at.map(timestamp),
    })
}

fn observe_decision(decision: Observation) -> wire::ObserveDecision {
    match decision {
        Observation::Continue => wire::ObserveDecision::Continue,
        Observation::Compact => wire::ObserveDecision::Compact,
        Observation::Stop => wire::ObserveDecision::Stop,
    }
}
