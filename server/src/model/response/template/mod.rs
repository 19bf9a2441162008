//! Events of a stream that are alike but for one text, as nearly all of an answer's are.
//!
//! What stands around the text in one event is remembered. An event with the same around its own text says the same
//! but for the text, so nothing else of it has to be read.

use std::borrow::Cow;

use crate::model::response::fields::{self, Fields};

/// What is remembered of an event.
const BYTES_MAX: usize = 4 * 1024;
/// OpenAI adds a text of chance to each event, so that its length does not tell that of what is said:
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

/// What stands around a text, and what such an event says with it.
#[derive(Debug)]
pub(in crate::model) struct Template<S> {
    /// `None` before any is known.
    says: Option<S>,
    /// Up to the text, without its quotation mark.
    before: String,
    /// From the text's second quotation mark on.
    behind: String,
    /// What follows on a padding behind that, from the padding's second quotation mark on.
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

    /// Remembers what stands in an event around a text that is a string of it.
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

    /// What an event says, and its text, where it is like the one that was learned from.
    fn matches<'a>(&self, event: &'a str) -> Option<(S, Cow<'a, str>)> {
        let says = self.says?;
        let rest = event.strip_prefix(self.before.as_str())?;
        let rest = match &self.end {
            Some(end) => unpadded(rest.strip_suffix(end.as_str())?)?,
            None => rest,
        };
        // With its first quotation mark, and without the second.
        let open = rest.strip_suffix(self.behind.as_str())?;
        let text = fields::text(rest.get(..=open.len())?)?;
        Some((says, text)).filter(|(_, text)| !text.is_empty())
    }
}

/// What stands before the quotation mark that begins the text, and what from the one on that ends it.
fn around<'e>(event: &'e str, text: &str) -> Option<(&'e str, &'e str)> {
    let at = text.as_ptr().addr().checked_sub(event.as_ptr().addr())?;
    let (before, rest) = event.split_at_checked(at)?;
    let behind = rest.strip_prefix(text)?;
    let small = before.len() + behind.len() <= BYTES_MAX;
    Some((before.strip_suffix('"')?, behind)).filter(|_| small && behind.starts_with('"'))
}

/// What stands before a padding and what from the quotation mark on that ends it, where there is one.
fn padded(behind: &str) -> Option<(&str, &str)> {
    let (before, padding) = behind.split_at(behind.find(PADDING)? + PADDING.len());
    let end = padding.trim_start_matches(|letter: char| letter.is_ascii_alphanumeric());
    end.starts_with('"').then_some((before, end))
}

/// What stands before the padding that ends it, where it does.
fn unpadded(padded: &str) -> Option<&str> {
    let before = padded.trim_end_matches(|letter: char| letter.is_ascii_alphanumeric());
    before.ends_with('"').then_some(before)
}

#[cfg(test)]
pub(in crate::model) mod tests;
