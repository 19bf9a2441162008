//! Conversion of the server's frames to tool hosts.

use agentloop_core::host::frame::{
    CallRequest, CancelCause, CapabilityRefusal, CapabilityVerdict, Disposition, InputAnswer, InputReply,
    RefusalKind, ResultVerdict, ServerFrame, Welcome,
};
use agentloop_core::id::CallId;
use agentloop_proto::v1::{self, connect_response::Frame, input_response};
use prost::Message as _;

use super::extension;
use crate::extension::remote::{ExtensionRequest, ForwardedRequest};
use crate::grpc::convert::people::human;
use crate::grpc::convert::{duration, timestamp};

/// Converts a frame to a host.
pub(crate) fn server_frame(frame: ServerFrame) -> v1::ConnectResponse {
    let frame = match frame {
        ServerFrame::Welcome(frame) => Frame::Welcome(welcome(*frame)),
        ServerFrame::ToolsUpdated(verdicts) => {
            Frame::ToolsUpdated(v1::ToolsUpdated { capabilities: capability_verdicts(verdicts) })
        }
        ServerFrame::CallRequest(request) => Frame::CallRequest(call_request(*request)),
        ServerFrame::OpenRuntime { runtime, session } => Frame::OpenRuntime(v1::OpenRuntime {
            runtime_id: runtime.id.to_string(),
            run_id: runtime.id.run.to_string(),
            session_id: session.to_string(),
            init_data_json: runtime.init_data,
            hints_json: runtime.hints,
        }),
        ServerFrame::CloseRuntime { runtime } => {
            Frame::CloseRuntime(v1::CloseRuntime { runtime_id: runtime })
        }
        ServerFrame::Cancel { call, cause, reason, grace } => Frame::Cancel(v1::Cancel {
            call_id: call.call.to_string(),
            attempt: call.attempt.0,
            reason,
            grace_period: Some(duration(grace)),
            cause: cancel_cause(cause).into(),
        }),
        ServerFrame::ResultAck { call, verdict } => Frame::ResultAck(v1::ResultAck {
            call_id: call.call.to_string(),
            attempt: call.attempt.0,
            verdict: result_verdict(verdict).into(),
        }),
        ServerFrame::LeaseLost(call) => {
            Frame::LeaseLost(v1::LeaseLost { call_id: call.call.to_string(), attempt: call.attempt.0 })
        }
        ServerFrame::InputResponse { call, input, answer } => {
            Frame::InputResponse(input_response(&call.call, InputReply { input, answer }))
        }
        ServerFrame::ResumeStateAck { call, resume_no } => Frame::ProgressAck(v1::ProgressAck {
            call_id: call.call.to_string(),
            attempt: call.attempt.0,
            resume_no,
        }),
        ServerFrame::Ping { nonce } => Frame::Ping(v1::Ping { nonce }),
        ServerFrame::GoAway { reconnect_after, reason } => {
            Frame::GoAway(v1::GoAway { reconnect_after: Some(duration(reconnect_after)), reason })
        }
        ServerFrame::ProtocolError { message, call } => Frame::ProtocolError(v1::ProtocolError {
            message,
            call_id: call.map(|call| call.to_string()).unwrap_or_default(),
        }),
    };
    v1::ConnectResponse { frame: Some(frame) }
}

/// Converts a request to one of a host's extensions.
pub(crate) fn extension_request(request: &ExtensionRequest) -> v1::ConnectResponse {
    v1::ConnectResponse { frame: Some(Frame::ExtensionRequest(extension::request(request))) }
}

/// Encodes a request to an extension whose host is connected to another replica.
pub(crate) fn encoded_request(request: &ExtensionRequest) -> Vec<u8> {
    extension::request(request).encode_to_vec()
}

/// Converts a request that another replica has encoded. In place of one that cannot be read, the host gets an empty request, and
/// reports it as wrong.
pub(crate) fn forwarded_request(request: ForwardedRequest) -> v1::ConnectResponse {
    let decoded = v1::ExtensionRequest::decode(request.encoded.as_slice()).unwrap_or_default();
    let decoded = v1::ExtensionRequest { request_id: request.id, ..decoded };
    v1::ConnectResponse { frame: Some(Frame::ExtensionRequest(decoded)) }
}

fn input_response(call: &CallId, reply: InputReply) -> v1::InputResponse {
    let InputReply { input, answer } = reply;
    v1::InputResponse { call_id: call.to_string(), input_id: input, response: Some(input_answer(answer)) }
}

fn input_answer(answer: InputAnswer) -> input_response::Response {
    match answer {
        InputAnswer::Text(text) => input_response::Response::Text(text),
        InputAnswer::Selected(option_ids) => {
            input_response::Response::Selection(v1::InputSelection { option_ids })
        }
        InputAnswer::Filled(fields) => input_response::Response::FormJson(fields),
        InputAnswer::Visited(done) => input_response::Response::Url(human::url_outcome(done).into()),
        InputAnswer::Refused(reason) => input_response::Response::Refused(reason),
    }
}

fn welcome(welcome: Welcome) -> v1::Welcome {
    let calls = welcome.calls.into_iter().map(|(call, verdict)| v1::CallVerdict {
        call_id: call.call.to_string(),
        attempt: call.attempt.0,
        disposition: disposition(verdict).into(),
    });
    v1::Welcome {
        protocol_version: 1,
        connection_id: welcome.connection,
        capabilities: capability_verdicts(welcome.capabilities),
        heartbeat_interval: Some(duration(welcome.heartbeat_interval)),
        lease_timeout: Some(duration(welcome.lease_timeout)),
        grace_period: Some(duration(welcome.grace_period)),
        max_frame_bytes: welcome.max_frame_bytes as u64,
        calls: calls.collect(),
    }
}

fn capability_verdicts(verdicts: Vec<CapabilityVerdict>) -> Vec<v1::CapabilityVerdict> {
    let verdict = |verdict: CapabilityVerdict| {
        let accepted = verdict.refused.is_none();
        let refusal = verdict.refused.as_ref().map_or(v1::CapabilityRefusal::Unspecified, refusal);
        v1::CapabilityVerdict {
            name: verdict.name,
            accepted,
            reason: verdict.refused.map(|refused| refused.reason).unwrap_or_default(),
            refusal: refusal.into(),
        }
    };
    verdicts.into_iter().map(verdict).collect()
}

fn refusal(refused: &CapabilityRefusal) -> v1::CapabilityRefusal {
    match refused.kind {
        RefusalKind::Invalid => v1::CapabilityRefusal::Invalid,
        RefusalKind::Different => v1::CapabilityRefusal::Different,
        RefusalKind::Weaker => v1::CapabilityRefusal::Weaker,
        RefusalKind::NotAllowed => v1::CapabilityRefusal::NotAllowed,
        RefusalKind::Other => v1::CapabilityRefusal::Unspecified,
    }
}

fn call_request(request: CallRequest) -> v1::CallRequest {
    let (run, slot) = (request.call.call.run.clone(), request.call.call.slot);
    v1::CallRequest {
        call_id: request.call.call.to_string(),
        attempt: request.call.attempt.0,
        lease_token: request.lease.as_str().to_owned(),
        idempotency_key: request.idempotency_key,
        tool: request.tool,
        arguments_json: request.arguments,
        deadline: Some(timestamp(request.deadline)),
        time_left: Some(duration(request.time_left)),
        checkpoint: request.checkpoint,
        resume_state: request.resume_state,
        answers: request.answers.into_iter().map(|reply| input_response(&request.call.call, reply)).collect(),
        turn_id: format!("{run}.{}", slot.model_call),
        run_id: run.to_string(),
        session_id: request.session.to_string(),
        traceparent: request.traceparent.map(|parent| parent.to_string()).unwrap_or_default(),
        runtime_id: request.runtime.map(|runtime| runtime.id.to_string()).unwrap_or_default(),
        caller: Some(v1::Caller {
            name: request.caller.name.unwrap_or_default(),
            tenant: request.caller.tenant.to_string(),
            groups: request.caller.groups.to_vec(),
        }),
    }
}

fn cancel_cause(cause: CancelCause) -> v1::CancelCause {
    match cause {
        CancelCause::Aborted => v1::CancelCause::Aborted,
        CancelCause::Deadline => v1::CancelCause::Deadline,
        CancelCause::Settled => v1::CancelCause::Settled,
        CancelCause::RunEnded => v1::CancelCause::RunEnded,
    }
}

fn disposition(disposition: Disposition) -> v1::CallDisposition {
    match disposition {
        Disposition::Continue => v1::CallDisposition::Continue,
        Disposition::Stop => v1::CallDisposition::Stop,
        Disposition::AlreadyRecorded => v1::CallDisposition::AlreadyRecorded,
    }
}

/// Converts the verdict of a `ResultAck`.
pub(crate) fn result_verdict(verdict: ResultVerdict) -> v1::ResultVerdict {
    match verdict {
        ResultVerdict::Recorded => v1::ResultVerdict::Recorded,
        ResultVerdict::Duplicate => v1::ResultVerdict::Duplicate,
        ResultVerdict::Stale => v1::ResultVerdict::Stale,
    }
}
