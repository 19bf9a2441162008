//! Conversion of messages, tool results, images and token usage.

use agentloop_core::id::{CallId, CallSlot, RunId};
use agentloop_core::limits::{INPUT_MESSAGE_BYTES_MAX, PARTS_PER_MESSAGE_MAX};
use agentloop_core::message::{
    File, FileSource, FinishReason, Image, Link, Message, Part, Role, ToolCall, ToolResult, ToolStatus, Usage,
};
use agentloop_proto::v1 as wire;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use prost::Message as _;

use crate::grpc::status::Violations;

/// Converts a message. Ids of its tool calls are made for this run.
#[must_use]
pub fn message(run: &RunId, message: &Message) -> wire::Message {
    let parts = message.parts.iter().filter_map(|part| content(run, part));
    let parts = parts.map(|content| wire::Part { content: Some(content) }).collect();
    wire::Message { role: role(message.role).into(), parts }
}

/// Converts the role of a message.
#[must_use]
pub fn role(role: Role) -> wire::Role {
    match role {
        Role::System => wire::Role::System,
        Role::User => wire::Role::User,
        Role::Assistant => wire::Role::Assistant,
        Role::Tool => wire::Role::Tool,
    }
}

/// Converts a part; `None` for a provider's own state, which callers do not see.
fn content(run: &RunId, part: &Part) -> Option<wire::part::Content> {
    use wire::part::Content;
    Some(match part {
        Part::Opaque(_) => return None,
        Part::Text { text, state: Some(_) } if text.is_empty() => return None,
        Part::Text { text, .. } => Content::Text(text.clone()),
        Part::Reasoning(reasoning) => Content::Reasoning(wire::Reasoning {
            text: reasoning.text.clone(),
            redacted: reasoning.is_hidden(),
        }),
        Part::Image { image } => Content::Image(self::image(image)),
        Part::ToolCall(ToolCall { slot, name, arguments, .. }) => Content::ToolCall(wire::ToolCall {
            call_id: call_id(run, *slot),
            name: name.clone(),
            arguments_json: arguments.clone(),
            title: String::new(),
        }),
        Part::ToolResult(result) => Content::ToolResult(tool_result(run, result)),
    })
}

/// The call id of the contract: run and slot.
#[must_use]
pub fn call_id(run: &RunId, slot: CallSlot) -> String {
    CallId { run: run.clone(), slot }.to_string()
}

/// Converts a tool result.
#[must_use]
pub fn tool_result(run: &RunId, result: &ToolResult) -> wire::ToolResult {
    wire::ToolResult {
        call_id: call_id(run, result.slot),
        name: result.name.clone(),
        status: tool_status(result.status).into(),
        output: result.output.clone(),
        images: result.images.iter().map(image).collect(),
        structured_json: result.attachments.structured.clone().unwrap_or_default(),
        files: result.attachments.files.iter().map(file).collect(),
        links: result.attachments.links.iter().map(link).collect(),
    }
}

fn tool_status(status: ToolStatus) -> wire::ToolStatus {
    match status {
        ToolStatus::Succeeded => wire::ToolStatus::Succeeded,
        ToolStatus::Failed => wire::ToolStatus::Failed,
        ToolStatus::Rejected => wire::ToolStatus::Rejected,
        ToolStatus::Denied => wire::ToolStatus::Denied,
        ToolStatus::Answered => wire::ToolStatus::Answered,
        ToolStatus::Aborted => wire::ToolStatus::Aborted,
        ToolStatus::TimedOut => wire::ToolStatus::TimedOut,
        ToolStatus::Unavailable => wire::ToolStatus::Unavailable,
        ToolStatus::OutcomeUnknown => wire::ToolStatus::OutcomeUnknown,
    }
}

fn file(file: &File) -> wire::FileContent {
    let source = match &file.source {
        // Decoding cannot fail: the conversion of the host's frame encoded it.
        FileSource::Inline { base64 } => {
            BASE64_STANDARD.decode(base64).ok().map(wire::file_content::Source::Data)
        }
        FileSource::Blob { digest } => Some(wire::file_content::Source::BlobDigest(digest.to_string())),
    };
    wire::FileContent {
        name: file.name.clone(),
        media_type: file.media_type.clone(),
        size_bytes: file.size,
        source,
    }
}

fn link(link: &Link) -> wire::Link {
    wire::Link { url: link.url.clone(), title: link.title.clone() }
}

fn image(image: &Image) -> wire::Image {
    match image {
        Image::Url { url } => {
            wire::Image { source: Some(wire::image::Source::Url(url.clone())), media_type: String::new() }
        }
        Image::Inline { media_type, base64 } => wire::Image {
            // Decoding cannot fail: `input_image` or the host's conversion encoded it.
            source: BASE64_STANDARD.decode(base64).ok().map(wire::image::Source::Data),
            media_type: media_type.clone(),
        },
    }
}

/// Converts a finish reason. The context window counts as `LENGTH`.
#[must_use]
pub fn finish_reason(reason: &FinishReason) -> wire::FinishReason {
    match reason {
        FinishReason::Stop => wire::FinishReason::Stop,
        FinishReason::ToolCalls => wire::FinishReason::ToolCalls,
        FinishReason::Length | FinishReason::ContextWindow => wire::FinishReason::Length,
        FinishReason::ContentFilter => wire::FinishReason::ContentFilter,
        FinishReason::Refusal => wire::FinishReason::Refusal,
        FinishReason::CutOff => wire::FinishReason::CutOff,
        FinishReason::Other(_) => wire::FinishReason::Other,
    }
}

/// Converts token counts and cost.
#[must_use]
pub fn usage(usage: Usage) -> wire::Usage {
    wire::Usage {
        input_tokens: usage.input_tokens,
        output_tokens: usage.output_tokens,
        cached_input_tokens: usage.cached_input_tokens,
        cache_write_tokens: usage.cache_write_tokens,
        reasoning_tokens: usage.reasoning_tokens,
        cost_micros: usage.cost_micros,
    }
}

/// Parses an input message. Its role must be user or system.
pub fn input_message(field: &str, message: wire::Message, bad: &mut Violations) -> Option<Message> {
    let role = match message.role() {
        wire::Role::User => Role::User,
        wire::Role::System => Role::System,
        wire::Role::Unspecified | wire::Role::Assistant | wire::Role::Tool => {
            bad.add(format!("{field}.role"), "must be ROLE_USER or ROLE_SYSTEM");
            return None;
        }
    };
    if message.parts.is_empty() || message.parts.len() > PARTS_PER_MESSAGE_MAX {
        bad.add(format!("{field}.parts"), format!("must have 1 to {PARTS_PER_MESSAGE_MAX} parts"));
        return None;
    }
    if contents_bytes(&message) > INPUT_MESSAGE_BYTES_MAX {
        bad.add(field, format!("must be at most {INPUT_MESSAGE_BYTES_MAX} bytes"));
        return None;
    }
    let parts = message.parts.into_iter().enumerate();
    let parts: Vec<Option<Part>> =
        parts.map(|(at, part)| input_part(&format!("{field}.parts[{at}]"), part, role, bad)).collect();
    Some(Message { role, parts: parts.into_iter().collect::<Option<_>>()? })
}

/// The size that bounds apply to: that of the contents, as for a message that a model has just sent, or the prompt of a run. Of
/// other parts it is the encoded size.
pub(super) fn contents_bytes(message: &wire::Message) -> usize {
    use wire::part::Content;
    let part = |part: &wire::Part| match &part.content {
        Some(Content::Text(text)) => text.len(),
        Some(Content::Reasoning(reasoning)) => reasoning.text.len(),
        Some(Content::ToolCall(call)) => call.name.len() + call.arguments_json.len(),
        Some(Content::Image(_) | Content::ToolResult(_)) | None => part.encoded_len(),
    };
    message.parts.iter().map(part).sum()
}

fn input_part(field: &str, part: wire::Part, role: Role, bad: &mut Violations) -> Option<Part> {
    use wire::part::Content;
    match part.content {
        Some(Content::Text(text)) if !text.is_empty() => Some(Part::text(text)),
        Some(Content::Text(_)) => {
            bad.add(format!("{field}.text"), "must not be empty");
            None
        }
        Some(Content::Image(image)) if role == Role::User => {
            let image = bad.take(&format!("{field}.image"), input_image(image))?;
            Some(Part::Image { image })
        }
        Some(Content::Image(_) | Content::Reasoning(_) | Content::ToolCall(_) | Content::ToolResult(_)) => {
            bad.add(field, "must be text, or an image from the user");
            None
        }
        None => {
            bad.add(field, "must not be empty");
            None
        }
    }
}

/// Parses an image from a request.
///
/// # Errors
/// The problem with its URL, data or media type.
pub fn input_image(image: wire::Image) -> Result<Image, &'static str> {
    match image.source {
        Some(wire::image::Source::Url(url)) if url.starts_with("https://") || url.starts_with("http://") => {
            Ok(Image::Url { url })
        }
        Some(wire::image::Source::Url(_)) => Err("the url must begin with https:// or http://"),
        Some(wire::image::Source::Data(data)) if data.is_empty() => Err("data must not be empty"),
        Some(wire::image::Source::Data(data)) => {
            let media_type = Image::checked_media_type(&image.media_type);
            let media_type = media_type.ok_or("data needs a media_type such as image/png")?;
            Ok(Image::Inline { media_type, base64: BASE64_STANDARD.encode(data) })
        }
        None => Err("must have a url or data"),
    }
}
