//! Detects when the streamed arguments of a tool call are a complete JSON object.

use serde::de::IgnoredAny;

/// Scanner of growing arguments. Each byte is scanned once, however often the result is read.
#[derive(Debug, Default)]
pub(super) struct ArgumentsScan {
    /// Number of scanned bytes.
    scanned: usize,
    state: ScanState,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum ScanState {
    /// Only white space so far.
    #[default]
    Before,
    /// Inside `depth` nested objects and lists.
    Inside { depth: usize, text: InString },
    /// A complete object, followed by white space only.
    Complete,
    /// Not an object, whatever follows.
    Never,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InString {
    No,
    Yes,
    /// The character after a backslash is next.
    Escaped,
}

impl ArgumentsScan {
    /// True if `arguments` is one complete object. Each call must pass the previous text with more appended.
    pub(super) fn is_complete(&mut self, arguments: &str) -> bool {
        let bytes = arguments.as_bytes();
        while let Some(&byte) = bytes.get(self.scanned) {
            self.scanned += 1;
            self.state = self.state.after(byte);
            // The object ends where the first bracket closes. More text can only make it invalid.
            let closed = matches!(self.state, ScanState::Complete) && !byte.is_ascii_whitespace();
            if closed && serde_json::from_slice::<IgnoredAny>(&bytes[..self.scanned]).is_err() {
                self.state = ScanState::Never;
            }
        }
        self.state == ScanState::Complete
    }
}

impl ScanState {
    fn after(self, byte: u8) -> Self {
        let inside = |depth, text| Self::Inside { depth, text };
        match (self, byte) {
            (Self::Before | Self::Complete, b' ' | b'\t' | b'\r' | b'\n') | (Self::Never, _) => self,
            (Self::Before, b'{') => inside(1, InString::No),
            (Self::Before | Self::Complete, _) => Self::Never,
            (Self::Inside { depth, text: InString::Escaped }, _) => inside(depth, InString::Yes),
            (Self::Inside { depth, text: InString::Yes }, b'\\') => inside(depth, InString::Escaped),
            (Self::Inside { depth, text: InString::Yes }, b'"') => inside(depth, InString::No),
            (Self::Inside { depth, text: InString::No }, b'"') => inside(depth, InString::Yes),
            (Self::Inside { depth, text: InString::No }, b'{' | b'[') => inside(depth + 1, InString::No),
            (Self::Inside { depth: 1, text: InString::No }, b'}' | b']') => Self::Complete,
            (Self::Inside { depth, text: InString::No }, b'}' | b']') => inside(depth - 1, InString::No),
            (Self::Inside { .. }, _) => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// Checks the whole text with a parser that starts over each time.
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
            let mut scan = ArgumentsScan::default();
            for end in (0..=text.len()).filter(|&end| text.is_char_boundary(end)) {
                assert_eq!(scan.is_complete(&text[..end]), is_object(&text[..end]), "{:?}", &text[..end]);
            }
            assert_eq!(scan.scanned, text.len());
            assert_eq!(ArgumentsScan::default().is_complete(text), is_object(text), "{text:?} at once");
        }
    }
}
