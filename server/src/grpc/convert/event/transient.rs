//! Progress that is shown to subscribers and is not in the journal: pieces of responses, progress and output of calls.

use agentloop_core::id::{Attempt, CallSlot};
use agentloop_core::message::Message;
use agentloop_core::model::delta::Delta;
use agentloop_core::run::status::RunStatus;
use agentloop_core::run::view::ProcessState;
use agentloop_proto::v1 as wire;
use wire::run_event::Event as Wire;

use super::{EventConverter, process_state};
use crate::engine::feed::{LiveProgress, ModelAttempt, Transient};
use crate::grpc::convert::message::message;
use crate::grpc::convert::run::run_status;
use crate::grpc::convert::timestamp;

impl EventConverter {
    pub(super) fn transient(&self, transient: &Transient) -> wire::RunEvent {
        let (model_call, event) = self.progress(&transient.what);
        let (status, process) = match &transient.what {
            LiveProgress::Delta { .. } | LiveProgress::Partial { .. } => {
                (RunStatus::ModelRunning, ProcessState::Streaming)
            }
            LiveProgress::Call { .. } | LiveProgress::Output { .. } => {
                (RunStatus::ToolRunning, ProcessState::ToolExecuting)
            }
        };
        wire::RunEvent {
            seq: 0,
            run_id: self.run.to_string(),
            session_id: self.session.to_string(),
            turn_id: self.turn_id(model_call),
            at: Some(timestamp(transient.at)),
            status: run_status(status).into(),
            phase: wire::LoopPhase::Executing.into(),
            process: process_state(process).into(),
            event: Some(event),
        }
    }

    /// The model call that the progress belongs to, and the progress itself. One call per kind of progress.
    fn progress(&self, progress: &LiveProgress) -> (u32, Wire) {
        match progress {
            LiveProgress::Delta { call, delta_seq, delta } => {
                (call.model_call, model_delta(*call, *delta_seq, delta))
            }
            LiveProgress::Partial { call, delta_seq, message } => {
                (call.model_call, self.partial_message(*call, *delta_seq, message))
            }
            LiveProgress::Call { slot, attempt, message, fraction } => {
                (slot.model_call, self.call_progress(*slot, *attempt, message, *fraction))
            }
            LiveProgress::Output { slot, attempt, chunk_seq, stderr, data } => {
                (slot.model_call, self.call_output(*slot, *attempt, *chunk_seq, *stderr, data))
            }
        }
    }

    fn partial_message(&self, call: ModelAttempt, delta_seq: u64, so_far: &Message) -> Wire {
        Wire::PartialMessage(wire::PartialMessage {
            model_call: call.model_call,
            attempt: call.attempt.0,
            delta_seq,
            message: Some(message(&self.run, so_far)),
        })
    }

    fn call_progress(&self, slot: CallSlot, attempt: Attempt, message: &str, fraction: Option<f64>) -> Wire {
        Wire::ToolCallProgress(wire::ToolCallProgress {
            call_id: self.call_id(slot),
            attempt: attempt.0,
            message: message.to_owned(),
            fraction,
        })
    }

    fn call_output(
        &self,
        slot: CallSlot,
        attempt: Attempt,
        chunk_seq: u64,
        stderr: bool,
        data: &[u8],
    ) -> Wire {
        let stream = if stderr { wire::OutputStream::Stderr } else { wire::OutputStream::Stdout };
        Wire::ToolCallOutput(wire::ToolCallOutput {
            call_id: self.call_id(slot),
            attempt: attempt.0,
            chunk_seq,
            stream: stream.into(),
            data: data.to_vec(),
        })
    }
}

fn model_delta(call: ModelAttempt, delta_seq: u64, delta: &Delta) -> Wire {
    use wire::model_delta::Delta as Piece;
    let ModelAttempt { model_call, attempt } = call;
    let call = |index: u32, name: &str, fragment: &str| {
        Piece::ToolCall(wire::ToolCallDelta {
            index,
            name: name.to_owned(),
            arguments_fragment: fragment.to_owned(),
        })
    };
    let piece = match delta {
        Delta::Text { text } => Some(Piece::Text(text.clone())),
        Delta::Reasoning { text } => Some(Piece::Reasoning(text.clone())),
        Delta::ToolCallStart { index, name, .. } => Some(call(*index, name, "")),
        Delta::ToolCallArguments { index, fragment } => Some(call(*index, "", fragment)),
        Delta::ReasoningEnd { .. }
        | Delta::TextEnd { .. }
        | Delta::ToolCallState { .. }
        | Delta::Opaque(_)
        | Delta::Usage(_)
        | Delta::Finish { .. } => None,
    };
    Wire::ModelDelta(wire::ModelDelta { model_call, attempt: attempt.0, delta_seq, delta: piece })
}
