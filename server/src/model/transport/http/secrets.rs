//! Takes the provider's secrets out of its response: a server that echoes its request must not show the key to callers.

use std::sync::Arc;

use agentloop_core::model::delta::Delta;

use crate::secret::{SeamRedactor, Secret};

/// The text that a delta adds to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DeltaTarget {
    Text,
    Reasoning,
    Arguments(u32),
}

impl DeltaTarget {
    fn delta(self, text: String) -> Delta {
        match self {
            Self::Text => Delta::Text { text },
            Self::Reasoning => Delta::Reasoning { text },
            Self::Arguments(index) => Delta::ToolCallArguments { index, fragment: text },
        }
    }
}

/// Filters the deltas of one response.
#[derive(Debug)]
pub(super) struct SecretFilter {
    redactor: SeamRedactor,
    /// The text that the last piece belongs to.
    target: DeltaTarget,
}

impl SecretFilter {
    pub(super) fn new(secrets: Arc<[Secret]>) -> Self {
        Self { redactor: SeamRedactor::new(secrets), target: DeltaTarget::Text }
    }

    /// Hands over what may be shown once this delta is here.
    pub(super) fn push(&mut self, delta: Delta, mut show: impl FnMut(Delta)) {
        let (target, text) = match delta {
            Delta::Text { text } => (DeltaTarget::Text, text),
            Delta::Reasoning { text } => (DeltaTarget::Reasoning, text),
            Delta::ToolCallArguments { index, fragment } => (DeltaTarget::Arguments(index), fragment),
            // A report of tokens ends no text, and some providers send one with every piece.
            Delta::Usage(usage) => return show(Delta::Usage(usage)),
            other => {
                self.finish().into_iter().for_each(&mut show);
                return show(other);
            }
        };
        if target != self.target {
            self.finish().into_iter().for_each(&mut show);
            self.target = target;
        }
        let was_empty = text.is_empty();
        let text = self.redactor.push(text);
        // An empty piece is passed on if it came as one.
        if was_empty || !text.is_empty() {
            show(target.delta(text));
        }
    }

    /// The piece that was held back: the text ends here.
    pub(super) fn finish(&mut self) -> Option<Delta> {
        self.redactor.holds().then(|| self.target.delta(self.redactor.finish()))
    }
}

#[cfg(test)]
mod tests {
    use agentloop_core::message::Usage;

    use super::*;

    #[test]
    fn an_echoed_key_is_taken_out_of_every_kind_of_text() {
        let mut filter = SecretFilter::new(vec![Secret::new("sk-0123456789")].into());
        let mut shown = Vec::new();
        let text = |text: &str| Delta::Text { text: text.to_owned() };
        let arguments = |index, text: &str| Delta::ToolCallArguments { index, fragment: text.to_owned() };
        for delta in [
            text("your key is sk-01"),
            text("23456789."),
            text("s"),
            Delta::Reasoning { text: "sk-".to_owned() },
            Delta::Reasoning { text: "0123456789".to_owned() },
            arguments(0, "{\"key\":\"sk-012345"),
            arguments(0, "6789\"}"),
            arguments(1, "sk-"),
            Delta::TextEnd { state: None },
        ] {
            filter.push(delta, |delta| shown.push(delta));
        }
        assert_eq!(filter.finish(), None);
        let expected = [
            text("your key is "),
            text("[redacted]."),
            text("s"),
            Delta::Reasoning { text: "[redacted]".to_owned() },
            arguments(0, "{\"key\":\""),
            arguments(0, "[redacted]\"}"),
            arguments(1, "sk-"),
            Delta::TextEnd { state: None },
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_report_of_tokens_between_two_pieces_hides_no_key() {
        let mut filter = SecretFilter::new(vec![Secret::new("sk-0123456789")].into());
        let text = |text: &str| Delta::Text { text: text.to_owned() };
        let mut shown = Vec::new();
        for delta in [text("key sk-0123"), Delta::Usage(Usage::default()), text("456789"), text(".")] {
            filter.push(delta, |delta| shown.push(delta));
        }
        assert_eq!(shown, [text("key "), Delta::Usage(Usage::default()), text("[redacted]"), text(".")]);
    }
}
