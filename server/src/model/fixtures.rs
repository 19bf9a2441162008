//! Requests and conversations that the tests of several providers share.

use std::sync::Arc;

use agentloop_core::agent::{ModelOptions, ModelTimeouts};
use agentloop_core::id::CallSlot;
use agentloop_core::message::{Image, Message, Part, Reasoning, Role, ToolCall, ToolResult, ToolStatus};
use agentloop_core::tool::{EffectClass, ToolDeclaration};

use super::{EncodedPrefix, ModelRequest};

pub(super) fn request(messages: Vec<Message>) -> ModelRequest {
    ModelRequest {
        model: "m-1".to_owned(),
        system_prompt: String::new(),
        messages: messages.into_iter().map(Arc::new).collect(),
        encoded: EncodedPrefix::default(),
        tools: Arc::new([]),
        options: ModelOptions::default(),
        timeouts: ModelTimeouts::default(),
    }
}

pub(super) fn user(text: &str) -> Message {
    Message::text(Role::User, text)
}

pub(super) fn assistant(parts: Vec<Part>) -> Message {
    Message { role: Role::Assistant, parts }
}

pub(super) fn text(text: &str) -> Part {
    Part::Text { text: text.to_owned() }
}

pub(super) fn reasoning(text: &str, signature: Option<&str>, redacted: Option<&str>) -> Part {
    Part::Reasoning(Reasoning {
        text: text.to_owned(),
        signature: signature.map(str::to_owned),
        redacted: redacted.map(str::to_owned),
    })
}

pub(super) fn call(id: &str, name: &str, arguments: &str) -> Part {
    Part::ToolCall(ToolCall {
        slot: CallSlot(1, 0),
        provider_id: id.to_owned(),
        name: name.to_owned(),
        arguments: arguments.to_owned(),
    })
}

pub(super) fn result(id: &str, status: ToolStatus, output: &str, images: Vec<Image>) -> Message {
    let result = ToolResult {
        slot: CallSlot(1, 0),
        provider_id: id.to_owned(),
        name: "weather".to_owned(),
        status,
        output: output.to_owned(),
        images,
    };
    Message { role: Role::Tool, parts: vec![Part::ToolResult(result)] }
}

pub(super) fn png() -> Image {
    Image::Inline { media_type: "image/png".to_owned(), base64: "iVBO".to_owned() }
}

pub(super) fn link() -> Image {
    Image::Url { url: "https://x.example/a.png".to_owned() }
}

pub(super) fn tool(name: &str, schema: &str) -> Arc<ToolDeclaration> {
    Arc::new(ToolDeclaration {
        name: name.to_owned(),
        description: format!("Does {name}."),
        input_schema: schema.to_owned(),
        effect: EffectClass::ReadOnly,
        requires_approval: false,
        requires_runtime: false,
        timeout: None,
        max_concurrency: None,
        streams_output: false,
        title: String::new(),
    })
}
