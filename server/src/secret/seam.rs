//! Takes known secrets out of text that comes in pieces. The end of a piece that may be the beginning of a secret is held
//! back until the next piece; it is shorter than the longest secret.

use std::sync::Arc;

use super::{REDACTED, Secret};

/// A shorter beginning of a secret says little about it: vendors' keys begin alike.
const BEGINNING_BYTES_MAX: usize = 8;

/// Takes known secrets out of one text that comes in pieces.
#[derive(Debug)]
pub(crate) struct SeamRedactor {
    secrets: Arc<[Secret]>,
    /// Length of the longest secret that is looked for; 0 if there is none.
    longest: usize,
    held: String,
}

impl SeamRedactor {
    pub(crate) fn new(secrets: Arc<[Secret]>) -> Self {
        let looked_for = secrets.iter().filter(|secret| secret.is_long_enough());
        let longest = looked_for.map(|secret| secret.expose().len()).max().unwrap_or_default();
        Self { secrets, longest, held: String::new() }
    }

    /// Takes in the next piece, and returns what may be shown.
    pub(crate) fn push(&mut self, piece: String) -> String {
        if self.longest == 0 {
            return piece;
        }
        let mut text = match self.held.is_empty() {
            true => piece,
            false => std::mem::take(&mut self.held) + &piece,
        };
        for secret in self.secrets.iter() {
            text = secret.redact(text);
        }
        let keep = text.len() - self.unfinished(&text);
        self.held = text.split_off(keep);
        text
    }

    /// Returns what was held back: the text ends here. A long beginning of a secret is not shown, since little may be missing.
    pub(crate) fn finish(&mut self) -> String {
        match std::mem::take(&mut self.held) {
            held if held.len() >= BEGINNING_BYTES_MAX => REDACTED.to_owned(),
            held => held,
        }
    }

    /// True if something is held back.
    pub(crate) fn holds(&self) -> bool {
        !self.held.is_empty()
    }

    /// Bytes at the end that may be the beginning of a secret.
    fn unfinished(&self, text: &str) -> usize {
        let most = text.len().min(self.longest.saturating_sub(1));
        let begins_secret = |length: usize| {
            let end = &text.as_bytes()[text.len() - length..];
            self.secrets.iter().any(|secret| {
                secret.is_long_enough()
                    && secret.expose().len() > length
                    && secret.expose().as_bytes().starts_with(end)
            })
        };
        // A secret begins with a whole character, so the cut is between two.
        (1..=most).rev().find(|length| begins_secret(*length)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "sk-söcret-0123";

    fn pieces(text: &str, cuts: &[usize]) -> Vec<String> {
        let mut pieces = Vec::new();
        let mut from = 0;
        for cut in cuts.iter().copied().chain([text.len()]) {
            pieces.push(text[from..cut].to_owned());
            from = cut;
        }
        pieces
    }

    fn shown(secrets: &[&str], pieces: &[String]) -> String {
        let secrets: Vec<Secret> = secrets.iter().map(Secret::new).collect();
        let mut redactor = SeamRedactor::new(secrets.into());
        let mut shown = String::new();
        for piece in pieces {
            shown += &redactor.push(piece.clone());
            assert!(redactor.held.len() < SECRET.len(), "what is held back is bounded");
            assert!(!shown.contains("cret-0123"), "{shown}");
        }
        shown + &redactor.finish()
    }

    #[test]
    fn a_secret_is_taken_out_wherever_it_is_cut() {
        let text = format!("my key is {SECRET}, sk-sö, s{SECRET}{SECRET}");
        let clean = "my key is [redacted], sk-sö, s[redacted][redacted]";
        let cuts: Vec<usize> = (1..text.len()).filter(|at| text.is_char_boundary(*at)).collect();
        for first in &cuts {
            for second in cuts.iter().filter(|second| *second > first) {
                assert_eq!(shown(&[SECRET], &pieces(&text, &[*first, *second])), clean);
            }
        }
        assert_eq!(shown(&[SECRET], &pieces(&text, &cuts)), clean);
    }

    #[test]
    fn a_secret_that_is_cut_at_the_end_is_taken_out() {
        for (text, clean) in [
            ("my key is sk-söcret-012", "my key is [redacted]"),
            ("my key is sk-söcr", "my key is [redacted]"),
            ("my key is sk-s", "my key is sk-s"),
        ] {
            assert_eq!(shown(&[SECRET], &[text.to_owned()]), clean);
        }
    }

    #[test]
    fn everything_else_comes_out_as_it_went_in() {
        let text = "sk-s and sk-söcret-012 and the end s";
        let cuts: Vec<usize> = (1..text.len()).filter(|at| text.is_char_boundary(*at)).collect();
        assert_eq!(shown(&[SECRET], &pieces(text, &cuts)), text);
        let mut without = SeamRedactor::new(Vec::new().into());
        assert_eq!((without.push("sk-".to_owned()), without.holds()), ("sk-".to_owned(), false));
        let mut short = SeamRedactor::new(vec![Secret::new("none")].into());
        assert_eq!((short.push("non".to_owned()), short.holds()), ("non".to_owned(), false));
    }
}
