//! History to request: the messages that are sent to a model.
//!
//! **Invariant:** a function of the history alone. The request of a longer history begins with that of a shorter one, so
//! that provider caches stay valid.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::id::CallSlot;
use crate::limits::TOOL_RESULT_SHOWN_BYTES_MAX;
use crate::message::{Attachments, Message, Part, Role, SharedMessage, ToolCall, ToolResult, ToolStatus};

/// The message as the model reads it: typed output, files and links become text, and tool output beyond
/// [`TOOL_RESULT_SHOWN_BYTES_MAX`] is cut, with a notice.
#[must_use]
pub fn shown(message: &SharedMessage) -> SharedMessage {
    if !message.parts.iter().any(|part| is_too_long(part) || has_attachments(part)) {
        return message.clone();
    }
    let parts = message.parts.iter().cloned().map(as_text).map(cut).collect();
    Arc::new(Message { role: message.role, parts })
}

/// True if [`shown`] cuts this message.
#[must_use]
pub fn is_cut(message: &Message) -> bool {
    message.parts.iter().any(is_too_long)
}

fn is_too_long(part: &Part) -> bool {
    matches!(part, Part::ToolResult(result) if result.output.len() > TOOL_RESULT_SHOWN_BYTES_MAX)
}

fn has_attachments(part: &Part) -> bool {
    matches!(part, Part::ToolResult(result) if !result.attachments.is_empty())
}

fn as_text(part: Part) -> Part {
    match part {
        Part::ToolResult(result) if !result.attachments.is_empty() => {
            let output = result.text_for_model().into_owned();
            Part::ToolResult(ToolResult { output, attachments: Attachments::default(), ..result })
        }
        other => other,
    }
}

fn cut(part: Part) -> Part {
    match part {
        Part::ToolResult(mut result) if result.output.len() > TOOL_RESULT_SHOWN_BYTES_MAX => {
            let whole = result.output.len();
            let end = result.output.floor_char_boundary(TOOL_RESULT_SHOWN_BYTES_MAX);
            result.output.truncate(end);
            result.output.push_str(&format!("\n[cut: the first {end} of {whole} bytes]"));
            Part::ToolResult(result)
        }
        other => other,
    }
}

/// The messages to send: every tool call is directly followed by its result, and every result has its call.
///
/// A history that the loop wrote has this form already and is returned unchanged. Histories that callers bring may not.
#[must_use]
pub fn messages(history: &[SharedMessage]) -> Vec<SharedMessage> {
    let mut paired = PairedHistory::default();
    paired.extend(history);
    close(&mut paired.out, paired.open);
    paired.out
}

/// The [`messages`] of a growing history. Each message is processed once, however often they are sent, and keeps the same
/// shared message.
#[derive(Debug, Clone, Default)]
pub struct PairedHistory {
    out: Vec<SharedMessage>,
    /// Calls of the last assistant message that have no result yet.
    open: Vec<ToolCall>,
}

impl PairedHistory {
    /// Adds the next message of the history.
    pub fn add(&mut self, message: &SharedMessage) {
        match message.role {
            Role::Tool => {
                let kept = matching_results(message, &mut self.open);
                self.out.extend(kept);
            }
            Role::System | Role::User | Role::Assistant => {
                close(&mut self.out, std::mem::take(&mut self.open));
                self.open = message.tool_calls().cloned().collect();
                self.out.push(message.clone());
            }
        }
    }

    /// The messages to send: the same as [`messages`] of everything that was added.
    #[must_use]
    pub fn messages(&self) -> Vec<SharedMessage> {
        let mut out = Vec::with_capacity(self.out.len() + self.open.len());
        out.extend_from_slice(&self.out);
        close(&mut out, self.open.clone());
        out
    }
}

impl<'a> Extend<&'a SharedMessage> for PairedHistory {
    fn extend<T: IntoIterator<Item = &'a SharedMessage>>(&mut self, history: T) {
        history.into_iter().for_each(|message| self.add(message));
    }
}

/// The tool message without results that have no open call. `None` if nothing is left.
fn matching_results(message: &SharedMessage, open: &mut Vec<ToolCall>) -> Option<SharedMessage> {
    let mut answered = BTreeSet::new();
    let fits = |part: &Part| match part {
        Part::ToolResult(result) => open.iter().any(|call| call.slot == result.slot),
        Part::Text { .. } | Part::Reasoning(_) | Part::Opaque(_) | Part::Image { .. } | Part::ToolCall(_) => {
            false
        }
    };
    let parts: Vec<&Part> = message
        .parts
        .iter()
        .filter(|part| fits(part) && slot(part).is_some_and(|slot| answered.insert(slot)))
        .collect();
    open.retain(|call| !answered.contains(&call.slot));
    match parts.len() {
        0 => None,
        all if all == message.parts.len() => Some(message.clone()),
        _ => {
            let parts = parts.into_iter().cloned().collect();
            Some(Arc::new(Message { role: Role::Tool, parts }))
        }
    }
}

fn slot(part: &Part) -> Option<CallSlot> {
    match part {
        Part::ToolResult(result) => Some(result.slot),
        Part::Text { .. } | Part::Reasoning(_) | Part::Opaque(_) | Part::Image { .. } | Part::ToolCall(_) => {
            None
        }
    }
}

/// Adds a result that says "not completed" for every call without one.
fn close(out: &mut Vec<SharedMessage>, open: Vec<ToolCall>) {
    for call in open {
        let result = ToolResult {
            slot: call.slot,
            provider_id: call.provider_id,
            name: call.name,
            status: ToolStatus::Aborted,
            output: "not completed".to_owned(),
            images: Vec::new(),
            attachments: Attachments::default(),
        };
        out.push(Arc::new(Message { role: Role::Tool, parts: vec![Part::ToolResult(result)] }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(slot: CallSlot) -> ToolCall {
        ToolCall {
            slot,
            provider_id: format!("p{slot}"),
            name: "echo".into(),
            arguments: "{}".into(),
            state: None,
        }
    }

    fn asks(slots: &[CallSlot]) -> SharedMessage {
        let parts = slots.iter().map(|slot| Part::ToolCall(call(*slot))).collect();
        Arc::new(Message { role: Role::Assistant, parts })
    }

    fn result(slot: CallSlot, output: &str) -> SharedMessage {
        let result = ToolResult {
            slot,
            provider_id: format!("p{slot}"),
            name: "echo".into(),
            status: ToolStatus::Succeeded,
            output: output.into(),
            images: vec![],
            attachments: Attachments::default(),
        };
        Arc::new(Message { role: Role::Tool, parts: vec![Part::ToolResult(result)] })
    }

    fn says(role: Role, text: &str) -> SharedMessage {
        Arc::new(Message::text(role, text))
    }

    const A: CallSlot = CallSlot { model_call: 1, position: 0 };
    const B: CallSlot = CallSlot { model_call: 1, position: 1 };

    #[test]
    fn a_paired_history_passes_unchanged() {
        let history = [
            says(Role::User, "hi"),
            asks(&[A, B]),
            result(B, "2"),
            result(A, "1"),
            says(Role::Assistant, "ok"),
        ];
        let sent = messages(&history);
        assert!(sent.iter().zip(&history).all(|(sent, kept)| Arc::ptr_eq(sent, kept)));
        assert_eq!(sent.len(), history.len());
    }

    #[test]
    fn a_call_without_a_result_gets_one_before_anything_else_is_said() {
        let sent = messages(&[asks(&[A, B]), result(A, "1"), says(Role::User, "go on")]);
        let results: Vec<_> = sent[1..3].iter().map(|message| slot(&message.parts[0])).collect();
        assert_eq!(results, [Some(A), Some(B)]);
        assert_eq!(sent[3].role, Role::User);
        assert_eq!(messages(&[asks(&[A])]).len(), 2);
    }

    #[test]
    fn a_result_without_its_call_is_left_out() {
        assert_eq!(messages(&[says(Role::User, "hi"), result(A, "1")]).len(), 1);
        assert_eq!(messages(&[asks(&[A]), result(A, "1"), result(A, "again")]).len(), 2);
    }

    #[test]
    fn a_longer_history_begins_like_the_shorter() {
        let history = [says(Role::User, "hi"), asks(&[A]), result(A, "1"), says(Role::Assistant, "ok")];
        let whole = messages(&history);
        for end in [1, 3, 4] {
            assert_eq!(messages(&history[..end]), whole[..end]);
        }
    }

    #[test]
    fn a_history_that_grows_reads_as_if_read_at_once() {
        let history = [
            result(B, "nobody asked"),
            says(Role::User, "hi"),
            asks(&[A, B]),
            result(A, "1"),
            says(Role::User, "go on"),
            asks(&[A]),
            result(A, "1"),
            result(A, "again"),
            says(Role::Assistant, "ok"),
        ];
        let (mut paired, mut before) = (PairedHistory::default(), Vec::new());
        for (at, message) in history.iter().enumerate() {
            paired.add(message);
            assert_eq!(paired.messages(), messages(&history[..=at]));
            assert!(paired.out.iter().zip(&before).all(|(now, then)| Arc::ptr_eq(now, then)));
            before.clone_from(&paired.out);
        }
    }

    #[test]
    fn long_output_is_cut_at_a_character_and_says_so() {
        let short = result(A, "short");
        assert!(Arc::ptr_eq(&shown(&short), &short));
        let long = result(A, &"ü".repeat(TOOL_RESULT_SHOWN_BYTES_MAX));
        let Part::ToolResult(cut) = &shown(&long).parts[0] else { panic!("still a result") };
        assert!(cut.output.len() < TOOL_RESULT_SHOWN_BYTES_MAX + 64);
        assert!(cut.output.ends_with(&format!("of {} bytes]", 2 * TOOL_RESULT_SHOWN_BYTES_MAX)));
    }
}
