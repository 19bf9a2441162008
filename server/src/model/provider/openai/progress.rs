//! Whether arguments that come in pieces are complete.

use serde::de::IgnoredAny;

/// How far arguments that grow have been looked at, so that each byte is looked at once, however often one asks.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// The bytes looked at.
    seen: usize,
    stand: Stand,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Stand {
    /// Nothing but white space so far.
    #[default]
    Before,
    /// Inside this many objects and lists.
    Inside { depth: usize, text: InText },
    /// Nothing but white space follows the whole object.
    Complete,
    /// Never an object, whatever follows.
    Never,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InText {
    No,
    Yes,
    /// After a backslash.
    Escaped,
}

impl Progress {
    /// Whether `arguments`, which only ever grow, are an object and nothing else.
    pub(super) fn is_complete(&mut self, arguments: &str) -> bool {
        let bytes = arguments.as_bytes();
        while let Some(&byte) = bytes.get(self.seen) {
            self.seen += 1;
            self.stand = self.stand.after(byte);
            // Where the first bracket closes, the object is over, or it is none: more can only spoil it.
            let closed = matches!(self.stand, Stand::Complete) && !byte.is_ascii_whitespace();
            if closed && serde_json::from_slice::<IgnoredAny>(&bytes[..self.seen]).is_err() {
                self.stand = Stand::Never;
            }
        }
        self.stand == Stand::Complete
    }
}

impl Stand {
    fn after(self, byte: u8) -> Self {
        let inside = |depth, text| Self::Inside { depth, text };
        match (self, byte) {
            (Self::Before | Self::Complete, b' ' | b'\t' | b'\r' | b'\n') | (Self::Never, _) => self,
            (Self::Before, b'{') => inside(1, InText::No),
            (Self::Before | Self::Complete, _) => Self::Never,
            (Self::Inside { depth, text: InText::Escaped }, _) => inside(depth, InText::Yes),
            (Self::Inside { depth, text: InText::Yes }, b'\\') => inside(depth, InText::Escaped),
            (Self::Inside { depth, text: InText::Yes }, b'"') => inside(depth, InText::No),
            (Self::Inside { depth, text: InText::No }, b'"') => inside(depth, InText::Yes),
            (Self::Inside { depth, text: InText::No }, b'{' | b'[') => inside(depth + 1, InText::No),
            (Self::Inside { depth: 1, text: InText::No }, b'}' | b']') => Self::Complete,
            (Self::Inside { depth, text: InText::No }, b'}' | b']') => inside(depth - 1, InText::No),
            (Self::Inside { .. }, _) => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// What the whole text is, by a parser that starts over each time.
    fn is_object(text: &str) -> bool {
        serde_json::from_str::<Value>(text).is_ok_and(|value| value.is_object())
    }

    #[test]
    fn it_is_told_at_every_length() {
        for text in [
            "{}",
            " {} \n x",
            "{\"a\":\"}\\\"{\\\\\",\"b\":[{},[1,{\"c\":null}]]}  }",
            "{]}",
            "{\"a\":[}]}",
            "[{}]",
            "\"}\"",
            "{\"a\":1}{\"a\":2}",
            "{,}{}",
            "{\"ü\":\"日}本\"}",
            "}",
            "",
        ] {
            let mut progress = Progress::default();
            for end in (0..=text.len()).filter(|&end| text.is_char_boundary(end)) {
                assert_eq!(progress.is_complete(&text[..end]), is_object(&text[..end]), "{:?}", &text[..end]);
            }
            assert_eq!(progress.seen, text.len());
            assert_eq!(Progress::default().is_complete(text), is_object(text), "{text:?} at once");
        }
    }
}
