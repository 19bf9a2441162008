//! An answer is the same message however its provider cuts it, mixes its parallel calls, and however often a delta
//! comes; whatever comes, what is put together keeps its bounds.

use std::collections::{BTreeMap, BTreeSet};

use agentloop_core::context::assemble::{AssembleError, AssembledMessage, Assembler, CUT_OFF_ARGUMENTS};
use agentloop_core::id::CallSlot;
use agentloop_core::limits::{CALLS_PER_MESSAGE_MAX, MODEL_MESSAGE_BYTES_MAX, PARTS_PER_MESSAGE_MAX};
use agentloop_core::message::{FinishReason, Message, Part, ProviderState, Reasoning, Role, ToolCall, Usage};
use agentloop_core::model::delta::Delta;

#[path = "machine/support/random.rs"]
mod random;

use random::Random;

const ANSWERS: u64 = 500;
const MODEL_CALL: u32 = 7;

/// Letters of one to four bytes, and what JSON escapes.
const LETTERS: [&str; 10] = ["a", "{", "\"", "\\", "\n", "ß", "東", "☂\u{fe0f}", "👩\u{200d}🚀", "\u{0}"];

fn words(random: &mut Random, most: u64) -> String {
    (0..=random.below(most)).map(|_| random.pick(&LETTERS)).collect()
}

fn state(random: &mut Random) -> ProviderState {
    ProviderState { provider: "p".to_owned(), family: "m".to_owned(), data: words(random, 8) }
}

/// The parts of an answer, as a model means it: neighbours of one kind would be one part.
fn meant(random: &mut Random) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    let mut calls = 0;
    for _ in 0..random.below(7) {
        match (random.below(3), parts.last()) {
            (0, Some(Part::Text { state: None, .. })) => {}
            (0, _) => {
                let text = words(random, 30);
                let state = random.one_in(3).then(|| state(random));
                parts.push(Part::Text { text, state });
            }
            (1, _) => {
                let (text, signature) = (words(random, 20), words(random, 4));
                let redacted = words(random, 4);
                let redacted = random.maybe(redacted);
                let state = random.one_in(3).then(|| state(random));
                let signature = Some(signature);
                parts.push(Part::Reasoning(Reasoning { text, signature, redacted, state }));
                if random.one_in(4) {
                    parts.push(Part::Opaque(self::state(random)));
                }
            }
            _ => {
                for _ in 0..random.below(4) {
                    let provider_id = format!("id-{calls}");
                    let arguments = format!("{{{}}}", words(random, 30));
                    let slot = CallSlot::from((MODEL_CALL, calls));
                    let name = format!("tool{}", random.below(3));
                    let state = random.one_in(3).then(|| state(random));
                    parts.push(Part::ToolCall(ToolCall { slot, provider_id, name, arguments, state }));
                    calls += 1;
                }
            }
        }
    }
    parts
}

/// A text in pieces, cut between any two bytes where a letter ends; some are empty.
fn cut(random: &mut Random, text: &str) -> Vec<String> {
    let often = 1 + random.below(8);
    let mut pieces = vec![String::new()];
    for letter in text.chars() {
        while random.one_in(often + 1) {
            pieces.push(String::new());
        }
        pieces.last_mut().expect("there is one").push(letter);
    }
    pieces
}

/// One way in which a provider may send this answer.
fn sent(random: &mut Random, parts: &[Part]) -> Vec<Delta> {
    let mut deltas = Vec::new();
    // The pieces of calls that have begun may come any time until the end.
    let mut open: Vec<Vec<Delta>> = Vec::new();
    let numbers: u32 = random.below(3) as u32;
    for part in parts {
        match part {
            Part::Text { text, state } => {
                deltas.extend(cut(random, text).into_iter().map(|text| Delta::Text { text }));
                if state.is_some() {
                    deltas.push(Delta::TextEnd { state: state.clone() });
                }
            }
            Part::Opaque(state) => deltas.push(Delta::Opaque(state.clone())),
            Part::Reasoning(Reasoning { text, signature, redacted, state }) => {
                deltas.extend(cut(random, text).into_iter().map(|text| Delta::Reasoning { text }));
                let (signature, redacted) = (signature.clone(), redacted.clone());
                deltas.push(Delta::ReasoningEnd { signature, redacted, state: state.clone() });
            }
            Part::ToolCall(ToolCall { slot, provider_id, name, arguments, state }) => {
                // Providers number calls as they like, also downwards.
                let index = if numbers == 0 { 1_000 - slot.position } else { slot.position * numbers };
                let (provider_id, name) = (Some(provider_id.clone()), name.clone());
                deltas.push(Delta::ToolCallStart { index, provider_id, name });
                let fragments = cut(random, arguments).into_iter();
                let fragments = fragments.map(|fragment| Delta::ToolCallArguments { index, fragment });
                let signed = state.clone().map(|state| Delta::ToolCallState { index, state });
                open.push(fragments.chain(signed).rev().collect());
            }
            Part::Image { .. } | Part::ToolResult(_) => unreachable!("no answer has these"),
        }
        mix(random, &mut open, &mut deltas, false);
    }
    mix(random, &mut open, &mut deltas, true);
    let usage = Delta::Usage(Usage { input_tokens: 3, ..Usage::default() });
    let at = usize::try_from(random.below(deltas.len() as u64 + 1)).expect("an index");
    deltas.insert(at, usage);
    deltas.push(Delta::Finish { reason: random.pick(&[FinishReason::Stop, FinishReason::ToolCalls]) });
    deltas
}

/// Sends some of what is open, of any of the calls; at the end all of it.
fn mix(random: &mut Random, open: &mut Vec<Vec<Delta>>, deltas: &mut Vec<Delta>, all: bool) {
    while !open.is_empty() && (all || !random.one_in(4)) {
        let at = usize::try_from(random.below(open.len() as u64)).expect("an index");
        deltas.extend(open[at].pop());
        open.retain(|pieces| !pieces.is_empty());
    }
}

fn assemble(deltas: impl IntoIterator<Item = (u64, Delta)>) -> Result<AssembledMessage, AssembleError> {
    let mut assembler = Assembler::new(MODEL_CALL);
    for (seq, delta) in deltas {
        assembler.consume(seq, delta)?;
    }
    assembler.finish()
}

fn numbered(deltas: Vec<Delta>) -> Vec<(u64, Delta)> {
    (1..).zip(deltas).collect()
}

#[test]
fn every_way_to_send_an_answer_makes_what_was_meant() {
    let mut interleaved = 0;
    for seed in 0..ANSWERS {
        let mut random = Random::new(seed);
        let parts = meant(&mut random);
        let has_calls = parts.iter().any(|part| matches!(part, Part::ToolCall(_)));
        let reason = if has_calls { FinishReason::ToolCalls } else { FinishReason::Stop };
        for _ in 0..3 {
            let deltas = sent(&mut random, &parts);
            interleaved += u32::from(is_interleaved(&deltas));
            let finished = assemble(numbered(deltas)).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            assert_eq!(finished.message, Message { role: Role::Assistant, parts: parts.clone() }, "{seed}");
            assert_eq!((finished.finish_reason, finished.usage.input_tokens), (reason.clone(), 3), "{seed}");
        }
    }
    assert!(interleaved > 100, "pieces of several calls are mixed: {interleaved}");
}

/// True if a call goes on after another one went on.
fn is_interleaved(deltas: &[Delta]) -> bool {
    let of = |delta: &Delta| match delta {
        Delta::ToolCallArguments { index, .. } => Some(*index),
        _ => None,
    };
    let mut order: Vec<u32> = deltas.iter().filter_map(of).collect();
    order.dedup();
    order.len() > order.iter().collect::<BTreeSet<_>>().len()
}

#[test]
fn what_comes_again_changes_nothing() {
    for seed in 0..ANSWERS {
        let mut random = Random::new(seed);
        let parts = meant(&mut random);
        let deltas = numbered(sent(&mut random, &parts));
        let mut again = Vec::new();
        for (at, one) in deltas.iter().enumerate() {
            again.push(one.clone());
            // Somebody who reconnects is shown a stretch of what came before.
            if random.one_in(5) {
                let from = usize::try_from(random.below(at as u64 + 1)).expect("an index");
                again.extend_from_slice(&deltas[from..=at]);
            }
        }
        assert_eq!(assemble(again), assemble(deltas), "seed {seed}");
    }
}

/// A piece that comes too late changes nothing: no order is made up, and nothing is taken twice.
#[test]
fn what_comes_too_late_is_left_out() {
    for seed in 0..ANSWERS {
        let mut random = Random::new(seed);
        let parts = meant(&mut random);
        let mut deltas = numbered(sent(&mut random, &parts));
        for _ in 0..random.below(6) {
            let mut place = || usize::try_from(random.below(deltas.len() as u64)).expect("an index");
            let (one, other) = (place(), place());
            deltas.swap(one, other);
        }
        let mut last = 0;
        let in_time: Vec<_> = deltas
            .iter()
            .filter(|(seq, _)| {
                let later = *seq > last;
                last = last.max(*seq);
                later
            })
            .cloned()
            .collect();
        assert_eq!(assemble(deltas), assemble(in_time), "seed {seed}");
    }
}

/// Any deltas at all, in any order.
fn garbage(random: &mut Random) -> Vec<Delta> {
    // Short ones, many small pieces, and a few large ones.
    let (length, size) = random.pick(&[(5, 3), (40, 3), (8_000, 3), (400, 40_000)]);
    let calls = random.pick(&[0, 3, 400]);
    let ends = random.pick(&[20, 1_000_000]);
    let some = |random: &mut Random| {
        let text = "é".repeat(usize::try_from(random.below(size)).expect("small"));
        let index = random.below(calls.max(1)) as u32;
        let kinds = if random.one_in(ends) { 10 } else { 9 };
        match random.below(kinds) {
            3 | 4 if calls == 0 => Delta::Text { text },
            0 => Delta::Text { text },
            1 => Delta::Reasoning { text },
            2 => Delta::ReasoningEnd {
                signature: random.maybe(text.clone()),
                redacted: random.maybe(text.clone()),
                state: random.maybe(small_state(text)),
            },
            3 => Delta::ToolCallStart {
                index,
                provider_id: random.maybe(format!("p{}", index % 3)),
                name: text,
            },
            4 => Delta::ToolCallArguments { index, fragment: text },
            6 => Delta::TextEnd { state: random.maybe(small_state(text)) },
            7 if calls > 0 => Delta::ToolCallState { index, state: small_state(text) },
            7 | 8 => Delta::Opaque(small_state(text)),
            5 => Delta::Usage(Usage { output_tokens: u64::from(index), ..Usage::default() }),
            _ => Delta::Finish { reason: FinishReason::Stop },
        }
    };
    let mut deltas: Vec<Delta> = (0..length).map(|_| some(random)).collect();
    deltas.push(Delta::Finish { reason: FinishReason::Stop });
    deltas
}

/// Drops what contradicts what came before, so that the bounds are met and not only the contradictions.
fn consistent(random: &mut Random, deltas: Vec<Delta>) -> Vec<Delta> {
    let mut begun = BTreeSet::new();
    let spares = random.one_in(2);
    let fits = |delta: &Delta| match delta {
        Delta::ToolCallStart { index, .. } => begun.insert(*index),
        Delta::ToolCallArguments { index, .. } | Delta::ToolCallState { index, .. } => begun.contains(index),
        _ => true,
    };
    if spares { deltas.into_iter().filter(fits).collect() } else { deltas }
}

#[test]
fn whatever_comes_bounds_hold() {
    let mut ends: BTreeMap<String, u32> = BTreeMap::new();
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let deltas = garbage(&mut random);
        let deltas = consistent(&mut random, deltas);
        let mut assembler = Assembler::new(MODEL_CALL);
        let failed = (1..).zip(deltas.clone()).find_map(|(seq, delta)| assembler.consume(seq, delta).err());
        is_within_bounds(&assembler.partial(), seed);
        let end = match failed {
            Some(AssembleError::TooLarge { unit, .. }) => unit.to_owned(),
            Some(error @ AssembleError::Malformed(_)) => error.to_string(),
            None => {
                let finished = assembler.finish().expect("it was told that it is finished");
                assert_eq!(assemble(numbered(deltas)), Ok(finished.clone()), "seed {seed}");
                let calls = finished.message.tool_calls().count();
                assert_eq!(finished.finish_reason == FinishReason::ToolCalls, calls > 0, "seed {seed}");
                "finished".to_owned()
            }
        };
        *ends.entry(end).or_default() += 1;
    }
    for end in ["finished", "bytes", "parts", "tool calls"] {
        assert!(ends.contains_key(end), "no case comes to {end}: {ends:?}");
    }
}

fn is_within_bounds(message: &Message, seed: u64) {
    let calls: Vec<&ToolCall> = message.tool_calls().collect();
    let slots: Vec<CallSlot> = calls.iter().map(|call| call.slot).collect();
    let dense: Vec<CallSlot> = (0..calls.len() as u32).map(|at| CallSlot::from((MODEL_CALL, at))).collect();
    assert_eq!(slots, dense, "seed {seed}");
    let ids: BTreeSet<&str> = calls.iter().map(|call| call.provider_id.as_str()).collect();
    assert_eq!(ids.len(), calls.len(), "seed {seed}: ids are told apart");
    assert!(ids.iter().all(|id| !id.is_empty()), "seed {seed}");
    assert!(calls.len() <= CALLS_PER_MESSAGE_MAX, "seed {seed}");
    assert!(message.parts.len() <= PARTS_PER_MESSAGE_MAX, "seed {seed}");
    let bytes: usize = message.parts.iter().map(size).sum();
    assert!(bytes <= MODEL_MESSAGE_BYTES_MAX, "seed {seed}: {bytes} bytes");
}

fn small_state(data: String) -> ProviderState {
    ProviderState { provider: "p".to_owned(), family: "m".to_owned(), data }
}

fn size(part: &Part) -> usize {
    let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    let of_state = |state: &Option<ProviderState>| state.as_ref().map_or(0, ProviderState::size);
    match part {
        Part::Text { text, state } => text.len() + of_state(state),
        Part::Opaque(state) => state.size(),
        Part::Reasoning(Reasoning { text, signature, redacted, state }) => {
            text.len() + length(signature) + length(redacted) + of_state(state)
        }
        Part::ToolCall(call) => {
            call.provider_id.len() + call.name.len() + call.arguments.len() + of_state(&call.state)
        }
        Part::Image { .. } | Part::ToolResult(_) => unreachable!("no answer has these"),
    }
}

/// The arguments of the calls of a message that ends for this reason.
fn arguments(finish: FinishReason, deltas: &[Delta]) -> Vec<String> {
    let mut assembler = Assembler::new(MODEL_CALL);
    let deltas = deltas.iter().cloned().chain([Delta::Finish { reason: finish }]);
    for (seq, delta) in (0..).zip(deltas) {
        assembler.consume(seq, delta).expect("it is taken");
    }
    let message = assembler.finish().expect("it is finished").message;
    message.tool_calls().map(|call| call.arguments.clone()).collect()
}

/// A tool without arguments and a call that was cut off before its arguments look alike, and must not be taken for each other.
#[test]
fn a_call_that_was_cut_off_before_its_arguments_is_not_one_without_any() {
    let start = |index: u32| Delta::ToolCallStart {
        index,
        provider_id: Some(format!("id-{index}")),
        name: "wipe".to_owned(),
    };
    let text = Delta::Text { text: "Done.".to_owned() };
    for cut in [FinishReason::Length, FinishReason::ContextWindow] {
        assert_eq!(arguments(cut.clone(), &[start(0)]), [CUT_OFF_ARGUMENTS]);
        assert_eq!(
            arguments(cut.clone(), &[start(0), start(1)]),
            ["{}", CUT_OFF_ARGUMENTS],
            "the first is whole"
        );
        assert_eq!(arguments(cut, &[start(0), text.clone()]), ["{}"], "text came after it");
    }
    let whole = Delta::ToolCallArguments { index: 0, fragment: r#"{"all":true}"#.to_owned() };
    assert_eq!(arguments(FinishReason::Length, &[start(0), whole]), [r#"{"all":true}"#]);
    assert_eq!(arguments(FinishReason::ToolCalls, &[start(0)]), ["{}"]);
    assert!(serde_json::from_str::<serde_json::Value>(CUT_OFF_ARGUMENTS).is_err(), "it is never run");
}
