//! Escapes of lone surrogates, such as `\ud83d` without its second half. Servers that cut a text between two UTF-16 units
//! write them, and readers of JSON refuse the whole event.

use std::borrow::Cow;

use memchr::memchr;

/// Bytes of an escape such as `\ud83d`.
const ESCAPE: usize = 6;

/// Returns the JSON text with each escape of a lone surrogate replaced by that of U+FFFD, as invalid UTF-8 is.
pub(in crate::model::transport) fn replaced(json: &str) -> Cow<'_, str> {
    let bytes = json.as_bytes();
    let (mut out, mut copied, mut at) = (String::new(), 0, 0);
    while let Some(found) = bytes.get(at..).and_then(|rest| memchr(b'\\', rest)) {
        let here = at + found;
        let is_lone = match unit(bytes, here) {
            Some(0xd800..=0xdbff) if matches!(unit(bytes, here + ESCAPE), Some(0xdc00..=0xdfff)) => {
                at = here + 2 * ESCAPE;
                continue;
            }
            Some(unit) => (0xd800..=0xdfff).contains(&unit),
            None => false,
        };
        // Any other escape has two bytes, or hexadecimal digits after them.
        at = here + 2;
        if is_lone {
            out.push_str(&json[copied..here]);
            out.push_str("\\ufffd");
            at = here + ESCAPE;
            copied = at;
        }
    }
    if copied == 0 {
        return Cow::Borrowed(json);
    }
    out.push_str(&json[copied..]);
    Cow::Owned(out)
}

/// Returns the UTF-16 unit whose escape begins here.
fn unit(bytes: &[u8], at: usize) -> Option<u16> {
    let digits = bytes.get(at..at + ESCAPE)?.strip_prefix(b"\\u")?;
    let is_hex = digits.iter().all(u8::is_ascii_hexdigit);
    let digits = std::str::from_utf8(digits).ok().filter(|_| is_hex)?;
    u16::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lone_surrogates_are_replaced_and_nothing_else_is() {
        for (json, expected) in [
            (r#"{"a":"x\ud83dy"}"#, r#"{"a":"x\ufffdy"}"#),
            (r#"{"a":"\uDE00"}"#, r#"{"a":"\ufffd"}"#),
            (r#"{"a":"\ud83d\ud83d\ude00"}"#, r#"{"a":"\ufffd\ud83d\ude00"}"#),
            (r#"{"a":"\ud83d\ude00 \\ud83d \u00fc \n"}"#, r#"{"a":"\ud83d\ude00 \\ud83d \u00fc \n"}"#),
            (r#"{"a":"\ud83"}"#, r#"{"a":"\ud83"}"#),
            ("\\", "\\"),
            ("\\ü\\ud8ü", "\\ü\\ud8ü"),
            ("", ""),
        ] {
            assert_eq!(replaced(json), expected);
        }
    }
}
