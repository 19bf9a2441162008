//! A conversation as plain text, for a model that writes about it.

use agentloop_core::message::{Message, Part, Role};

/// The most bytes of one text of a message. The rest is cut.
const TEXT_BYTES_MAX: usize = 4 * 1024;
/// The most bytes of a tool call's arguments or output. The rest is cut.
const TOOL_BYTES_MAX: usize = 512;

/// The text of a conversation, up to a number of bytes.
pub(in crate::engine) struct Transcript {
    text: String,
    bytes_max: usize,
}

impl Transcript {
    /// An empty transcript. The first message is cut to `bytes_max`; later ones are left out if they do not fit.
    pub(in crate::engine) fn new(bytes_max: usize) -> Self {
        Self { text: String::new(), bytes_max }
    }

    /// Adds a message. False, and nothing is added, if there is no room for it.
    pub(in crate::engine) fn add(&mut self, message: &Message) -> bool {
        let text = message_text(message);
        if !self.text.is_empty() && self.text.len() + text.len() > self.bytes_max {
            return false;
        }
        self.text.push_str(&text[..text.floor_char_boundary(self.bytes_max)]);
        true
    }

    /// The whole text. `None` if no message had any text.
    pub(in crate::engine) fn text(self) -> Option<String> {
        (!self.text.is_empty()).then_some(self.text)
    }
}

fn message_text(message: &Message) -> String {
    let who = match message.role {
        Role::System => "System",
        Role::User => "User",
        Role::Assistant => "Assistant",
        Role::Tool => "Tool",
    };
    message.parts.iter().filter_map(part_text).map(|text| format!("{who}: {text}\n")).collect()
}

fn part_text(part: &Part) -> Option<String> {
    match part {
        Part::Text { text, .. } => (!text.trim().is_empty()).then(|| cut(text, TEXT_BYTES_MAX)),
        Part::ToolCall(call) => {
            Some(format!("[calls {} with {}]", call.name, cut(&call.arguments, TOOL_BYTES_MAX)))
        }
        Part::ToolResult(result) => {
            Some(format!("[{}] {}", result.name, cut(&result.text_for_model(), TOOL_BYTES_MAX)))
        }
        Part::Image { .. } => Some("[a picture]".to_owned()),
        Part::Reasoning(_) | Part::Opaque(_) => None,
    }
}

fn cut(text: &str, bytes: usize) -> String {
    let text = text.trim();
    match &text[..text.floor_char_boundary(bytes)] {
        all if all.len() == text.len() => text.to_owned(),
        beginning => format!("{beginning} [cut]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(role: Role, text: &str) -> Message {
        Message::text(role, text)
    }

    #[test]
    fn who_said_what_is_told() {
        let mut transcript = Transcript::new(1_000);
        assert!(transcript.add(&says(Role::User, " hi ")));
        assert!(transcript.add(&says(Role::Assistant, "hello")));
        assert!(transcript.add(&says(Role::Assistant, " ")));
        assert_eq!(transcript.text().unwrap(), "User: hi\nAssistant: hello\n");
        assert_eq!(Transcript::new(9).text(), None);
    }

    #[test]
    fn what_does_not_fit_is_left_for_later() {
        let mut transcript = Transcript::new(20);
        assert!(transcript.add(&says(Role::User, "twelve bytes")));
        assert!(!transcript.add(&says(Role::User, "more")));
        assert_eq!(transcript.text().unwrap(), "User: twelve bytes\n");

        let mut transcript = Transcript::new(20);
        assert!(transcript.add(&says(Role::User, &"ü".repeat(99))), "the first is cut rather than left");
        assert!(transcript.text().unwrap().len() <= 20);
    }

    #[test]
    fn long_texts_are_cut() {
        let told = message_text(&says(Role::User, &"ü".repeat(TEXT_BYTES_MAX)));
        assert!(told.len() < TEXT_BYTES_MAX + 32 && told.ends_with(" [cut]\n"));
    }
}
