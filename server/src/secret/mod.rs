//! Keys and tokens, which must not reach logs, spans or error messages.

mod looks;
mod redactor;
mod seam;

use std::fmt;

pub use self::redactor::Redactor;
pub(crate) use self::seam::SeamRedactor;

/// The text in place of a secret.
const REDACTED: &str = "[redacted]";

/// Shorter keys are not redacted. They are placeholders for local servers (`none`, `EMPTY`), and ordinary words.
const REDACTED_BYTES_MIN: usize = 8;

/// A key or token. It cannot be printed or serialised; [`Self::expose`] is the only way to its text.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// A secret with this text, without white space around it: keys come from files that end in a line break.
    #[must_use]
    pub fn new(text: impl AsRef<str>) -> Self {
        Self(text.as_ref().trim().to_owned())
    }

    /// The text itself, for the wire and nothing else.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// True if the text is empty, which means that no key is configured.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if it is looked for in texts.
    fn is_long_enough(&self) -> bool {
        self.0.len() >= REDACTED_BYTES_MIN
    }

    /// Replaces this secret in `text` by `[redacted]`. Providers may quote the key that they refuse.
    #[must_use]
    pub fn redact(&self, text: String) -> String {
        if self.is_long_enough() && text.contains(&self.0) { text.replace(&self.0, REDACTED) } else { text }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_nothing() {
        let secret = Secret::new("sk-0123456789\n");
        assert_eq!(format!("{secret:?} {:?}", Some(&secret)), "[redacted] Some([redacted])");
        assert_eq!(secret.expose(), "sk-0123456789");
        assert!(Secret::new(" \n").is_empty());
    }

    #[test]
    fn texts_are_cleaned_of_it() {
        let secret = Secret::new("sk-0123456789");
        assert_eq!(
            secret.redact("key sk-0123456789 and sk-0123456789x".to_owned()),
            "key [redacted] and [redacted]x"
        );
        assert_eq!(Secret::new("none").redact("none found".to_owned()), "none found");
        assert_eq!(Secret::new("").redact("abc".to_owned()), "abc");
    }
}
