//! Takes secrets out of texts that are complete: lines of the log, attributes of spans, messages of errors.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use super::looks::secret_at;
use super::{REDACTED, Secret};

/// Bytes at the end of a text that was cut which may be the beginning of a secret. A longer beginning looks like one.
const CUT_BYTES_MAX: usize = 64;

/// Takes known secrets, and what looks like one, out of texts. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Redactor(Arc<[Secret]>);

impl Redactor {
    /// Knows these secrets. Short ones are not looked for: they are placeholders and ordinary words.
    #[must_use]
    pub fn new(secrets: impl IntoIterator<Item = Secret>) -> Self {
        let mut secrets: Vec<Secret> = secrets.into_iter().filter(Secret::is_long_enough).collect();
        // If two begin alike, the longer one goes, or its end would stay.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.expose().len()));
        Self(secrets.into())
    }

    /// The text with `[redacted]` in the place of each secret.
    #[must_use]
    pub fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let mut clean = String::new();
        let (mut copied, mut at) = (0, 0);
        while at < text.len() {
            match self.secret_at(text, at) {
                Some(secret) => {
                    clean.push_str(&text[copied..secret.start]);
                    clean.push_str(REDACTED);
                    (copied, at) = (secret.end, secret.end);
                }
                None => at += 1,
            }
        }
        if copied == 0 {
            return Cow::Borrowed(text);
        }
        clean.push_str(&text[copied..]);
        Cow::Owned(clean)
    }

    /// As [`Self::redact`], for a text that was cut at its end. The word there is left out: of a secret that nobody knows, it may be
    /// a beginning that is too short to look like one.
    #[must_use]
    pub(crate) fn redact_cut(&self, text: &str) -> String {
        let mut clean = self.redact(text).into_owned();
        let is_of_secret = |letter: char| letter.is_ascii_alphanumeric() || "_-.~+/=".contains(letter);
        let word = clean.len() - clean.trim_end_matches(is_of_secret).len();
        clean.truncate(clean.len() - word.min(CUT_BYTES_MAX));
        clean
    }

    fn secret_at(&self, text: &str, at: usize) -> Option<Range<usize>> {
        let rest = &text.as_bytes()[at..];
        let known = self.0.iter().find(|secret| rest.starts_with(secret.expose().as_bytes()));
        known.map(|secret| at..at + secret.expose().len()).or_else(|| secret_at(text, at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, clean: &str) {
        let redactor = Redactor::new([Secret::new("correct horse battery"), Secret::new("none")]);
        assert_eq!(redactor.redact(text), clean, "{text}");
        let around = format!("before ({text}) after");
        assert_eq!(redactor.redact(&around), format!("before ({clean}) after"));
    }

    #[test]
    fn what_is_configured_is_taken_out() {
        check("a correct horse battery, none left", "a [redacted], none left");
        check("correct horse batteryx", "[redacted]x");
        let alike = Redactor::new([Secret::new("a-secret"), Secret::new("a-secret-that-goes-on")]);
        assert_eq!(alike.redact("a-secret a-secret-that-goes-on"), "[redacted] [redacted]");
    }

    #[test]
    fn beginnings_without_an_end_are_looked_at_once() {
        // Each of them read to the end of the text would take minutes.
        for piece in ["eyJ-", "-----BEGIN "] {
            let text = piece.repeat(100_000);
            assert!(matches!(Redactor::default().redact(&text), Cow::Borrowed(_)), "{piece}");
        }
    }

    #[test]
    fn keys_of_vendors_are_taken_out() {
        let x = |count: usize| "aB3".repeat(count);
        for key in [
            format!("sk-{}", x(8)),
            format!("sk-ant-api03-{}", x(30)),
            format!("sk-proj-{}_{}", x(8), x(8)),
            format!("AIza{}x", x(12)),
            format!("ghp_{}", x(12)),
            format!("github_pat_{}", x(20)),
            format!("xoxb-{}", x(8)),
            format!("hf_{}", x(11)),
            format!("gsk_{}", x(16)),
            "AKIAIOSFODNN7EXAMPLE".to_owned(),
            format!("agt_0123456789ab_{}", x(14)),
            format!("eyJhbGciOiJFUzI1NiJ9.{}.{}", x(9), x(9)),
            format!("eyJhbGciOiJub25lIn0.{}.", x(9)),
        ] {
            check(&key, "[redacted]");
            check(&format!("\"{key}\""), "\"[redacted]\"");
            check(&format!("line\\n{key}"), "line\\n[redacted]");
        }
    }

    #[test]
    fn a_secret_that_nobody_knows_is_taken_out_wherever_its_text_is_cut() {
        let secret = "Zq7Xw9Kj4".repeat(8);
        for begin in ["sk-", "AIza", "github_pat_", "api_key=", "Bearer ", "-----BEGIN PRIVATE KEY-----\n"] {
            let text = format!("the key was {begin}{secret}");
            for end in "the key was ".len()..=text.len() {
                let shown = Redactor::default().redact_cut(&text[..end]);
                assert!(
                    shown.starts_with("the key was ") && !shown.contains("Zq"),
                    "{shown} of {}",
                    &text[..end]
                );
            }
        }
        assert_eq!(Redactor::default().redact_cut("größe ist gut"), "größe ist ");
        assert_eq!(Redactor::default().redact_cut("a whole sentence."), "a whole ");
        assert_eq!(Redactor::default().redact_cut(&"x".repeat(100)), "x".repeat(36));
        assert_eq!(Redactor::default().redact_cut(""), "");
    }

    #[test]
    fn values_that_say_what_they_are_are_taken_out() {
        check("Bearer abcdefgh1", "Bearer [redacted]");
        check("authorization: bearer 0123456789.abc-/+=", "authorization: bearer [redacted]");
        check("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG+bPx", "aws_secret_access_key = [redacted]");
        check("{\\\"password\\\":\\\"hunter2hunter2\\\"}", "{\\\"password\\\":\\\"[redacted]\\\"}");
        check("?api_key=0123456789&x=1", "?api_key=[redacted]&x=1");
        check("X-Api-Key: 0123456789", "X-Api-Key: [redacted]");
    }

    #[test]
    fn private_keys_are_taken_out_whole_or_cut_off() {
        for kind in ["", "RSA ", "EC ", "OPENSSH ", "ENCRYPTED "] {
            let begin = format!("-----BEGIN {kind}PRIVATE KEY-----\nMIIE\nv+/=\n");
            check(&format!("{begin}-----END {kind}PRIVATE KEY-----"), "[redacted]");
            assert_eq!(Redactor::default().redact(&begin), "[redacted]");
        }
        check(
            "-----BEGIN CERTIFICATE-----\nMIIE\n-----END CERTIFICATE-----",
            "-----BEGIN CERTIFICATE-----\nMIIE\n-----END CERTIFICATE-----",
        );
    }

    #[test]
    fn ordinary_words_stay() {
        for text in [
            "the task-force of risk-management-for-everyone",
            "a bearer credential, bearer tokens and bearer",
            "password: ok",
            "the api_key is missing",
            "run=0198c2c6-7f1e-7000-8000-000000000000 lease_token=x",
            "sk-1",
            "AKIA",
            "eyJ.a.b",
            "größe -----BEGIN",
            "",
        ] {
            check(text, text);
            assert!(matches!(Redactor::default().redact(text), Cow::Borrowed(_)), "{text}");
        }
    }
}
