//! A model is shown a history that fits together, also of one that no loop would write.

use std::collections::BTreeSet;
use std::sync::Arc;

use agentloop_core::context::build::{is_cut, messages, shown};
use agentloop_core::context::compact::{extract, truncate};
use agentloop_core::context::view::{compacted, view};
use agentloop_core::entry::Entry;
use agentloop_core::id::CallSlot;
use agentloop_core::limits::TOOL_RESULT_SHOWN_BYTES_MAX;
use agentloop_core::message::{Message, Part, Role, SharedMessage, ToolCall, ToolResult, ToolStatus};

#[path = "machine/support/random.rs"]
mod random;

use random::Random;

const HISTORIES: u64 = 3_000;

fn slot(random: &mut Random) -> CallSlot {
    CallSlot::from((random.below(3) as u32, random.below(3) as u32))
}

fn result(slot: CallSlot, output: String) -> Part {
    let (provider_id, name) = (format!("p{slot}"), "look".to_owned());
    let status = ToolStatus::Succeeded;
    Part::ToolResult(ToolResult {
        slot,
        provider_id,
        name,
        status,
        output,
        images: Vec::new(),
        attachments: Default::default(),
    })
}

/// Calls without results, results without calls, twice, late, or several in a message.
fn history(random: &mut Random) -> Vec<SharedMessage> {
    let some = |random: &mut Random| {
        let text = |role| Message::text(role, "ü");
        match random.below(8) {
            0 => text(Role::System),
            1 => text(Role::User),
            2 => text(Role::Assistant),
            3 | 4 => {
                let slots: BTreeSet<CallSlot> = (0..1 + random.below(3)).map(|_| slot(random)).collect();
                let call = |slot| ToolCall {
                    slot,
                    provider_id: format!("p{slot}"),
                    name: "look".to_owned(),
                    arguments: "{}".to_owned(),
                    state: None,
                };
                let parts = slots.into_iter().map(|slot| Part::ToolCall(call(slot))).collect();
                Message { role: Role::Assistant, parts }
            }
            _ => {
                let several = 1 + random.below(4);
                let count = random.maybe(several).unwrap_or(1);
                let mut part = || {
                    let slot = slot(random);
                    result(slot, random.next().to_string())
                };
                Message { role: Role::Tool, parts: (0..count).map(|_| part()).collect() }
            }
        }
    };
    (0..random.below(25)).map(|_| Arc::new(some(random))).collect()
}

/// Every call has one result before anybody else speaks, and nothing else has one.
fn fits_together(messages: &[SharedMessage]) -> Result<(), String> {
    let mut open: BTreeSet<CallSlot> = BTreeSet::new();
    for message in messages {
        if message.role != Role::Tool && !open.is_empty() {
            return Err(format!("{open:?} are left open"));
        }
        if message.parts.is_empty() {
            return Err("a message says nothing".to_owned());
        }
        for part in &message.parts {
            match part {
                Part::ToolCall(call) if !open.insert(call.slot) => {
                    return Err(format!("{} twice", call.slot));
                }
                Part::ToolResult(result) if !open.remove(&result.slot) => {
                    return Err(format!("nobody asked for {}", result.slot));
                }
                _ => {}
            }
        }
    }
    if open.is_empty() { Ok(()) } else { Err(format!("{open:?} are left open")) }
}

fn spoken(messages: &[SharedMessage]) -> Vec<&SharedMessage> {
    messages.iter().filter(|message| message.role != Role::Tool).collect()
}

#[test]
fn whatever_the_history_calls_and_results_are_paired() {
    let mut broken = 0;
    for seed in 0..HISTORIES {
        let history = history(&mut Random::new(seed));
        broken += u32::from(fits_together(&history).is_err());
        let sent = messages(&history);
        fits_together(&sent).unwrap_or_else(|problem| panic!("seed {seed}: {problem}"));
        assert_eq!(messages(&sent), sent, "seed {seed}: it is repaired once");
        assert_eq!(spoken(&sent), spoken(&history), "seed {seed}: nobody's words are lost, moved or made up");
    }
    assert!(broken > HISTORIES as u32 / 2, "most of them need it: {broken}");
}

/// A result that answers an open call is shown as it is; nothing else is, but for a word that there is none.
#[test]
fn results_are_what_hosts_said_or_that_there_is_none() {
    for seed in 0..HISTORIES {
        let history = history(&mut Random::new(seed));
        let outputs = |messages: &[SharedMessage]| -> Vec<ToolResult> {
            let parts = messages.iter().flat_map(|message| message.parts.clone());
            parts
                .filter_map(|part| match part {
                    Part::ToolResult(result) => Some(result),
                    _ => None,
                })
                .collect()
        };
        let (said, sent) = (outputs(&history), outputs(&messages(&history)));
        let (made_up, kept): (Vec<_>, Vec<_>) =
            sent.into_iter().partition(|result| result.status == ToolStatus::Aborted);
        assert!(made_up.iter().all(|result| result.output == "not completed"), "seed {seed}");
        let mut rest = said.iter();
        assert!(kept.iter().all(|kept| rest.any(|said| said == kept)), "seed {seed}: in their order");
    }
}

/// Strategies that hide messages keep what fits together fitting together, wherever they are asked to cut.
#[test]
fn wherever_it_is_cut_pairs_stay_whole() {
    for seed in 0..HISTORIES {
        let history = messages(&history(&mut Random::new(seed)));
        let entries: Vec<Entry> = history.iter().cloned().map(Entry::Message).collect();
        assert_eq!(view(&entries), history, "seed {seed}");
        for keep in 0..=history.len() as u32 + 1 {
            for compaction in [truncate(&entries, keep), extract(&entries, keep)] {
                let shown = compacted(&entries, &compaction);
                fits_together(&shown).unwrap_or_else(|problem| panic!("seed {seed}, {keep}: {problem}"));
                assert_eq!(shown, compacted(&entries, &compaction), "seed {seed}");
            }
        }
    }
}

#[test]
fn outputs_are_shown_within_their_bound() {
    let mut random = Random::new(5);
    for extra in 0..200 {
        let letter = random.pick(&["a", "ß", "東", "🚀"]);
        let length = TOOL_RESULT_SHOWN_BYTES_MAX - 100 + extra;
        let whole = letter.repeat(length / letter.len() + 1);
        let parts = vec![
            result(CallSlot::from((1, 0)), whole.clone()),
            result(CallSlot::from((1, 1)), whole.clone()),
        ];
        let message = Arc::new(Message { role: Role::Tool, parts });
        let cut = shown(&message);
        assert_eq!(is_cut(&message), whole.len() > TOOL_RESULT_SHOWN_BYTES_MAX, "{} bytes", whole.len());
        for part in &cut.parts {
            let Part::ToolResult(result) = part else { panic!("still a result") };
            let said = result.output.split("\n[cut").next().unwrap_or_default();
            assert!(said.len() <= TOOL_RESULT_SHOWN_BYTES_MAX && whole.starts_with(said), "{letter}");
            assert!(
                said.len() + 4 > TOOL_RESULT_SHOWN_BYTES_MAX.min(whole.len()),
                "no more is cut than must be"
            );
        }
    }
}
