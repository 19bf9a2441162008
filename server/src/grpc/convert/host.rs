//! Frames of tool hosts. What a host sends is checked here for form and size; whether it makes sense is the fleet's
//! business.

use agentloop_core::host::frame::{
    Answer, CallInHand, CallRef, Capability, Hello, HostFrame, Outcome, Ran, RejectReason,
};
use agentloop_core::id::{CallId, HostId, IdError};
use agentloop_core::limits::{
    CALLS_PER_HOST_MAX, CHECKPOINT_BYTES_MAX, GRPC_MESSAGE_BYTES_MAX, ID_BYTES_MAX, LABELS_MAX,
    OUTPUT_CHUNK_BYTES_MAX, PARTS_PER_MESSAGE_MAX, SHORT_TEXT_BYTES_MAX, TOOL_RESULT_BYTES_MAX,
    TOOLS_PER_HOST_MAX,
};
use agentloop_core::message::Image;
use agentloop_core::time::Millis;
use agentloop_core::tool::{EffectClass, ToolDeclaration};
use agentloop_proto::v1::{self, capability, connect_request::Frame, image};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::tool::FrameError;

/// What is wrong with a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Malformed {
    /// The field, as in the contract.
    pub(crate) field: &'static str,
    /// What it must be.
    pub(crate) problem: String,
    /// The call that the frame is about, as far as it says so.
    pub(crate) call: Option<CallId>,
}

impl From<Malformed> for FrameError {
    fn from(fault: Malformed) -> Self {
        Self::Malformed { message: format!("{}: {}", fault.field, fault.problem), call: fault.call }
    }
}

type Checked<T> = Result<T, Malformed>;

fn malformed<T>(field: &'static str, problem: impl Into<String>) -> Checked<T> {
    Err(Malformed { field, problem: problem.into(), call: None })
}

fn at_most(field: &'static str, size: usize, max: usize) -> Checked<()> {
    if size > max { malformed(field, format!("must be at most {max} bytes, has {size}")) } else { Ok(()) }
}

/// Adds which call a fault is about.
fn about<T>(call: &CallRef, checked: Checked<T>) -> Checked<T> {
    checked.map_err(|fault| Malformed { call: Some(call.call.clone()), ..fault })
}

/// A frame from a host. One of a kind that this version does not know is no fault.
pub(crate) fn host_frame(request: v1::ConnectRequest) -> Checked<HostFrame> {
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
        Frame::CallResult(frame) => HostFrame::Answer(Box::new(result(frame)?)),
        Frame::CallFailed(frame) => HostFrame::Answer(Box::new(failed(frame)?)),
        Frame::NeedInput(frame) => need_input(frame)?,
        Frame::CancelAck(frame) => cancel_ack(&frame)?,
        Frame::Draining(_) => HostFrame::Draining,
        Frame::Goodbye(_) => HostFrame::Goodbye,
        Frame::Pong(_) => HostFrame::Pong,
    })
}

fn hello(frame: v1::Hello) -> Checked<Hello> {
    let host = HostId::parse(frame.host_id)
        .or_else(|fault: IdError| malformed("hello.host_id", fault.to_string()))?;
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
    let max_frame_bytes = match usize::try_from(frame.max_frame_bytes) {
        Ok(0) => GRPC_MESSAGE_BYTES_MAX,
        Ok(max) => max,
        Err(_larger_than_memory) => usize::MAX,
    };
    Ok(Hello {
        protocol_version: frame.protocol_version,
        host,
        sdk: frame.sdk,
        labels: frame.labels.into_iter().collect(),
        capabilities: capabilities("hello.capabilities", frame.capabilities)?,
        max_frame_bytes,
        calls_in_hand: frame.calls_in_hand.into_iter().map(call_in_hand).collect::<Checked<_>>()?,
        initial_credit: frame.initial_credit,
    })
}

fn call_in_hand(call: v1::CallInHand) -> Checked<CallInHand> {
    Ok(CallInHand {
        call: call_ref(&call.call_id, call.attempt)?,
        lease: lease(call.lease_token)?,
        finished: call.finished,
    })
}

fn capabilities(field: &'static str, capabilities: Vec<v1::Capability>) -> Checked<Vec<Capability>> {
    if capabilities.len() > TOOLS_PER_HOST_MAX {
        return malformed(field, format!("must be at most {TOOLS_PER_HOST_MAX}"));
    }
    Ok(capabilities.into_iter().map(capability).collect())
}

/// What is wrong with one tool is no fault of the frame: the others are taken.
fn capability(capability: v1::Capability) -> Capability {
    let unreadable = |name: String, reason: &str| Capability::Unreadable { name, reason: reason.to_owned() };
    match capability.capability {
        None => unreadable(String::new(), "this server does not know this kind of capability"),
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
            })),
            Err(problem) => unreadable(tool.name, &format!("timeout: {problem}")),
        },
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

fn call_ref(call: &str, attempt: u32) -> Checked<CallRef> {
    let Some(call) = CallId::parse(call) else {
        return malformed("call_id", "is not one that a server gives out");
    };
    if attempt == 0 {
        return Err(Malformed { field: "attempt", problem: "counts from 1".to_owned(), call: Some(call) });
    }
    Ok(CallRef { call, attempt })
}

fn lease(token: String) -> Checked<String> {
    at_most("lease_token", token.len(), ID_BYTES_MAX)?;
    Ok(token)
}

fn rejected(frame: v1::CallRejected) -> Checked<HostFrame> {
    let call = call_ref(&frame.call_id, frame.attempt)?;
    about(&call, at_most("call_rejected.message", frame.message.len(), SHORT_TEXT_BYTES_MAX))?;
    let reason = match frame.reason() {
        v1::RejectReason::Busy | v1::RejectReason::Unspecified => RejectReason::Busy,
        v1::RejectReason::Draining => RejectReason::Draining,
        v1::RejectReason::UnknownTool => RejectReason::UnknownTool,
        v1::RejectReason::BadArguments => RejectReason::BadArguments,
        v1::RejectReason::TooLarge => RejectReason::TooLarge,
    };
    Ok(HostFrame::Rejected { call, reason, message: frame.message })
}

fn heartbeat(frame: &v1::Heartbeat) -> Checked<HostFrame> {
    if frame.calls.len() > CALLS_PER_HOST_MAX {
        return malformed("heartbeat.calls", format!("must be at most {CALLS_PER_HOST_MAX}"));
    }
    let calls = frame.calls.iter().map(|call| call_ref(&call.call_id, call.attempt));
    Ok(HostFrame::Heartbeat { calls: calls.collect::<Checked<_>>()? })
}

fn progress(frame: v1::Progress) -> Checked<HostFrame> {
    let call = call_ref(&frame.call_id, frame.attempt)?;
    about(&call, at_most("progress.message", frame.message.len(), SHORT_TEXT_BYTES_MAX))?;
    let checkpoint = frame.checkpoint.as_ref().map_or(0, Vec::len);
    about(&call, at_most("progress.checkpoint", checkpoint, CHECKPOINT_BYTES_MAX))?;
    let fraction =
        frame.fraction.filter(|fraction| fraction.is_finite()).map(|fraction| fraction.clamp(0.0, 1.0));
    Ok(HostFrame::Progress { call, message: frame.message, fraction, checkpoint: frame.checkpoint })
}

fn output(frame: v1::OutputChunk) -> Checked<HostFrame> {
    let call = call_ref(&frame.call_id, frame.attempt)?;
    about(&call, at_most("output_chunk.data", frame.data.len(), OUTPUT_CHUNK_BYTES_MAX))?;
    let stderr = match frame.stream() {
        v1::OutputStream::Stderr => true,
        v1::OutputStream::Stdout | v1::OutputStream::Unspecified => false,
    };
    Ok(HostFrame::Output { call, chunk_seq: frame.chunk_seq, stderr, data: frame.data })
}

/// A result, from a stream or without one.
pub(crate) fn result(frame: v1::CallResult) -> Checked<Answer> {
    let call = call_ref(&frame.call_id, frame.attempt)?;
    let lease = about(&call, lease(frame.lease_token))?;
    let images: usize = frame.images.iter().map(image_size).sum();
    about(&call, at_most("call_result.output", frame.output.len() + images, TOOL_RESULT_BYTES_MAX))?;
    if frame.images.len() > PARTS_PER_MESSAGE_MAX {
        return about(
            &call,
            malformed("call_result.images", format!("must be at most {PARTS_PER_MESSAGE_MAX}")),
        );
    }
    let images = about(&call, frame.images.into_iter().map(picture).collect())?;
    Ok(Answer { call, lease, outcome: Outcome::Succeeded { output: frame.output, images } })
}

fn image_size(image: &v1::Image) -> usize {
    let source = match &image.source {
        Some(image::Source::Url(url)) => url.len(),
        Some(image::Source::Data(data)) => data.len(),
        None => 0,
    };
    source + image.media_type.len()
}

fn picture(image: v1::Image) -> Checked<Image> {
    match image.source {
        Some(image::Source::Url(url)) if url.starts_with("https:") || url.starts_with("http:") => {
            Ok(Image::Url { url })
        }
        Some(image::Source::Url(_)) => malformed("call_result.images.url", "must be an https: or http: URL"),
        Some(image::Source::Data(_)) if image.media_type.is_empty() => {
            malformed("call_result.images.media_type", "is required with data")
        }
        Some(image::Source::Data(data)) => {
            Ok(Image::Inline { media_type: image.media_type, base64: STANDARD.encode(data) })
        }
        None => malformed("call_result.images.source", "is required"),
    }
}

/// A failure, from a stream or without one.
pub(crate) fn failed(frame: v1::CallFailed) -> Checked<Answer> {
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
    Ok(Answer { call, lease, outcome: Outcome::Failed { message: frame.message, retryable, delay, ran } })
}

fn need_input(frame: v1::NeedInput) -> Checked<HostFrame> {
    let call = call_ref(&frame.call_id, frame.attempt)?;
    about(&call, at_most("need_input.input_id", frame.input_id.len(), ID_BYTES_MAX))?;
    Ok(HostFrame::NeedInput { call, input: frame.input_id })
}

fn cancel_ack(frame: &v1::CancelAck) -> Checked<HostFrame> {
    let call = call_ref(&frame.call_id, frame.attempt)?;
    let runs_on = match frame.outcome() {
        v1::CancelOutcome::Cannot => true,
        v1::CancelOutcome::Stopped
        | v1::CancelOutcome::Finished
        | v1::CancelOutcome::Unknown
        | v1::CancelOutcome::Unspecified => false,
    };
    Ok(HostFrame::CancelAck { call, runs_on })
}

fn millis(duration: prost_types::Duration) -> Result<Millis, String> {
    let length = std::time::Duration::try_from(duration).map_err(|_| "must not be negative".to_owned())?;
    u64::try_from(length.as_millis()).map(Millis).map_err(|_| "is too long".to_owned())
}
