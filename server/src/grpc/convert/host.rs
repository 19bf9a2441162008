//! Conversion of frames from tool hosts. It checks their form and sizes; the fleet checks that they fit its state.

use agentloop_core::blob::BlobDigest;
use agentloop_core::extension::ExtensionDeclaration;
use agentloop_core::host::frame::{
    CallInHand, CallOutcome, CallRef, CallResult, CancelOutcome, Capability, Hello, HostFrame,
    QuestionContent, Ran, RejectReason, Resumable, SelectOption,
};
use agentloop_core::id::{CallId, HostId, IdError, InstanceId};
use agentloop_core::limits::{
    CALLS_PER_HOST_MAX, CHECKPOINT_BYTES_MAX, FILE_TEXT_BYTES_MAX, FILES_PER_RESULT_MAX,
    GRPC_MESSAGE_BYTES_MAX, HOST_STATUS_BYTES_MAX, ID_BYTES_MAX, LABELS_MAX, LINK_BYTES_MAX,
    LINKS_PER_RESULT_MAX, OUTPUT_CHUNK_BYTES_MAX, PARTS_PER_MESSAGE_MAX, RESUME_STATE_BYTES_MAX,
    RUNTIMES_PER_HOST_MAX, SHORT_TEXT_BYTES_MAX, TOOL_RESULT_BYTES_MAX, TOOLS_PER_HOST_MAX,
};
use agentloop_core::message::{Attachments, File, FileSource, Image, Link};
use agentloop_core::question::is_link;
use agentloop_core::time::Millis;
use agentloop_core::tool::{EffectClass, ToolDeclaration};
use agentloop_proto::v1::{self, capability, connect_request::Frame, file_content, image};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::extension::{self, BadDeclaration};
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

/// Converts a message from a host: a frame, or the answer of an extension.
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
    Ok(CallRef { call, attempt })
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
    let lease = about(&call, lease(frame.lease_token))?;
    let images: usize = frame.images.iter().map(image_size).sum();
    let (structured, files, links) =
        (frame.structured_json.len(), file_bytes(&frame.files), link_bytes(&frame.links));
    let size = frame.output.len() + images + structured + files + links;
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

fn file_bytes(files: &[v1::FileContent]) -> usize {
    let bytes = |file: &v1::FileContent| match &file.source {
        Some(file_content::Source::Data(data)) => data.len(),
        Some(file_content::Source::BlobDigest(digest)) => digest.len(),
        None => 0,
    };
    files.iter().map(|file| file.name.len() + file.media_type.len() + bytes(file)).sum()
}

fn link_bytes(links: &[v1::Link]) -> usize {
    links.iter().map(|link| link.url.len() + link.title.len()).sum()
}

/// Converts what a result has beside its text and pictures.
pub(super) fn attachments(
    structured_json: String,
    files: Vec<v1::FileContent>,
    links: Vec<v1::Link>,
) -> Parsed<Attachments> {
    if files.len() > FILES_PER_RESULT_MAX {
        return malformed("call_result.files", format!("must be at most {FILES_PER_RESULT_MAX}"));
    }
    if links.len() > LINKS_PER_RESULT_MAX {
        return malformed("call_result.links", format!("must be at most {LINKS_PER_RESULT_MAX}"));
    }
    let structured = Some(structured_json).filter(|json| !json.is_empty());
    Ok(Attachments {
        structured,
        files: files.into_iter().map(file).collect::<Parsed<_>>()?,
        links: links.into_iter().map(link).collect::<Parsed<_>>()?,
    })
}

fn file(file: v1::FileContent) -> Parsed<File> {
    at_most("call_result.files.name", file.name.len(), FILE_TEXT_BYTES_MAX)?;
    at_most("call_result.files.media_type", file.media_type.len(), FILE_TEXT_BYTES_MAX)?;
    if file.name.is_empty() || file.name.contains(['/', '\\']) || file.name.chars().any(char::is_control) {
        return malformed("call_result.files.name", "must be a name without folders");
    }
    let data = match file.source {
        Some(file_content::Source::Data(data)) => data,
        Some(file_content::Source::BlobDigest(digest)) => {
            let digest = BlobDigest::parse(digest)
                .or_else(|bad| malformed("call_result.files.blob_digest", bad.to_string()))?;
            let source = FileSource::Blob { digest };
            return Ok(File { name: file.name, media_type: file.media_type, size: file.size_bytes, source });
        }
        None => return malformed("call_result.files.data", "or blob_digest is required"),
    };
    let size = data.len() as u64;
    if file.size_bytes != 0 && file.size_bytes != size {
        return malformed("call_result.files.size_bytes", "must be the length of the data");
    }
    let source = FileSource::Inline { base64: STANDARD.encode(data) };
    Ok(File { name: file.name, media_type: file.media_type, size, source })
}

fn link(link: v1::Link) -> Parsed<Link> {
    at_most("call_result.links.title", link.title.len(), SHORT_TEXT_BYTES_MAX)?;
    if !is_link(&link.url) {
        return malformed(
            "call_result.links.url",
            format!("must be an https: or http: address of at most {LINK_BYTES_MAX} bytes"),
        );
    }
    Ok(Link { url: link.url, title: link.title })
}

fn image_size(image: &v1::Image) -> usize {
    let source = match &image.source {
        Some(image::Source::Url(url)) => url.len(),
        Some(image::Source::Data(data)) => data.len(),
        None => 0,
    };
    source + image.media_type.len()
}

fn picture(image: v1::Image) -> Parsed<Image> {
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

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: &str = "r/1.0";

    fn read(frame: Frame) -> Parsed<HostFrame> {
        host_frame(v1::ConnectRequest { frame: Some(frame) })
    }

    fn call() -> CallRef {
        CallRef { call: CallId::parse(CALL).unwrap(), attempt: 1 }
    }

    fn hello_frame() -> v1::Hello {
        v1::Hello { protocol_version: 1, host_id: "h".into(), ..v1::Hello::default() }
    }

    fn asks() -> v1::NeedInput {
        v1::NeedInput { call_id: CALL.into(), attempt: 1, input_id: "q".into(), ..v1::NeedInput::default() }
    }

    fn result_frame() -> v1::CallResult {
        v1::CallResult {
            call_id: CALL.into(),
            attempt: 1,
            lease_token: "l".into(),
            output: "42".into(),
            ..v1::CallResult::default()
        }
    }

    fn with_image(source: Option<image::Source>, media_type: &str) -> Frame {
        let image = v1::Image { source, media_type: media_type.into() };
        Frame::CallResult(v1::CallResult { images: vec![image], ..result_frame() })
    }

    fn progress_frame() -> v1::Progress {
        v1::Progress { call_id: CALL.into(), attempt: 1, ..v1::Progress::default() }
    }

    fn seconds(seconds: i64, nanos: i32) -> Option<prost_types::Duration> {
        Some(prost_types::Duration { seconds, nanos })
    }

    #[test]
    fn frames_that_are_malformed() {
        let chunk = |bytes| v1::OutputChunk {
            call_id: CALL.into(),
            attempt: 1,
            chunk_seq: 1,
            stream: 1,
            data: vec![0; bytes],
        };
        let failed = v1::CallFailed { call_id: CALL.into(), attempt: 1, ..v1::CallFailed::default() };
        let reference = |id: &str, attempt| v1::CallRef { call_id: id.into(), attempt };
        let labels = (0..=LABELS_MAX).map(|index| (index.to_string(), String::new())).collect();
        let in_hand = v1::CallInHand { call_id: "??".into(), attempt: 1, ..v1::CallInHand::default() };
        let table: Vec<(Frame, &str)> = vec![
            (Frame::Hello(v1::Hello { host_id: String::new(), ..hello_frame() }), "hello.host_id"),
            (Frame::Hello(v1::Hello { host_id: "a b".into(), ..hello_frame() }), "hello.host_id"),
            (Frame::Hello(v1::Hello { sdk: "x".repeat(5_000), ..hello_frame() }), "hello.sdk"),
            (Frame::Hello(v1::Hello { labels, ..hello_frame() }), "hello.labels"),
            (
                Frame::Hello(v1::Hello {
                    open_runtimes: vec![String::new(); RUNTIMES_PER_HOST_MAX + 1],
                    ..hello_frame()
                }),
                "hello.open_runtimes",
            ),
            (
                Frame::Hello(v1::Hello {
                    capabilities: vec![v1::Capability::default(); TOOLS_PER_HOST_MAX + 1],
                    ..hello_frame()
                }),
                "hello.capabilities",
            ),
            (Frame::Hello(v1::Hello { calls_in_hand: vec![in_hand], ..hello_frame() }), "call_id"),
            (
                Frame::UpdateTools(v1::UpdateTools {
                    capabilities: vec![v1::Capability::default(); TOOLS_PER_HOST_MAX + 1],
                }),
                "update_tools.capabilities",
            ),
            (Frame::CallAccepted(v1::CallAccepted { call_id: "r".into(), attempt: 1 }), "call_id"),
            (Frame::CallAccepted(v1::CallAccepted { call_id: CALL.into(), attempt: 0 }), "attempt"),
            (
                Frame::Heartbeat(v1::Heartbeat { calls: vec![reference("r/01.0", 1)], ..Default::default() }),
                "call_id",
            ),
            (
                Frame::Heartbeat(v1::Heartbeat {
                    calls: vec![reference(CALL, 1); CALLS_PER_HOST_MAX + 1],
                    ..Default::default()
                }),
                "heartbeat.calls",
            ),
            (
                Frame::Progress(v1::Progress { message: "x".repeat(4_097), ..progress_frame() }),
                "progress.message",
            ),
            (
                Frame::Progress(v1::Progress { checkpoint: Some(vec![0; 65_537]), ..progress_frame() }),
                "progress.checkpoint",
            ),
            (Frame::OutputChunk(chunk(65_537)), "output_chunk.data"),
            (
                Frame::CallResult(v1::CallResult { lease_token: "x".repeat(129), ..result_frame() }),
                "lease_token",
            ),
            (
                Frame::CallResult(v1::CallResult {
                    output: "x".repeat(3 * 1024 * 1024 + 1),
                    ..result_frame()
                }),
                "call_result.output",
            ),
            (with_image(None, "image/png"), "call_result.images.source"),
            (with_image(Some(image::Source::Data(vec![1])), ""), "call_result.images.media_type"),
            (with_image(Some(image::Source::Url("file:///etc".into())), ""), "call_result.images.url"),
            (
                with_image(Some(image::Source::Data(vec![0; 3 * 1024 * 1024])), "image/png"),
                "call_result.output",
            ),
            (
                Frame::CallFailed(v1::CallFailed { retry_delay: seconds(-1, 0), ..failed }),
                "call_failed.retry_delay",
            ),
            (
                Frame::NeedInput(v1::NeedInput {
                    call_id: CALL.into(),
                    attempt: 1,
                    input_id: "x".repeat(129),
                    ..v1::NeedInput::default()
                }),
                "need_input.input_id",
            ),
            (Frame::NeedInput(v1::NeedInput { input_id: String::new(), ..asks() }), "need_input.input_id"),
            (Frame::NeedInput(v1::NeedInput { timeout: seconds(-1, 0), ..asks() }), "need_input.timeout"),
        ];
        for (frame, field) in table {
            let fault = read(frame).expect_err(field);
            assert_eq!(fault.field, field, "{fault:?}");
        }
    }

    #[test]
    fn a_fault_names_its_call() {
        let frame = v1::CallResult { output: "x".repeat(4 * 1024 * 1024), ..result_frame() };
        let fault = FrameError::from(read(Frame::CallResult(frame)).unwrap_err());
        let FrameError::Malformed { message, call: named } = fault else { panic!("{fault:?}") };
        assert_eq!(named, Some(call().call));
        assert!(message.starts_with("call_result.output: must be at most 3145728 bytes"), "{message}");
    }

    #[test]
    fn omitted_fields_have_their_defaults() {
        let Ok(HostFrame::Hello(hello)) = read(Frame::Hello(hello_frame())) else { panic!("a hello") };
        assert_eq!(hello.max_frame_bytes, GRPC_MESSAGE_BYTES_MAX);
        assert_eq!(host_frame(v1::ConnectRequest { frame: None }), Ok(HostFrame::Unknown));
        let rejected =
            v1::CallRejected { call_id: CALL.into(), attempt: 1, reason: 99, message: String::new() };
        assert!(matches!(
            read(Frame::CallRejected(rejected)),
            Ok(HostFrame::Rejected { reason: RejectReason::Busy, .. })
        ));
        let failed =
            v1::CallFailed { call_id: CALL.into(), attempt: 1, effect: 99, ..v1::CallFailed::default() };
        let Ok(HostFrame::Result(answer)) = read(Frame::CallFailed(failed)) else { panic!("an answer") };
        assert!(matches!(answer.outcome, CallOutcome::Failed { ran: Ran::Maybe, delay: Millis(0), .. }));
        let ack = v1::CancelAck { call_id: CALL.into(), attempt: 1, outcome: 0 };
        let stopped = HostFrame::CancelAck { call: call(), outcome: CancelOutcome::Stopped };
        assert_eq!(read(Frame::CancelAck(ack)), Ok(stopped));
    }

    #[test]
    fn a_long_rejection_is_cut_between_characters() {
        for (said, kept) in
            [("x".repeat(4_096), 4_096), ("x".repeat(100_000), 4_096), ("€".repeat(9_000), 4_095)]
        {
            let rejected = v1::CallRejected { call_id: CALL.into(), attempt: 1, reason: 4, message: said };
            let Ok(HostFrame::Rejected { message, .. }) = read(Frame::CallRejected(rejected)) else {
                panic!("a rejection")
            };
            assert_eq!(message.len(), kept);
        }
    }

    #[test]
    fn a_tool_is_read_whole_and_a_bad_one_alone_is_refused() {
        let tool = v1::ToolDeclaration {
            name: "t".into(),
            description: "d".into(),
            input_schema_json: "{}".into(),
            effect: 99,
            requires_approval: true,
            requires_runtime: false,
            deadline_is_outcome: false,
            timeout: seconds(1, 500_000_000),
            max_concurrency: Some(3),
            streams_output: true,
            title: "T {a}".into(),
            output_schema_json: r#"{"type":"string"}"#.into(),
        };
        let offered = |tool| v1::Capability { capability: Some(capability::Capability::Tool(tool)) };
        let endless = v1::ToolDeclaration { timeout: seconds(-5, 0), ..tool.clone() };
        let capabilities = vec![offered(tool), offered(endless), v1::Capability { capability: None }];
        let read = read(Frame::UpdateTools(v1::UpdateTools { capabilities }));
        let Ok(HostFrame::UpdateTools { capabilities }) = read else { panic!("tools") };
        let [Capability::Tool(tool), Capability::Unreadable { name, .. }, Capability::Unreadable { .. }] =
            capabilities.as_slice()
        else {
            panic!("{capabilities:?}")
        };
        assert_eq!(name, "t");
        assert_eq!((tool.timeout, tool.effect), (Some(Millis(1_500)), EffectClass::Unsafe));
        assert_eq!(
            (tool.max_concurrency, tool.requires_approval, tool.streams_output, tool.title.as_str()),
            (Some(3), true, true, "T {a}")
        );
    }

    #[test]
    fn pictures_and_fractions() {
        let Ok(HostFrame::Result(answer)) =
            read(with_image(Some(image::Source::Data(vec![1, 2])), "image/png"))
        else {
            panic!("an answer")
        };
        let CallOutcome::Succeeded { images, .. } = answer.outcome else { panic!("a success") };
        assert_eq!(images, [Image::Inline { media_type: "image/png".into(), base64: "AQI=".into() }]);
        for (given, kept) in [(0.5, Some(0.5)), (7.0, Some(1.0)), (-1.0, Some(0.0)), (f64::NAN, None)] {
            let frame = read(Frame::Progress(v1::Progress { fraction: Some(given), ..progress_frame() }));
            let Ok(HostFrame::Progress { fraction, .. }) = frame else { panic!("progress") };
            assert_eq!(fraction, kept);
        }
    }

    #[test]
    fn a_long_status_is_cut_between_characters() {
        assert_eq!((cut("", 4), cut("well", 4), cut("wells", 4)), ("", "well", "well"));
        assert_eq!(cut("aé🌤", 4), "aé");
        let frame = v1::Heartbeat { status_text: "ä".repeat(1_000), ..Default::default() };
        let Ok(HostFrame::Heartbeat { status, .. }) = heartbeat(&frame) else { panic!("a heartbeat") };
        assert_eq!(status.len(), HOST_STATUS_BYTES_MAX);
    }
}
