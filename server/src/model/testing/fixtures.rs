//! Requests and conversations that the tests of several providers share.

use std::sync::Arc;

use agentloop_core::agent::{ModelOptions, ModelTimeouts};
use agentloop_core::id::CallSlot;
use agentloop_core::message::{
    Image, Message, Part, Reasoning, Role, SharedMessage, ToolCall, ToolResult, ToolStatus,
};
use agentloop_core::tool::{EffectClass, ToolDeclaration};
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};

use crate::model::request::origin::Origin;
use crate::model::{EncodedPrefix, ModelRequest};

/// Origin of the requests that [`request`] builds.
pub(in crate::model) fn origin() -> Origin {
    Origin::new(&"p".into(), "m-1")
}

pub(in crate::model) fn request(messages: Vec<Message>) -> ModelRequest {
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

pub(in crate::model) fn user(text: &str) -> Message {
    Message::text(Role::User, text)
}

pub(in crate::model) fn assistant(parts: Vec<Part>) -> Message {
    Message { role: Role::Assistant, parts }
}

pub(in crate::model) fn text(text: &str) -> Part {
    Part::text(text)
}

pub(in crate::model) fn reasoning(text: &str, signature: Option<&str>, redacted: Option<&str>) -> Part {
    Part::Reasoning(Reasoning {
        text: text.to_owned(),
        signature: signature.map(str::to_owned),
        redacted: redacted.map(str::to_owned),
        state: None,
    })
}

pub(in crate::model) fn call(id: &str, name: &str, arguments: &str) -> Part {
    Part::ToolCall(ToolCall {
        slot: CallSlot::from((1, 0)),
        provider_id: id.to_owned(),
        name: name.to_owned(),
        arguments: arguments.to_owned(),
        state: None,
    })
}

pub(in crate::model) fn result(id: &str, status: ToolStatus, output: &str, images: Vec<Image>) -> Message {
    let result = ToolResult {
        slot: CallSlot::from((1, 0)),
        provider_id: id.to_owned(),
        name: "weather".to_owned(),
        status,
        output: output.to_owned(),
        images,
        attachments: Default::default(),
    };
    Message { role: Role::Tool, parts: vec![Part::ToolResult(result)] }
}

pub(in crate::model) fn png() -> Image {
    Image::Inline { media_type: "image/png".to_owned(), base64: "iVBO".to_owned() }
}

pub(in crate::model) fn link() -> Image {
    Image::Url { url: "https://x.example/a.png".to_owned() }
}

pub(in crate::model) fn tool(name: &str, schema: &str) -> Arc<ToolDeclaration> {
    Arc::new(ToolDeclaration {
        name: name.to_owned(),
        description: format!("Does {name}."),
        input_schema: schema.to_owned(),
        effect: EffectClass::ReadOnly,
        requires_approval: false,
        requires_runtime: false,
        deadline_is_outcome: false,
        output_schema: String::new(),
        timeout: None,
        max_concurrency: None,
        streams_output: false,
        title: String::new(),
    })
}

/// Random conversations as sessions have them, one after the other. Each continues the one before, or is
/// compacted, cut back to a fork, or has a message replaced.
pub(in crate::model) struct RandomConversation {
    chance: SmallRng,
    messages: Vec<SharedMessage>,
}

impl RandomConversation {
    pub(in crate::model) fn new(seed: u64) -> Self {
        Self { chance: SmallRng::seed_from_u64(seed), messages: Vec::new() }
    }

    /// Returns a random number below `many`.
    pub(in crate::model) fn one_of(&mut self, many: usize) -> usize {
        self.chance.random_range(0..many)
    }

    pub(in crate::model) fn next(&mut self) -> Vec<SharedMessage> {
        let all = self.messages.len();
        match self.one_of(12) {
            0 if all > 0 => {
                let hidden = self.one_of(all);
                self.messages.splice(..=hidden, [Arc::new(user("what was said before"))]);
            }
            1 if all > 0 => self.messages.truncate(self.chance.random_range(1..=all)),
            2 if all > 0 => {
                let anew = self.one_of(all);
                self.messages[anew] = Arc::new(self.message());
            }
            _ => {}
        }
        for _ in 0..self.one_of(5) {
            let message = self.message();
            self.messages.push(Arc::new(message));
        }
        self.messages.clone()
    }

    fn message(&mut self) -> Message {
        match self.one_of(8) {
            0 => Message::text(Role::System, self.words()),
            1 | 2 => Message { role: Role::User, parts: self.parts() },
            3..=5 => {
                let mut parts = self.parts();
                if self.one_of(3) == 0 {
                    parts.insert(0, reasoning("because", Some("signed"), None));
                }
                for _ in 0..self.one_of(3) {
                    parts.push(call(self.id(), "weather", r#"{"city":"Rome"}"#));
                }
                assistant(parts)
            }
            _ => {
                let images = vec![png(); self.one_of(3)];
                let status = if self.one_of(4) == 0 { ToolStatus::Failed } else { ToolStatus::Succeeded };
                let (id, output) = (self.id(), self.words());
                result(id, status, &output, images)
            }
        }
    }

    fn parts(&mut self) -> Vec<Part> {
        let mut parts = vec![text(&self.words())];
        if self.one_of(6) == 0 {
            parts.push(Part::Image { image: link() });
        }
        parts
    }

    fn words(&mut self) -> String {
        ["", " ", "yes", "\"quoted\"\n", "größer"][self.one_of(5)].repeat(1 + self.one_of(3))
    }

    fn id(&mut self) -> &'static str {
        ["a", "b", "functions.f:0", ""][self.one_of(4)]
    }
}
