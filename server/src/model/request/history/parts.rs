//! Parts of messages that both OpenAI formats encode alike.

use std::borrow::Cow;
use std::fmt;

use agentloop_core::message::{Image, Message, Part, ToolResult};
use serde::{Serialize, Serializer};

/// Returns the output of a tool call. The formats cannot mark an error, so its text begins with `error: `.
pub(in crate::model) fn result_text(result: &ToolResult) -> Cow<'_, str> {
    if result.status.is_error() {
        Cow::Owned(format!("error: {}", result.output))
    } else {
        Cow::Borrowed(&result.output)
    }
}

/// Returns the URL of an image: its own, or a `data:` URL.
pub(in crate::model) fn image_url(image: &Image) -> Cow<'_, str> {
    match image {
        Image::Url { url } => Cow::Borrowed(url.as_str()),
        Image::Inline { media_type, base64 } => Cow::Owned(format!("data:{media_type};base64,{base64}")),
    }
}

/// The text parts of a message, serialised as one string with a separator between them.
pub(in crate::model) struct JoinedText<'a>(
    pub(in crate::model) &'a Message,
    pub(in crate::model) &'static str,
);

impl<'a> JoinedText<'a> {
    fn texts(&self) -> impl Iterator<Item = &'a str> {
        self.0.parts.iter().filter_map(|part| match part {
            Part::Text { text, .. } => Some(text.as_str()),
            Part::Image { .. }
            | Part::Reasoning(_)
            | Part::Opaque(_)
            | Part::ToolCall(_)
            | Part::ToolResult(_) => None,
        })
    }
}

impl Serialize for JoinedText<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut texts = self.texts();
        match (texts.next(), texts.next()) {
            (None, _) => serializer.serialize_str(""),
            (Some(only), None) => serializer.serialize_str(only),
            (Some(_), Some(_)) => serializer.collect_str(self),
        }
    }
}

impl fmt::Display for JoinedText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, text) in self.texts().enumerate() {
            if place > 0 {
                f.write_str(self.1)?;
            }
            f.write_str(text)?;
        }
        Ok(())
    }
}
