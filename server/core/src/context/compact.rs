//! How a context is made smaller. Every strategy is a function of the entries, but for the words of a summary.
//!
//! **Invariant:** a tool call and its result are shown or hidden together.

use crate::context::view::{compacted, last_compaction};
use crate::entry::{Compaction, Cut, Entry};
use crate::id::EntryNo;
use crate::message::{Message, Part, Role, SharedMessage};

/// Of older tool outputs, what `extract` keeps, in bytes.
const EXTRACTED_OUTPUT_BYTES: u32 = 512;
/// Of the user's last words, what a notice repeats, in bytes.
const QUOTED_BYTES_MAX: usize = 4 * 1024;
/// How often a context is made smaller still before that is given up.
pub const TRIM_LEVELS: u32 = 10;

/// What a compaction is to achieve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompactionGoal {
    /// Messages at the end that are kept as they are, where that can be.
    pub keep_recent: u32,
    /// Messages in all; absent means no bound.
    pub messages: Option<u32>,
    /// Tokens in all; absent means no bound.
    pub tokens: Option<u64>,
}

/// Leaves the oldest messages out.
#[must_use]
pub fn truncate(entries: &[Entry], keep_recent: u32) -> Compaction {
    let strategy = "truncate".to_owned();
    let before = last_compaction(entries).cloned().unwrap_or_default();
    let up_to = boundary(entries, keep_recent);
    if up_to == before.up_to {
        return Compaction { strategy, ..before };
    }
    Compaction { strategy, up_to, summary: notice(entries, up_to), keep_system: true, cut: before.cut }
}

/// Cuts older tool outputs and what is stale; everything that was said stays.
#[must_use]
pub fn extract(entries: &[Entry], keep_recent: u32) -> Compaction {
    let before = last_compaction(entries).cloned().unwrap_or_default();
    let up_to = boundary(entries, keep_recent).max(before.up_to);
    let cut = match &before.cut {
        // What was cut stays cut.
        Some(cut) => Cut {
            up_to: up_to.max(cut.up_to),
            output_bytes: cut.output_bytes.min(EXTRACTED_OUTPUT_BYTES),
            text_bytes: cut.text_bytes,
        },
        None => Cut { up_to, output_bytes: EXTRACTED_OUTPUT_BYTES, text_bytes: None },
    };
    Compaction { strategy: "extract".to_owned(), cut: Some(cut), ..before }
}

/// What a summary is to be written of: the last entry that it stands for, and the messages; `None` where there is
/// nothing to sum up.
#[must_use]
pub fn to_summarize(entries: &[Entry], keep_recent: u32) -> Option<(EntryNo, Vec<SharedMessage>)> {
    let up_to = boundary(entries, keep_recent);
    let before = last_compaction(entries).cloned().unwrap_or_default();
    if up_to <= before.up_to {
        return None;
    }
    let end = usize::try_from(up_to.0).unwrap_or(usize::MAX).min(entries.len());
    Some((up_to, compacted(&entries[..end], &before)))
}

/// A summary in place of the entries that it stands for.
#[must_use]
pub fn summarized(entries: &[Entry], up_to: EntryNo, summary: &str) -> Compaction {
    Compaction {
        strategy: "summarize".to_owned(),
        up_to,
        summary: format!("[Summary of the conversation so far]\n{}", summary.trim()),
        keep_system: true,
        cut: last_compaction(entries).and_then(|before| before.cut.clone()),
    }
}

/// Makes a compaction as hard as its goal demands, and no harder; the hardest there is where nothing achieves it.
#[must_use]
pub fn fit(
    entries: &[Entry],
    compaction: Compaction,
    goal: CompactionGoal,
    tokens: impl Fn(&Message) -> u64,
) -> Compaction {
    let fits = |compaction: &Compaction| {
        let view = compacted(entries, compaction);
        let count = u32::try_from(view.len()).unwrap_or(u32::MAX);
        goal.messages.is_none_or(|max| count <= max)
            && goal.tokens.is_none_or(|max| view.iter().map(|message| tokens(message)).sum::<u64>() <= max)
    };
    let mut candidate = compaction.clone();
    for level in 1..=TRIM_LEVELS {
        if fits(&candidate) {
            return candidate;
        }
        candidate = trimmed(entries, &compaction, goal.keep_recent, level);
    }
    candidate
}

/// The deterministic last resort: keeps less of everything with each level.
#[must_use]
pub fn trim(entries: &[Entry], goal: CompactionGoal, tokens: impl Fn(&Message) -> u64) -> Compaction {
    let first = Compaction { strategy: "trim".to_owned(), ..truncate(entries, goal.keep_recent) };
    fit(entries, first, goal, tokens)
}

/// A compaction with fewer messages, shorter outputs and, from the fourth level on, shorter texts.
fn trimmed(entries: &[Entry], base: &Compaction, keep_recent: u32, level: u32) -> Compaction {
    let keep = keep_recent.checked_shr(level.saturating_sub(1)).unwrap_or(0).max(1);
    let up_to = boundary(entries, keep).max(base.up_to);
    let text_bytes =
        (level >= 4).then(|| (256 * 1024_u32).checked_shr(2 * (level - 4)).unwrap_or(0).max(256));
    let cut = Cut {
        up_to: EntryNo(entries.len() as u64),
        output_bytes: (32 * 1024_u32).checked_shr(level).unwrap_or(0).max(128),
        text_bytes,
    };
    let summary = if up_to > base.up_to && !base.summary.is_empty() && base.strategy == "summarize" {
        format!("{}\n\n{}", base.summary, notice(entries, up_to))
    } else if up_to > base.up_to {
        notice(entries, up_to)
    } else {
        base.summary.clone()
    };
    let summary = match text_bytes {
        Some(bytes) => beginning(&summary, usize::try_from(bytes).unwrap_or(usize::MAX)).to_owned(),
        None => summary,
    };
    Compaction {
        strategy: base.strategy.clone(),
        up_to,
        summary,
        // System messages are kept as long as they fit.
        keep_system: base.keep_system && level < 6,
        cut: Some(cut),
    }
}

/// The last entry to hide so that about `keep_recent` messages stay: what stays never begins with a tool's result.
fn boundary(entries: &[Entry], keep_recent: u32) -> EntryNo {
    let begun = last_compaction(entries).map_or(EntryNo(0), |compaction| compaction.up_to);
    let first = usize::try_from(begun.0).unwrap_or(usize::MAX).min(entries.len());
    let messages: Vec<(usize, &SharedMessage)> = entries
        .iter()
        .enumerate()
        .skip(first)
        .filter_map(|(at, entry)| entry.message().map(|message| (at, message)))
        .collect();
    let keep = usize::try_from(keep_recent).unwrap_or(usize::MAX).max(1);
    let Some(wanted) = messages.len().checked_sub(keep).filter(|wanted| *wanted > 0) else { return begun };
    let may_begin = |at: usize| messages[at].1.role != Role::Tool;
    // What stays may begin a little earlier; where that hides nothing, a little later.
    let begin = (1..=wanted)
        .rev()
        .find(|at| may_begin(*at))
        .or_else(|| (wanted..messages.len()).find(|at| may_begin(*at)));
    // The place of an entry is one more than its index: what is before index `at` ends with entry `at`.
    begin.map_or(begun, |at| EntryNo(messages[at].0 as u64))
}

/// What the model reads in place of hidden entries: that they are hidden, and what the user wanted last, if that is
/// among them.
fn notice(entries: &[Entry], up_to: EntryNo) -> String {
    if up_to.0 == 0 {
        return String::new();
    }
    let end = usize::try_from(up_to.0).unwrap_or(usize::MAX).min(entries.len());
    let (hidden, shown) = entries.split_at(end);
    let said = |entry: &Entry| {
        entry.message().filter(|message| message.role == Role::User).map(|message| text_of(message))
    };
    let notice = "[Earlier messages of this conversation are left out.]".to_owned();
    if shown.iter().any(|entry| said(entry).is_some()) {
        return notice;
    }
    match hidden.iter().rev().find_map(said).filter(|text| !text.is_empty()) {
        Some(text) => {
            format!("{notice}\nThe user's last message was:\n{}", beginning(&text, QUOTED_BYTES_MAX))
        }
        None => notice,
    }
}

fn text_of(message: &Message) -> String {
    let texts: Vec<&str> = message
        .parts
        .iter()
        .filter_map(|part| match part {
            Part::Text { text, .. } => Some(text.as_str()),
            Part::Reasoning(_)
            | Part::Opaque(_)
            | Part::Image { .. }
            | Part::ToolCall(_)
            | Part::ToolResult(_) => None,
        })
        .collect();
    texts.join("\n")
}

fn beginning(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}
