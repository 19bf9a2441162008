//! What the model is shown of a session: its messages as its last compaction says. A function of the entries alone, so
//! that the same entries read the same; between two compactions a longer session begins like a shorter one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::entry::{Compaction, Cut, Entry};
use crate::id::{CallSlot, EntryNo};
use crate::message::{Message, Part, Role, SharedMessage, ToolResult};
use crate::tool::Digest;

/// Put in place of a result whose call was made again later.
const STALE: &str = "[left out: the same call was made again later]";

/// The messages to show, oldest first.
#[must_use]
pub fn view(entries: &[Entry]) -> Vec<SharedMessage> {
    match last_compaction(entries) {
        None => entries.iter().filter_map(Entry::message).cloned().collect(),
        Some(compaction) => compacted(entries, compaction),
    }
}

/// The compaction that counts.
#[must_use]
pub fn last_compaction(entries: &[Entry]) -> Option<&Compaction> {
    entries.iter().rev().find_map(|entry| match entry {
        Entry::Compaction(compaction) => Some(&**compaction),
        Entry::Message(_) => None,
    })
}

/// The messages as this compaction shows them, whichever compactions are among the entries.
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
            let whole = index_after(entries, cut.up_to).saturating_sub(hidden.len()).min(shown.len());
            let (old, recent) = shown.split_at(whole);
            // What comes later must not change how the past reads.
            let stale = stale_results(old);
            out.extend(old.iter().enumerate().filter_map(|(at, entry)| {
                let message = shortened(entry.message()?, cut, |part| stale.contains(&(at, part)));
                // A message of nothing but old thoughts says nothing.
                (!message.parts.is_empty()).then_some(message)
            }));
            out.extend(recent.iter().filter_map(Entry::message).cloned());
        }
    }
    out
}

/// How many entries there are up to this one.
fn index_after(entries: &[Entry], entry: EntryNo) -> usize {
    usize::try_from(entry.0).unwrap_or(usize::MAX).min(entries.len())
}

/// The places (entry, part) of results whose call was made again later with the same arguments.
fn stale_results(entries: &[Entry]) -> BTreeSet<(usize, usize)> {
    let mut open: BTreeMap<CallSlot, Digest> = BTreeMap::new();
    let mut last: BTreeMap<Digest, (usize, usize)> = BTreeMap::new();
    let mut stale = BTreeSet::new();
    let messages =
        entries.iter().enumerate().filter_map(|(at, entry)| entry.message().map(|said| (at, said)));
    for (at, message) in messages {
        if message.role != Role::Tool {
            // Slots are of one run; those of an earlier one mean other calls.
            open = message
                .tool_calls()
                .map(|call| (call.slot, Digest::of(&[call.name.as_bytes(), call.arguments.as_bytes()])))
                .collect();
        }
        for (part_at, part) in message.parts.iter().enumerate() {
            if let Part::ToolResult(result) = part
                && let Some(call) = open.get(&result.slot)
            {
                stale.extend(last.insert(call.clone(), (at, part_at)));
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

/// The part, cut; `None` for what the model can do without: old thoughts, and what only a provider reads. A text loses
/// its provider's state, which is about the text as it was; a call is not changed and keeps it.
fn shorter(part: &Part, cut: &Cut, is_stale: bool) -> Option<Part> {
    Some(match part {
        Part::Reasoning(_) | Part::Opaque(_) => return None,
        Part::Text { text, state: Some(_) } if text.is_empty() => return None,
        Part::Text { text, .. } => Part::text(short(text, cut.text_bytes)),
        Part::Image { .. } if cut.text_bytes.is_some() => Part::text("[image left out]"),
        Part::Image { .. } | Part::ToolCall(_) => part.clone(),
        Part::ToolResult(result) => {
            let output =
                if is_stale { STALE.to_owned() } else { short(&result.output, Some(cut.output_bytes)) };
            Part::ToolResult(ToolResult { output, images: Vec::new(), ..result.clone() })
        }
    })
}

/// The beginning of a text, with a word on what is missing.
fn short(text: &str, bytes: Option<u32>) -> String {
    let Some(bytes) = bytes.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX)) else {
        return text.to_owned();
    };
    // Cutting must make it shorter, the word on it included.
    const NOTICE: usize = 48;
    if text.len() <= bytes.saturating_add(NOTICE) {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(bytes);
    format!("{}\n[cut: the first {end} of {} bytes]", &text[..end], text.len())
}
