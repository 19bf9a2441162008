//! Reads events by template: nearly all events of a response are equal except for one text.
//!
//! The text before and after it in one event is the template. An event that equals the template around its own
//! text has the same content except for that text, so only the text is read.

use std::borrow::Cow;

use crate::model::response::fields::{self, Fields};

/// Maximum length of a template. Longer events are read in full.
const BYTES_MAX: usize = 4 * 1024;
/// Random padding that OpenAI adds to each event, so that an observer cannot tell the length of the text:
/// <https://platform.openai.com/docs/api-reference/chat/create>, `stream_options.include_obfuscation`.
const PADDING: &str = r#""obfuscation":""#;

/// An event that can be read by template.
pub(in crate::model) trait TextEvent<'a>: Fields<'a> {
    /// Kind of the event's single text.
    type Kind: Copy;

    /// Returns the single text, if the event has nothing else, and the text is not empty and borrowed from the event.
    fn single_text(&self) -> Option<(Self::Kind, &'a str)>;

    /// Creates the event that has this text only.
    fn with_text(kind: Self::Kind, text: Cow<'a, str>) -> Self;
}

/// The text around the single text of an event, and the kind of that text.
#[derive(Debug)]
pub(in crate::model) struct Template<S> {
    /// Kind of the single text; `None` before a template is learned.
    says: Option<S>,
    /// Event up to the text, without the text's opening quotation mark.
    before: String,
    /// Event from the text's closing quotation mark on, up to the padding if there is one.
    behind: String,
    /// Event from the padding's closing quotation mark on, if there is padding.
    end: Option<String>,
}

impl<S> Default for Template<S> {
    fn default() -> Self {
        Self { says: None, before: String::new(), behind: String::new(), end: None }
    }
}

impl<S: Copy> Template<S> {
    /// Reads an event, by template if it matches, and remembers its surroundings.
    ///
    /// # Errors
    /// If the event is not JSON.
    pub(in crate::model) fn read<'a, T: TextEvent<'a, Kind = S>>(
        &mut self,
        event: &'a str,
    ) -> Result<T, serde_json::Error> {
        if let Some((kind, text)) = self.matches(event) {
            return Ok(T::with_text(kind, text));
        }
        let read: T = fields::read(event)?;
        if let Some((kind, text)) = read.single_text() {
            self.learn(event, text, kind);
        }
        Ok(read)
    }

    /// Learns the template of an event. `text` must be a slice of `event`.
    fn learn(&mut self, event: &str, text: &str, says: S) {
        self.says = None;
        let Some((before, behind)) = around(event, text) else { return };
        let (behind, end) = match padded(behind) {
            Some((behind, end)) => (behind, Some(end)),
            None => (behind, None),
        };
        before.clone_into(&mut self.before);
        behind.clone_into(&mut self.behind);
        self.end = end.map(str::to_owned);
        self.says = Some(says);
    }

    /// Returns the kind and the text of an event that matches the template. A decoder that handles them at once saves
    /// making the event, which is most of the work for a short text.
    pub(in crate::model) fn matches<'a>(&self, event: &'a str) -> Option<(S, Cow<'a, str>)> {
        let says = self.says?;
        let rest = event.strip_prefix(self.before.as_str())?;
        let rest = match &self.end {
            Some(end) => unpadded(rest.strip_suffix(end.as_str())?)?,
            None => rest,
        };
        // The text with its opening quotation mark, without the closing one.
        let open = rest.strip_suffix(self.behind.as_str())?;
        let text = fields::text(rest.get(..=open.len())?)?;
        Some((says, text)).filter(|(_, text)| !text.is_empty())
    }
}

/// Returns the event before the text's opening quotation mark, and from its closing one on.
fn around<'e>(event: &'e str, text: &str) -> Option<(&'e str, &'e str)> {
    let at = text.as_ptr().addr().checked_sub(event.as_ptr().addr())?;
    let (before, rest) = event.split_at_checked(at)?;
    let behind = rest.strip_prefix(text)?;
    let small = before.len() + behind.len() <= BYTES_MAX;
    Some((before.strip_suffix('"')?, behind)).filter(|_| small && behind.starts_with('"'))
}

/// Splits at a padding: returns the part before it, and the part from its closing quotation mark on.
fn padded(behind: &str) -> Option<(&str, &str)> {
    let (before, padding) = behind.split_at(behind.find(PADDING)? + PADDING.len());
    let end = padding.trim_start_matches(|letter: char| letter.is_ascii_alphanumeric());
    end.starts_with('"').then_some((before, end))
}

/// Removes a padding at the end.
fn unpadded(padded: &str) -> Option<&str> {
    let before = padded.trim_end_matches(|letter: char| letter.is_ascii_alphanumeric());
    before.ends_with('"').then_some(before)
}

#[cfg(test)]
pub(in crate::model) mod tests;
