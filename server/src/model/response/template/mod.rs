//! Events of a stream that are alike but for one text, as nearly all of an answer's are.
//!
//! What stands around the text in one event is remembered. An event with the same around its own text says the same
//! but for the text, so nothing else of it has to be read.

use std::borrow::Cow;

use crate::model::response::fields::Text;

/// What is remembered of an event.
const BYTES_MAX: usize = 4 * 1024;
/// OpenAI adds a text of chance to each event, so that its length does not tell that of what is said:
/// <https://platform.openai.com/docs/api-reference/chat/create>, `stream_options.include_obfuscation`.
const PADDING: &str = r#""obfuscation":""#;

/// What an event says.
pub(in crate::model) trait Said<'a>: Sized {
    /// The one thing that it says with a text.
    type Single: Copy;

    /// What an event of a common shape says. `None` for all others.
    fn fast(event: &'a str) -> Option<Self>;

    /// What it says, where that is one thing with a text that is borrowed from the event.
    fn single(&self) -> Option<(Self::Single, &'a str)>;

    /// What the event would say with another text, which is not empty.
    fn with(single: Self::Single, text: Cow<'a, str>) -> Self;
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
    /// As [`Said::fast`], and remembered.
    pub(in crate::model) fn fast<'a, T: Said<'a, Single = S>>(&mut self, event: &'a str) -> Option<T> {
        if let Some((single, text)) = self.read(event) {
            return Some(T::with(single, text));
        }
        let said = T::fast(event)?;
        if let Some((single, text)) = said.single() {
            self.learn(event, text, single);
        }
        Some(said)
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
    fn read<'a>(&self, event: &'a str) -> Option<(S, Cow<'a, str>)> {
        let says = self.says?;
        let rest = event.strip_prefix(self.before.as_str())?;
        let rest = match &self.end {
            Some(end) => unpadded(rest.strip_suffix(end.as_str())?)?,
            None => rest,
        };
        // With its first quotation mark, and without the second.
        let open = rest.strip_suffix(self.behind.as_str())?;
        let text: Text<'a> = serde_json::from_str(rest.get(..=open.len())?).ok()?;
        Some((says, text.filled()?))
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
