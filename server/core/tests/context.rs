//! The context that a model is shown, of any session, however often it was made smaller.

use std::sync::Arc;

use agentloop_core::context::build::messages;
use agentloop_core::context::compact::{
    CompactionGoal, extract, fit, summarized, to_summarize, trim, truncate,
};
use agentloop_core::context::view::{compacted, last_compaction, view};
use agentloop_core::entry::{Compaction, Entry};
use agentloop_core::id::CallSlot;
use agentloop_core::message::{
    Message, Part, Reasoning, Role, SharedMessage, ToolCall, ToolResult, ToolStatus,
};

const SESSIONS: u64 = 300;

/// A small generator of chance: xorshift.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

fn said(role: Role, text: String) -> Entry {
    Entry::Message(Arc::new(Message::text(role, text)))
}

/// A round of tool calls with its results, in the order in which they came.
fn round(random: &mut Random, number: u32, entries: &mut Vec<Entry>) {
    let count = 1 + random.below(4) as u32;
    let call = |index: u32| ToolCall {
        slot: CallSlot::from((number, index)),
        provider_id: format!("c{index}"),
        name: "look".to_owned(),
        arguments: format!("{{\"at\":{}}}", index % 2),
        state: None,
    };
    let mut parts = vec![Part::Reasoning(Reasoning { text: "hm".to_owned(), ..Reasoning::default() })];
    parts.extend((0..count).map(|index| Part::ToolCall(call(index))));
    entries.push(Entry::Message(Arc::new(Message { role: Role::Assistant, parts })));
    let first = random.below(u64::from(count)) as u32;
    for index in (0..count).map(|index| (index + first) % count) {
        let result = ToolResult {
            slot: CallSlot::from((number, index)),
            provider_id: format!("c{index}"),
            name: "look".to_owned(),
            status: ToolStatus::Succeeded,
            output: "ö".repeat(random.below(3_000) as usize),
            images: Vec::new(),
            attachments: Default::default(),
        };
        entries.push(Entry::Message(Arc::new(Message {
            role: Role::Tool,
            parts: vec![Part::ToolResult(result)],
        })));
    }
}

/// A session of several runs, made smaller now and then where a run would: before a model call.
fn session(random: &mut Random) -> Vec<Entry> {
    let mut entries = Vec::new();
    if random.below(3) == 0 {
        entries.push(said(Role::System, "be kind".to_owned()));
    }
    for _run in 0..1 + random.below(4) {
        entries.push(said(Role::User, "ü".repeat(1 + random.below(400) as usize)));
        for number in 1..=random.below(5) as u32 {
            round(random, number, &mut entries);
            if random.below(4) == 0 {
                let compaction = some_compaction(random, &entries);
                entries.push(Entry::Compaction(Arc::new(compaction)));
            }
        }
        entries.push(said(Role::Assistant, "so it is".to_owned()));
    }
    entries
}

fn some_compaction(random: &mut Random, entries: &[Entry]) -> Compaction {
    let keep = 1 + random.below(12) as u32;
    let goal = some_goal(random, keep);
    match random.below(5) {
        0 => truncate(entries, keep),
        1 => extract(entries, keep),
        2 => match to_summarize(entries, keep) {
            Some((up_to, _)) => summarized(entries, up_to, "they talked"),
            None => truncate(entries, keep),
        },
        3 => fit(entries, extract(entries, keep), goal, tokens),
        _ => trim(entries, goal, tokens),
    }
}

fn some_goal(random: &mut Random, keep_recent: u32) -> CompactionGoal {
    CompactionGoal {
        keep_recent,
        messages: (random.below(2) == 0).then(|| 2 + random.below(20) as u32),
        tokens: Some(20 + random.below(4_000)),
    }
}

fn tokens(message: &Message) -> u64 {
    size(message) as u64 / 4 + 4
}

fn size(message: &Message) -> usize {
    message
        .parts
        .iter()
        .map(|part| match part {
            Part::Text { text, .. } => text.len(),
            Part::Reasoning(reasoning) => reasoning.text.len(),
            Part::Opaque(state) => state.size(),
            Part::Image { .. } => 1_000,
            Part::ToolCall(call) => call.name.len() + call.arguments.len(),
            Part::ToolResult(result) => result.output.len(),
        })
        .sum()
}

fn total(messages: &[SharedMessage]) -> u64 {
    messages.iter().map(|message| tokens(message)).sum()
}

#[test]
fn calls_and_results_are_shown_together_or_not_at_all() {
    for seed in 1..=SESSIONS {
        let entries = session(&mut Random::new(seed));
        let shown = view(&entries);
        assert_eq!(messages(&shown), shown, "seed {seed}");
        assert!(shown.iter().all(|message| !message.parts.is_empty()), "seed {seed}");
    }
}

#[test]
fn the_same_entries_read_the_same() {
    for seed in 1..=50 {
        let (once, again) = (session(&mut Random::new(seed)), session(&mut Random::new(seed)));
        assert_eq!(view(&once), view(&again), "seed {seed}");
    }
}

#[test]
fn between_compactions_a_longer_session_begins_like_a_shorter() {
    for seed in 1..=SESSIONS {
        let entries = session(&mut Random::new(seed));
        for end in 1..entries.len() {
            if matches!(entries[end], Entry::Compaction(_)) {
                continue;
            }
            let (shorter, longer) = (view(&entries[..end]), view(&entries[..=end]));
            assert_eq!(longer[..shorter.len()], shorter, "seed {seed}, entry {end}");
            assert_eq!(longer.len(), shorter.len() + 1, "seed {seed}, entry {end}");
        }
    }
}

#[test]
fn every_strategy_keeps_pairs_and_what_is_recent() {
    for seed in 1..=SESSIONS {
        let mut random = Random::new(seed);
        let entries = session(&mut random);
        let all = view(&entries);
        let keep = 1 + random.below(8) as usize;
        for compaction in [truncate(&entries, keep as u32), extract(&entries, keep as u32)] {
            let shown = compacted(&entries, &compaction);
            assert_eq!(messages(&shown), shown, "seed {seed}: {compaction:?}");
            let kept = keep.min(all.len());
            let begins_with_result = all[all.len() - kept].role == Role::Tool;
            // A text that was cut before may be cut shorter.
            let was_cut = last_compaction(&entries).is_some_and(|before| before.cut.is_some());
            if !begins_with_result && !was_cut {
                assert!(shown.ends_with(&all[all.len() - kept..]), "seed {seed}: {compaction:?}");
            }
            assert!(total(&shown) <= total(&all) + 1_100, "a notice is all that is added");
        }
    }
}

#[test]
fn trimming_reaches_any_goal_that_can_be_reached() {
    for seed in 1..=SESSIONS {
        let mut random = Random::new(seed);
        let entries = session(&mut random);
        let goal = CompactionGoal { keep_recent: 8, messages: None, tokens: Some(1_000) };
        let compaction = trim(&entries, goal, tokens);
        let shown = compacted(&entries, &compaction);
        assert_eq!(messages(&shown), shown, "seed {seed}");
        assert!(total(&shown) <= 1_000, "seed {seed}: {} tokens, {compaction:?}", total(&shown));
    }
}

#[test]
fn a_goal_that_is_met_changes_nothing() {
    let entries = session(&mut Random::new(7));
    let base = truncate(&entries, 6);
    let goal = CompactionGoal { keep_recent: 6, messages: None, tokens: Some(1_000_000) };
    assert_eq!(fit(&entries, base.clone(), goal, tokens), base);
}

#[test]
fn one_giant_message_is_cut_with_a_word_on_it() {
    let entries = vec![said(Role::User, "x".repeat(1_000_000))];
    let goal = CompactionGoal { keep_recent: 8, messages: None, tokens: Some(500) };
    let shown = compacted(&entries, &trim(&entries, goal, tokens));
    assert!(total(&shown) <= 500, "{}", total(&shown));
    assert!(shown[0].plain_text().contains("of 1000000 bytes]"));
}

#[test]
fn the_users_last_words_survive_their_message() {
    let mut entries = vec![said(Role::User, "find the leak".to_owned())];
    let mut random = Random::new(3);
    for number in 1..=20 {
        round(&mut random, number, &mut entries);
    }
    let shown = compacted(&entries, &truncate(&entries, 4));
    assert_eq!(shown[0].role, Role::User);
    assert!(shown[0].plain_text().ends_with("The user's last message was:\nfind the leak"));
    assert!(shown.len() < 12);
}

#[test]
fn a_system_message_outlives_what_surrounds_it() {
    let mut entries = vec![said(Role::System, "be kind".to_owned()), said(Role::User, "hello".to_owned())];
    for _ in 0..10 {
        entries.push(said(Role::Assistant, "hello".to_owned()));
        entries.push(said(Role::User, "and now?".to_owned()));
    }
    let shown = compacted(&entries, &truncate(&entries, 4));
    assert_eq!(shown[0].plain_text(), "be kind");
    assert_eq!(shown.len(), 2 + 4);
}

#[test]
fn what_was_asked_again_is_stale() {
    let mut entries = vec![said(Role::User, "watch it".to_owned())];
    let mut random = Random::new(9);
    for number in 1..=6 {
        round(&mut random, number, &mut entries);
    }
    let shown = compacted(&entries, &extract(&entries, 2));
    let outputs: Vec<&str> = shown
        .iter()
        .flat_map(|message| &message.parts)
        .filter_map(|part| match part {
            Part::ToolResult(result) => Some(result.output.as_str()),
            _ => None,
        })
        .collect();
    assert!(outputs[0].contains("made again later"), "{outputs:?}");
    assert!(outputs.iter().rev().take(1).all(|output| !output.contains("made again later")));
    let thoughts = |message: &SharedMessage| {
        message.parts.iter().filter(|part| matches!(part, Part::Reasoning(_))).count()
    };
    assert_eq!(thoughts(&shown[1]), 0, "old thoughts are left out");
}

#[test]
fn an_extract_that_leaves_messages_out_is_called_trimming() {
    let entries: Vec<Entry> = (0..20).map(|at| said(Role::User, format!("message {at}"))).collect();
    let goal = |messages| CompactionGoal { keep_recent: 4, messages: Some(messages), tokens: None };
    let strategy = |messages| fit(&entries, extract(&entries, 4), goal(messages), tokens).strategy;
    assert_eq!((strategy(20).as_str(), strategy(6).as_str()), ("extract", "trim"));
}
