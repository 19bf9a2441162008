//! Conversion of frames from tool hosts. It checks their form and sizes; the fleet checks that they fit its state.

mod attachments;
pub(crate) mod extension;
pub(crate) mod server_frame;
#[cfg(test)]
mod tests;

use agentloop_core::extension::ExtensionDeclaration;
use agentloop_core::host::frame::{
    CallInHand, CallOutcome, CallRef, CallResult, CancelOutcome, Capability, Hello, HostFrame,
    QuestionContent, Ran, RejectReason, Resumable, SelectOption,
};
use agentloop_core::id::{Attempt, CallId, HostId, IdError, InstanceId};
use agentloop_core::limits::{
    CALLS_PER_HOST_MAX, CHECKPOINT_BYTES_MAX, GRPC_MESSAGE_BYTES_MAX, HOST_STATUS_BYTES_MAX, ID_BYTES_MAX,
    LABELS_MAX, OUTPUT_CHUNK_BYTES_MAX, PARTS_PER_MESSAGE_MAX, RESUME_STATE_BYTES_MAX, RUNTIMES_PER_HOST_MAX,
    SHORT_TEXT_BYTES_MAX, TOOL_RESULT_BYTES_MAX, TOOLS_PER_HOST_MAX,
};
use agentloop_core::time::Millis;
use agentloop_core::tool::{EffectClass, ToolDeclaration};
use agentloop_proto::v1::{self, capability, connect_request::Frame};

use self::attachments::picture;
pub(in crate::grpc::convert) use self::attachments::{attachments, result_bytes};
use self::extension::BadDeclaration;
use crate::tool::{FrameError, Inbound};

/// A fault in a host's frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Malformed {
    /// The path of the field, as in the contract.
    pub(crate) field: &'static str,
    /// The rule that the field breaks.
    pub(crate) problem: String,
    /// The call that the frame names, if that could be read.
    pub(crate) call: Option<CallId>,
}

impl From<Malformed> for FrameError {
    fn from(fault: Malformed) -> Self {
        Self::Malformed { message: format!("{}: {}", fault.field, fault.problem), call: fault.call }
    }
}

type Parsed<T> = Result<T, Malformed>;

fn malformed<T>(field: &'static str, problem: impl Into<String>) -> Parsed<T> {
    Err(Malformed { field, problem: problem.into(), call: None })
}

fn at_most(field: &'static str, size: usize, max: usize) -> Parsed<()> {
    if size > max { malformed(field, format!("must be at most {max} bytes, has {size}")) } else { Ok(()) }
}

/// Adds the call to a fault.
fn about<T>(call: &CallRef, checked: Parsed<T>) -> Parsed<T> {
    checked.map_err(|fault| Malformed { call: Some(call.call.clone()), ..fault })
}

/// Converts a message from a host: a frame, or the response of an extension.
pub(crate) fn inbound(request: v1::ConnectRequest) -> Parsed<Inbound> {
    match request.frame {
        Some(Frame::ExtensionResponse(response)) => Ok(Inbound::Reply(Box::new(extension::reply(response)))),
        _ => host_frame(request).map(Inbound::Frame),
    }
}

/// Converts a frame from a host. A kind that this version does not know becomes `HostFrame::Unknown`.
pub(crate) fn host_frame(request: v1::ConnectRequest) -> Parsed<HostFrame> {
    let Some(frame) = request.frame else { return Ok(HostFrame::Unknown) };
    Ok(match frame {
        Frame::Hello(frame) => HostFrame::Hello(Box::new(hello(frame)?)),
        Frame::UpdateTools(frame) => HostFrame::UpdateTools {
            capabilities: capabilities("update_tools.capabilities", frame.capabilities)?,
        },
        Frame::Credit(frame) => HostFrame::Credit { total: frame.total },
        Frame::CallAccepted(frame) => HostFrame::Accepted(call_ref(&frame.call_id, frame.attempt)?),
        Frame::CallRejected(frame) => rejected(frame)?,
        Frame::Heartbeat(frame) => heartbeat(&frame)?,
        Frame::Progress(frame) => progress(frame)?,
        Frame::OutputChunk(frame) => output(frame)?,
        Frame::CallResult(frame) => HostFrame::Result(Box::new(result(frame)?)),
        Frame::CallFailed(frame) => HostFrame::Result(Box::new(failed(frame)?)),
        Frame::NeedInput(frame) => need_input(frame)?,
        Frame::CancelAck(frame) => cancel_ack(&frame)?,
        Frame::Draining(_) => HostFrame::Draining,
        Frame::Goodbye(_) => HostFrame::Goodbye,
        Frame::Pong(_) => HostFrame::Pong,
        Frame::ExtensionResponse(_) => HostFrame::Unknown,
    })
}

fn hello(frame: v1::Hello) -> Parsed<Hello> {
    let host = HostId::parse(frame.host_id)
        .or_else(|fault: IdError| malformed("hello.host_id", fault.to_string()))?;
    let instance = match frame.instance_id {
        name if name.is_empty() => None,
        name => Some(
            InstanceId::parse(name)
                .or_else(|fault: IdError| malformed("hello.instance_id", fault.to_string()))?,
        ),
    };
    at_most("hello.sdk", frame.sdk.len(), SHORT_TEXT_BYTES_MAX)?;
    if frame.labels.len() > LABELS_MAX {
        return malformed("hello.labels", format!("must be at most {LABELS_MAX}"));
    }
    for (name, value) in &frame.labels {
        at_most("hello.labels", name.len().max(value.len()), SHORT_TEXT_BYTES_MAX)?;
    }
    if frame.calls_in_hand.len() > CALLS_PER_HOST_MAX {
        return malformed("hello.calls_in_hand", format!("must be at most {CALLS_PER_HOST_MAX}"));
    }
    if frame.open_runtimes.len() > RUNTIMES_PER_HOST_MAX {
        return malformed("hello.open_runtimes", format!("must be at most {RUNTIMES_PER_HOST_MAX}"));
    }
    for runtime in &frame.open_runtimes {
        at_most("hello.open_runtimes", runtime.len(), SHORT_TEXT_BYTES_MAX)?;
    }
    let max_frame_bytes = match usize::try_from(frame.max_frame_bytes) {
        Ok(0) => GRPC_MESSAGE_BYTES_MAX,
        Ok(max) => max,
        Err(_larger_than_memory) => usize::MAX,
    };
    Ok(Hello {
        protocol_version: frame.protocol_version,
        host,
        instance,
        connection_no: frame.connection_no,
        sdk: frame.sdk,
        labels: frame.labels.into_iter().collect(),
        capabilities: capabilities("hello.capabilities", frame.capabilities)?,
        max_frame_bytes,
        calls_in_hand: frame.calls_in_hand.into_iter().map(call_in_hand).collect::<Parsed<_>>()?,
        initial_credit: frame.initial_credit,
        open_runtimes: frame.open_runtimes,
    })
}

fn call_in_hand(call: v1::CallInHand) -> Parsed<CallInHand> {
    Ok(CallInHand {
        call: call_ref(&call.call_id, call.attempt)?,
        lease: lease(call.lease_token)?,
        finished: call.finished,
    })
}

fn capabilities(field: &'static str, capabilities: Vec<v1::Capability>) -> Parsed<Vec<Capability>> {
    if capabilities.len() > TOOLS_PER_HOST_MAX {
        return malformed(field, format!("must be at most {TOOLS_PER_HOST_MAX}"));
    }
    Ok(capabilities.into_iter().map(capability).collect())
}

/// Converts a capability. A fault in it refuses this capability only, not the frame.
fn capability(capability: v1::Capability) -> Capability {
    let unreadable = |name: String, reason: &str| Capability::Unreadable { name, reason: reason.to_owned() };
    match capability.capability {
        None => unreadable(String::new(), "this server does not know this kind of capability"),
        Some(capability::Capability::Planner(declared)) => extended(extension::planner(declared)),
        Some(capability::Capability::Hook(declared)) => extended(extension::hook(declared)),
        Some(capability::Capability::ContextSource(declared)) => extended(extension::source(declared)),
        Some(capability::Capability::Tool(tool)) => match tool.timeout.map(millis).transpose() {
            Ok(timeout) => Capability::Tool(Box::new(ToolDeclaration {
                effect: effect_class(tool.effect()),
                name: tool.name,
                description: tool.description,
                input_schema: tool.input_schema_json,
                requires_approval: tool.requires_approval,
                requires_runtime: tool.requires_runtime,
                timeout,
                max_concurrency: tool.max_concurrency,
                streams_output: tool.streams_output,
                title: tool.title,
                deadline_is_outcome: tool.deadline_is_outcome,
                output_schema: tool.output_schema_json,
            })),
            Err(problem) => unreadable(tool.name, &format!("timeout: {problem}")),
        },
    }
}

fn extended(parsed: Result<(String, ExtensionDeclaration), BadDeclaration>) -> Capability {
    match parsed {
        Ok((name, declaration)) => Capability::Extension { name, declaration },
        Err(BadDeclaration { name, problem }) => Capability::Unreadable { name, reason: problem },
    }
}

fn effect_class(class: v1::EffectClass) -> EffectClass {
    match class {
        v1::EffectClass::ReadOnly => EffectClass::ReadOnly,
        v1::EffectClass::Idempotent => EffectClass::Idempotent,
        v1::EffectClass::Keyed => EffectClass::Keyed,
        v1::EffectClass::Unsafe | v1::EffectClass::Unspecified => EffectClass::Unsafe,
    }
}

fn call_ref(call: &str, attempt: u32) -> Parsed<CallRef> {
    let Some(call) = CallId::parse(call) else {
        return malformed("call_id", "is not a call id; use the one of the call_request");
    };
    if attempt == 0 {
        return Err(Malformed { field: "attempt", problem: "counts from 1".to_owned(), call: Some(call) });
    }
    Ok(CallRef { call, attempt: Attempt(attempt) })
}

fn lease(token: String) -> Parsed<String> {
    at_most("lease_token", token.len(), ID_BYTES_MAX)?;
    Ok(token)
}

fn rejected(frame: v1::CallRejected) -> Parsed<HostFrame> {
    let call = call_ref(&frame.call_id, frame.attempt)?;
    let reason = match frame.reason() {
        v1::RejectReason::Busy | v1::RejectReason::Unspecified => RejectReason::Busy,
        v1::RejectReason::Draining => RejectReason::Draining,
        v1::RejectReason::UnknownTool => RejectReason::UnknownTool,
        v1::RejectReason::BadArguments => RejectReason::BadArguments,
        v1::RejectReason::TooLarge => RejectReason::TooLarge,
    };
    // Cut, not refused: messages often quote the model's arguments, whose length is not the host's fault.
    let mut message = frame.message;
    message.truncate(message.floor_char_boundary(SHORT_TEXT_BYTES_MAX));
    Ok(HostFrame::Rejected { call, reason, message })
}

/// The beginning of a text that has at most so many bytes, without half a character.
fn cut(text: &str, bytes: usize) -> &str {
    let mut end = text.len().min(bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

fn heartbeat(frame: &v1::Heartbeat) -> Parsed<HostFrame> {
    if frame.calls.len() > CALLS_PER_HOST_MAX {
        return malformed("heartbeat.calls", format!("must be at most {CALLS_PER_HOST_MAX}"));
    }
    let calls = frame.calls.iter().map(|call| call_ref(&call.call_id, call.attempt));
    let status = cut(&frame.status_text, HOST_STATUS_BYTES_MAX).to_owned();
    Ok(HostFrame::Heartbeat { calls: calls.collect::<Parsed<_>>()?, status })
}

fn progress(frame: v1::Progress) -> Parsed<HostFrame> {
    let call = call_ref(&frame.call_id, frame.attempt)?;
    about(&call, at_most("progress.message", frame.message.len(), SHORT_TEXT_BYTES_MAX))?;
    let checkpoint = frame.checkpoint.as_ref().map_or(0, Vec::len);
    about(&call, at_most("progress.checkpoint", checkpoint, CHECKPOINT_BYTES_MAX))?;
    let fraction =
        frame.fraction.filter(|fraction| fraction.is_finite()).map(|fraction| fraction.clamp(0.0, 1.0));
    about(&call, check_resume_state("progress.resume_state", frame.resume_state.as_ref()))?;
    if frame.resume_state.is_some() && frame.resume_no == 0 {
        return about(&call, malformed("progress.resume_no", "is required with resume_state"));
    }
    let resumable = frame.resume_state.map(|state| Resumable { no: frame.resume_no, state });
    Ok(HostFrame::Progress {
        call,
        message: frame.message,
        fraction,
        checkpoint: frame.checkpoint,
        resumable,
    })
}

fn check_resume_state(field: &'static str, state: Option<&Vec<u8>>) -> Parsed<()> {
    at_most(field, state.map_or(0, Vec::len), RESUME_STATE_BYTES_MAX)
}

fn output(frame: v1::OutputChunk) -> Parsed<HostFrame> {
    let call = call_ref(&frame.call_id, frame.attempt)?;
    about(&call, at_most("output_chunk.data", frame.data.len(), OUTPUT_CHUNK_BYTES_MAX))?;
    let stderr = match frame.stream() {
        v1::OutputStream::Stderr => true,
        v1::OutputStream::Stdout | v1::OutputStream::Unspecified => false,
    };
    Ok(HostFrame::Output { call, chunk_seq: frame.chunk_seq, stderr, data: frame.data })
}

/// Converts a result, from a stream or from `CompleteCall`.
pub(crate) fn result(frame: v1::CallResult) -> Parsed<CallResult> {
    let call = call_ref(&frame.call_id, frame.attempt)?;
    let v1::CallResult { output, images, structured_json, files, links, .. } = &frame;
    let size = result_bytes(output, images, structured_json, files, links);
    let lease = about(&call, lease(frame.lease_token))?;
    about(&call, at_most("call_result.output", size, TOOL_RESULT_BYTES_MAX))?;
    if frame.images.len() > PARTS_PER_MESSAGE_MAX {
        return about(
            &call,
            malformed("call_result.images", format!("must be at most {PARTS_PER_MESSAGE_MAX}")),
        );
    }
    let images = about(&call, frame.images.into_iter().map(picture).collect())?;
    let attachments = about(&call, attachments(frame.structured_json, frame.files, frame.links))?;
    let attachments = Box::new(attachments);
    Ok(CallResult {
        call,
        lease,
        outcome: CallOutcome::Succeeded { output: frame.output, images, attachments },
    })
}

/// Converts a failure, from a stream or from `CompleteCall`.
pub(crate) fn failed(frame: v1::CallFailed) -> Parsed<CallResult> {
    let call = call_ref(&frame.call_id, frame.attempt)?;
    let lease = about(&call, lease(frame.lease_token.clone()))?;
    about(&call, at_most("call_failed.message", frame.message.len(), TOOL_RESULT_BYTES_MAX))?;
    let ran = match frame.effect() {
        v1::AttemptEffect::None => Ran::No,
        v1::AttemptEffect::Maybe | v1::AttemptEffect::Unspecified => Ran::Maybe,
        v1::AttemptEffect::Done => Ran::Yes,
    };
    let delay = frame.retry_delay.map(millis).transpose();
    let delay = about(&call, delay.or_else(|problem| malformed("call_failed.retry_delay", problem)))?;
    let (retryable, delay) = (frame.retryable, delay.unwrap_or_default());
    Ok(CallResult {
        call,
        lease,
        outcome: CallOutcome::Failed { message: frame.message, retryable, delay, ran },
    })
}

fn need_input(frame: v1::NeedInput) -> Parsed<HostFrame> {
    let call = call_ref(&frame.call_id, frame.attempt)?;
    about(&call, at_most("need_input.input_id", frame.input_id.len(), ID_BYTES_MAX))?;
    if frame.input_id.is_empty() {
        return about(&call, malformed("need_input.input_id", "is required"));
    }
    let timeout = frame.timeout.map(millis).transpose();
    let timeout = about(&call, timeout.or_else(|problem| malformed("need_input.timeout", problem)))?;
    let given = |text: String| Some(text).filter(|text| !text.is_empty());
    let option = |option: v1::SelectOption| SelectOption { id: option.id, label: option.label };
    let question = QuestionContent {
        text: frame.question,
        options: frame.options.into_iter().map(option).collect(),
        multiple: frame.multiple,
        input: Some(frame.input_id),
        form: given(frame.form_schema_json),
        url: given(frame.url),
        allow_empty: frame.allow_empty,
        metadata: given(frame.metadata_json),
    };
    about(&call, check_resume_state("need_input.resume_state", frame.resume_state.as_ref()))?;
    let (question, resume_state) = (Box::new(question), frame.resume_state);
    Ok(HostFrame::NeedInput { call, question, timeout, resume_state })
}

fn cancel_ack(frame: &v1::CancelAck) -> Parsed<HostFrame> {
    let call = call_ref(&frame.call_id, frame.attempt)?;
    let outcome = match frame.outcome() {
        v1::CancelOutcome::Cannot => CancelOutcome::RunsOn,
        v1::CancelOutcome::Finished => CancelOutcome::Finished,
        v1::CancelOutcome::NotBegun => CancelOutcome::NotBegun,
        // A host that does not know the call may have forgotten that it began it.
        v1::CancelOutcome::Stopped | v1::CancelOutcome::Unknown | v1::CancelOutcome::Unspecified => {
            CancelOutcome::Stopped
        }
    };
    Ok(HostFrame::CancelAck { call, outcome })
}

/// As [`super::millis`], but zero is a duration.
fn millis(duration: prost_types::Duration) -> Result<Millis, String> {
    match duration {
        prost_types::Duration { seconds: 0, nanos: 0 } => Ok(Millis(0)),
        other => super::millis(&other).map_err(str::to_owned),
    }
}
