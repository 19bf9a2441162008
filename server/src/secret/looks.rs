//! Finds texts that look like a secret: the forms in which vendors write their keys.

use std::ops::Range;

/// Beginnings of keys, and the least number of characters that follow.
const PREFIXES: [(&str, usize); 27] = [
    ("sk-", 16),
    ("sk_live_", 16),
    ("sk_test_", 16),
    ("rk_live_", 16),
    ("xai-", 20),
    ("gsk_", 20),
    ("hf_", 20),
    ("r8_", 20),
    ("AIza", 30),
    ("ya29.", 20),
    ("ghp_", 30),
    ("gho_", 30),
    ("ghu_", 30),
    ("ghs_", 30),
    ("ghr_", 30),
    ("github_pat_", 30),
    ("glpat-", 16),
    ("xoxb-", 16),
    ("xoxp-", 16),
    ("xoxa-", 16),
    ("xoxs-", 16),
    ("npm_", 30),
    ("pypi-", 30),
    ("dop_v1_", 30),
    ("SG.", 30),
    ("AGE-SECRET-KEY-", 30),
    // This server's own tokens.
    ("agt_", 20),
];
/// Beginnings of the ids of AWS keys, before 16 capital letters and digits.
const AWS: [&str; 2] = ["AKIA", "ASIA"];
/// Names of values that are secrets whatever they look like.
const NAMES: [&str; 9] = [
    "aws_secret_access_key",
    "aws_session_token",
    "client_secret",
    "x-goog-api-key",
    "x-api-key",
    "api_key",
    "api-key",
    "apikey",
    "password",
];
/// The least length of a value behind one of [`NAMES`].
const VALUE_BYTES_MIN: usize = 8;
/// The least length of what follows `Bearer`, and the least if it has a digit.
const BEARER_BYTES_MIN: (usize, usize) = (16, 8);
/// The words before and after a private key in PEM.
const PEM: (&str, &str, &str) = ("-----BEGIN ", "PRIVATE KEY-----", "-----END ");
/// Longest kind of key between the words of a PEM header, in bytes.
const PEM_KIND_BYTES_MAX: usize = 32;
/// Longest header of a web token that begins within a longer word, in bytes. Such a word has many places where a header may
/// begin, and each is read from there.
const INNER_HEADER_BYTES_MAX: usize = 1024;

/// The secret that begins at this place of a text, if it looks like one. The range is what must not be shown.
pub(super) fn secret_at(text: &str, at: usize) -> Option<Range<usize>> {
    let rest = text.get(at..)?;
    match rest.as_bytes().first()? {
        b'-' => private_key(rest).map(|end| at..at + end),
        first if first.is_ascii_alphabetic() && is_word_start(text.as_bytes(), at) => {
            let within = at.checked_sub(1).is_some_and(|before| is_key_byte(text.as_bytes()[before]));
            let header_max = if within { INNER_HEADER_BYTES_MAX } else { rest.len() };
            let found = prefixed(rest).or_else(|| aws_key_id(rest));
            let found = found.or_else(|| web_token(rest, header_max)).map(|end| 0..end);
            let found = found.or_else(|| bearer(rest)).or_else(|| named_value(rest));
            found.map(|range| at + range.start..at + range.end)
        }
        _ => None,
    }
}

/// True if no word goes on here. The letter of an escaped line break is no word.
fn is_word_start(text: &[u8], at: usize) -> bool {
    let Some(before) = at.checked_sub(1).map(|before| text[before]) else { return true };
    let escaped = matches!(before, b'n' | b'r' | b't') && at >= 2 && text[at - 2] == b'\\';
    !before.is_ascii_alphanumeric() || escaped
}

fn run_of(text: &str, is_in: impl Fn(u8) -> bool) -> usize {
    text.bytes().position(|byte| !is_in(byte)).unwrap_or(text.len())
}

fn is_key_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

fn prefixed(text: &str) -> Option<usize> {
    PREFIXES.iter().find_map(|(prefix, least)| {
        let length = run_of(text.strip_prefix(prefix)?, |byte| is_key_byte(byte) || byte == b'.');
        (length >= *least).then_some(prefix.len() + length)
    })
}

fn aws_key_id(text: &str) -> Option<usize> {
    let rest = AWS.iter().find_map(|prefix| text.strip_prefix(prefix))?;
    let length = run_of(rest, |byte| byte.is_ascii_uppercase() || byte.is_ascii_digit());
    let goes_on = rest.as_bytes().get(length).is_some_and(u8::is_ascii_alphanumeric);
    (length == 16 && !goes_on).then_some(text.len() - rest.len() + length)
}

/// A JSON Web Token: a header that begins as every JSON object does, claims, and a signature.
fn web_token(text: &str, header_max: usize) -> Option<usize> {
    if !text.starts_with("eyJ") {
        return None;
    }
    let header = run_of(&text[..text.floor_char_boundary(header_max)], is_key_byte);
    let rest = text[header..].strip_prefix('.')?;
    let claims = run_of(rest, is_key_byte);
    let rest = rest[claims..].strip_prefix('.')?;
    (header >= 10 && claims >= 8).then(|| text.len() - rest.len() + run_of(rest, is_key_byte))
}

fn bearer(text: &str) -> Option<Range<usize>> {
    let (word, rest) = text.split_at_checked("bearer ".len())?;
    if !word.eq_ignore_ascii_case("bearer ") {
        return None;
    }
    let length = run_of(rest, |byte| is_key_byte(byte) || b".~+/=".contains(&byte));
    let has_digit = rest[..length].bytes().any(|byte| byte.is_ascii_digit());
    let least = if has_digit { BEARER_BYTES_MIN.1 } else { BEARER_BYTES_MIN.0 };
    (length >= least).then_some(word.len()..word.len() + length)
}

/// The value behind a name that says what it is: `api_key = "..."`, `"password":"..."`.
fn named_value(text: &str) -> Option<Range<usize>> {
    let is_named = |name: &&str| text.get(..name.len()).is_some_and(|word| word.eq_ignore_ascii_case(name));
    let name = NAMES.iter().find(|name| is_named(name))?.len();
    let is_quote = |byte: u8| b"\"'\\ ".contains(&byte);
    let before = name + run_of(&text[name..], is_quote);
    if !matches!(text.as_bytes().get(before), Some(b'=' | b':')) {
        return None;
    }
    let begin = before + 1 + run_of(&text[before + 1..], is_quote);
    let length = run_of(&text[begin..], |byte| byte.is_ascii_graphic() && !b"\"'\\,;&})".contains(&byte));
    (length >= VALUE_BYTES_MIN).then_some(begin..begin + length)
}

fn private_key(text: &str) -> Option<usize> {
    let rest = text.strip_prefix(PEM.0)?;
    let kind = rest[..rest.floor_char_boundary(PEM_KIND_BYTES_MAX + PEM.1.len())].find(PEM.1)?;
    let body = PEM.0.len() + kind + PEM.1.len();
    let Some(end) = text[body..].find(PEM.2) else { return Some(text.len()) };
    let end = body + end + PEM.2.len();
    Some(text[end..].find("-----").map_or(text.len(), |last| end + last + "-----".len()))
}
