//! Compaction strategies: truncate, extract, summarize, trim. Each is a function of the entries, except for the text of a
//! summary, which a model writes.
//!
//! **Invariant:** a tool call and its result are shown or hidden together.

use crate::context::view::{compacted, last_compaction};
use crate::entry::{Compaction, Cut, Entry};
use crate::id::EntryNo;
use crate::message::{Message, Part, Role, SharedMessage};

/// Bytes that `extract` keeps of an older tool output.
const EXTRACTED_OUTPUT_BYTES: u32 = 512;
/// Most bytes of the user's last message that a notice quotes.
const QUOTED_BYTES_MAX: usize = 4 * 1024;
/// Number of trim levels. After the last one a context that is still too large stays so.
pub const TRIM_LEVELS: u32 = 10;

/// The size that a compaction is to reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompactionGoal {
    /// Messages at the end to keep unchanged, if the bounds allow it.
    pub keep_recent: u32,
    /// Most messages in all; absent means no bound.
    pub messages: Option<u32>,
    /// Most tokens in all; absent means no bound.
    pub tokens: Option<u64>,
}

/// Hides the oldest messages.
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

/// Cuts older tool outputs and drops stale ones. All other texts stay.
#[must_use]
pub fn extract(entries: &[Entry], keep_recent: u32) -> Compaction {
    let before = last_compaction(entries).cloned().unwrap_or_default();
    let up_to = boundary(entries, keep_recent).max(before.up_to);
    let cut = match &before.cut {
        // Earlier cuts stay.
        Some(cut) => Cut {
            up_to: up_to.max(cut.up_to),
            output_bytes: cut.output_bytes.min(EXTRACTED_OUTPUT_BYTES),
            text_bytes: cut.text_bytes,
        },
        None => Cut { up_to, output_bytes: EXTRACTED_OUTPUT_BYTES, text_bytes: None },
    };
    Compaction { strategy: "extract".to_owned(), cut: Some(cut), ..before }
}

/// The part of a session to summarize: its last entry, and its messages. `None` if there is nothing to summarize.
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

/// The compaction that shows a summary in place of the entries up to `up_to`.
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

/// Trims a compaction level by level until it reaches the goal. If no level reaches it, returns the last one.
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

/// The deterministic last resort, for example after a failed summary: keeps less of everything with each level.
#[must_use]
pub fn trim(entries: &[Entry], goal: CompactionGoal, tokens: impl Fn(&Message) -> u64) -> Compaction {
    let first = Compaction { strategy: "trim".to_owned(), ..truncate(entries, goal.keep_recent) };
    fit(entries, first, goal, tokens)
}

/// The compaction at a trim level: fewer messages, shorter outputs and, from level 4 on, shorter texts.
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
    // A result that leaves messages out is no longer an `extract`, which keeps every word of users and models.
    let leaves_out = base.strategy == "extract" && up_to > base.up_to;
    Compaction {
        strategy: if leaves_out { "trim".to_owned() } else { base.strategy.clone() },
        up_to,
        summary,
        // System messages are hidden from level 6 on.
        keep_system: base.keep_system && level < 6,
        cut: Some(cut),
    }
}

/// The last entry to hide, so that about `keep_recent` messages stay. The first message that stays is never a tool result.
fn boundary(entries: &[Entry], keep_recent: u32) -> EntryNo {
    let already_hidden = last_compaction(entries).map_or(EntryNo(0), |compaction| compaction.up_to);
    let first = usize::try_from(already_hidden.0).unwrap_or(usize::MAX).min(entries.len());
    let messages: Vec<(usize, &SharedMessage)> = entries
        .iter()
        .enumerate()
        .skip(first)
        .filter_map(|(at, entry)| entry.message().map(|message| (at, message)))
        .collect();
    let keep = usize::try_from(keep_recent).unwrap_or(usize::MAX).max(1);
    let Some(wanted) = messages.len().checked_sub(keep).filter(|wanted| *wanted > 0) else {
        return already_hidden;
    };
    let may_begin = |at: usize| messages[at].1.role != Role::Tool;
    // Keep a little more than requested; if that would hide nothing, keep a little less.
    let begin = (1..=wanted)
        .rev()
        .find(|at| may_begin(*at))
        .or_else(|| (wanted..messages.len()).find(|at| may_begin(*at)));
    // Entry numbers are one more than indexes: the entries before index `at` end with entry number `at`.
    begin.map_or(already_hidden, |at| EntryNo(messages[at].0 as u64))
}

/// The notice that the model reads in place of hidden entries. If no user message is left, it quotes the last one.
fn notice(entries: &[Entry], up_to: EntryNo) -> String {
    if up_to.0 == 0 {
        return String::new();
    }
    let end = usize::try_from(up_to.0).unwrap_or(usize::MAX).min(entries.len());
    let (hidden, shown) = entries.split_at(end);
    let user_text = |entry: &Entry| {
        entry.message().filter(|message| message.role == Role::User).map(|message| text_of(message))
    };
    let notice = "[Earlier messages of this conversation are left out.]".to_owned();
    if shown.iter().any(|entry| user_text(entry).is_some()) {
        return notice;
    }
    match hidden.iter().rev().find_map(user_text).filter(|text| !text.is_empty()) {
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
