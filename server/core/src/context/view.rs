//! The messages of a session that the model reads, with its last compaction applied.
//!
//! **Invariant:** a function of the entries alone. Between two compactions, the view of a longer session begins with the
//! view of a shorter one, so that provider caches stay valid.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::entry::{Compaction, Cut, Entry};
use crate::id::{CallSlot, EntryNo};
use crate::message::{Attachments, Message, Part, Role, SharedMessage, ToolResult};
use crate::tool::Digest;

/// Replaces a result whose call was repeated later.
const STALE: &str = "[left out: the same call was made again later]";

/// The messages that the model reads, oldest first.
#[must_use]
pub fn view(entries: &[Entry]) -> Vec<SharedMessage> {
    match last_compaction(entries) {
        None => entries.iter().filter_map(Entry::message).cloned().collect(),
        Some(compaction) => compacted(entries, compaction),
    }
}

/// The last compaction, which is the only one that applies.
#[must_use]
pub fn last_compaction(entries: &[Entry]) -> Option<&Compaction> {
    entries.iter().rev().find_map(|entry| match entry {
        Entry::Compaction(compaction) => Some(&**compaction),
        Entry::Message(_) => None,
    })
}

/// The messages with this compaction applied. Compactions among the entries are ignored.
#[must_use]
pub fn compacted(entries: &[Entry], compaction: &Compaction) -> Vec<SharedMessage> {
    let (hidden, shown) = entries.split_at(index_after(entries, compaction.up_to));
    let is_system = |message: &&SharedMessage| compaction.keep_system && message.role == Role::System;
    let mut out: Vec<SharedMessage> =
        hidden.iter().filter_map(Entry::message).filter(is_system).cloned().collect();
    if !compaction.summary.is_empty() {
        out.push(Arc::new(Message::text(Role::User, compaction.summary.clone())));
    }
    match &compaction.cut {
        None => out.extend(shown.iter().filter_map(Entry::message).cloned()),
        Some(cut) => {
            let cut_count = index_after(entries, cut.up_to).saturating_sub(hidden.len()).min(shown.len());
            let (old, recent) = shown.split_at(cut_count);
            // Only old entries are looked at: a later entry must not change how earlier ones read.
            let stale = stale_results(old);
            out.extend(old.iter().enumerate().filter_map(|(at, entry)| {
                let message =
                    shortened(entry.message()?, cut, |part| stale.contains(&PartPlace { entry: at, part }));
                // A message that had only reasoning is empty now.
                (!message.parts.is_empty()).then_some(message)
            }));
            out.extend(recent.iter().filter_map(Entry::message).cloned());
        }
    }
    out
}

/// Number of entries up to this one, and so the index of the entry after it.
fn index_after(entries: &[Entry], entry: EntryNo) -> usize {
    usize::try_from(entry.0).unwrap_or(usize::MAX).min(entries.len())
}

/// The place of a part among some entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct PartPlace {
    /// Index of the entry.
    entry: usize,
    /// Index of the part in the entry's message.
    part: usize,
}

/// Results whose call was repeated later with the same arguments.
fn stale_results(entries: &[Entry]) -> BTreeSet<PartPlace> {
    let mut open: BTreeMap<CallSlot, Digest> = BTreeMap::new();
    let mut last: BTreeMap<Digest, PartPlace> = BTreeMap::new();
    let mut stale = BTreeSet::new();
    let messages =
        entries.iter().enumerate().filter_map(|(at, entry)| entry.message().map(|message| (at, message)));
    for (at, message) in messages {
        if message.role != Role::Tool {
            // The same slot in another run is another call.
            open = message
                .tool_calls()
                .map(|call| (call.slot, Digest::of(&[call.name.as_bytes(), call.arguments.as_bytes()])))
                .collect();
        }
        for (at_part, part) in message.parts.iter().enumerate() {
            if let Part::ToolResult(result) = part
                && let Some(call) = open.get(&result.slot)
            {
                stale.extend(last.insert(call.clone(), PartPlace { entry: at, part: at_part }));
            }
        }
    }
    stale
}

fn shortened(message: &SharedMessage, cut: &Cut, is_stale: impl Fn(usize) -> bool) -> SharedMessage {
    let parts = message.parts.iter().enumerate();
    let parts = parts.filter_map(|(at, part)| shorter(part, cut, is_stale(at))).collect();
    Arc::new(Message { role: message.role, parts })
}

/// The part with its texts cut. `None` for reasoning and for parts that only a provider reads.
///
/// A text loses its provider's state, which belongs to the uncut text. A call is not changed and keeps its state.
fn shorter(part: &Part, cut: &Cut, is_stale: bool) -> Option<Part> {
    Some(match part {
        Part::Reasoning(_) | Part::Opaque(_) => return None,
        Part::Text { text, state: Some(_) } if text.is_empty() => return None,
        Part::Text { text, .. } => Part::text(short(text, cut.text_bytes)),
        Part::Image { .. } if cut.text_bytes.is_some() => Part::text("[image left out]"),
        Part::Image { .. } | Part::ToolCall(_) => part.clone(),
        Part::ToolResult(result) => {
            let output = if is_stale {
                STALE.to_owned()
            } else {
                short(&result.text_for_model(), Some(cut.output_bytes))
            };
            let (images, attachments) = (Vec::new(), Attachments::default());
            Part::ToolResult(ToolResult { output, images, attachments, ..result.clone() })
        }
    })
}

/// The beginning of a text, with a notice of the cut.
fn short(text: &str, bytes: Option<u32>) -> String {
    let Some(bytes) = bytes.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX)) else {
        return text.to_owned();
    };
    // The cut text must be shorter, with its notice, than the whole one.
    const NOTICE: usize = 48;
    if text.len() <= bytes.saturating_add(NOTICE) {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(bytes);
    format!("{}\n[cut: the first {end} of {} bytes]", &text[..end], text.len())
}
