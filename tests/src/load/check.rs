//! Checks of an ended run. They hold whatever faults the processes had meanwhile.

use std::collections::{BTreeMap, BTreeSet};

use agentloop_client::v1 as wire;
use wire::decision::Decision;
use wire::part::Content;
use wire::run_event::Event;
use wire::{EffectClass, HumanRequestKind, ToolStatus};

use super::human::Said;
use super::ledger::{Deeds, Ledger};
use super::script::{ASK, label_of};

/// A call, as the journal has it.
#[derive(Debug, Default)]
struct Call {
    label: String,
    tool: String,
    effect: EffectClass,
    /// The arguments that a human approved instead.
    edited: Option<String>,
    approved: bool,
    /// The number of times that a human let a call in doubt run again.
    again: u32,
    results: Vec<(ToolStatus, u32)>,
}

/// The limits to check after all work has ended: the number of times that a label may have begun.
pub type Bounds = BTreeMap<String, u32>;

/// Compares a run's events with what the hosts did and what the human was told. What the hosts may still do is bounded
/// by what is returned.
///
/// # Panics
/// When they do not agree.
pub fn run(events: &[wire::RunEvent], said: &[Said], ledger: &mut Ledger) -> Bounds {
    let calls = calls(events);
    answers_are_recorded(events, said);
    let mut bounds = Bounds::new();
    for (id, call) in &calls {
        let context = format!("{id} {call:?}");
        assert_eq!(call.results.len(), 1, "one result: {context}");
        if call.tool == ASK {
            continue;
        }
        let (status, _) = call.results[0];
        let (done, other) = match &call.edited {
            Some(edited) => (edited.clone(), Some(call.label.clone())),
            None => (call.label.clone(), None),
        };
        if let Some(label) = other {
            assert_eq!(ledger.of(&label), Deeds::default(), "only what was approved: {context}");
            bounds.insert(label, 0);
        }
        let deeds = ledger.of(&done);
        let bound = bound(call);
        bounded(&done, &deeds, bound);
        if status == ToolStatus::Succeeded {
            // A host that was killed in between has noted the key of its first try, and not that try.
            let begun = deeds.begins + deeds.agains;
            assert!(begun > 0 && deeds.ends > 0, "it was done: {deeds:?} {context}");
        }
        let tries: BTreeSet<_> = deeds.tries.iter().collect();
        assert_eq!(tries.len(), deeds.tries.len(), "a try comes once: {deeds:?} {context}");
        assert!(deeds.tries.iter().all(|(call, _)| call == id), "one call: {deeds:?} {context}");
        bounds.insert(done, bound);
    }
    bounds
}

/// Checks that a label was carried out an allowed number of times.
///
/// # Panics
/// When it was done more often, or under two keys.
pub fn bounded(label: &str, deeds: &Deeds, bound: u32) {
    assert!(deeds.begins <= bound, "{label} was done {} times of {bound}: {deeds:?}", deeds.begins);
    assert!(deeds.keys.len() <= 1, "{label} has one key: {deeds:?}");
}

fn bound(call: &Call) -> u32 {
    if call.tool == super::script::POST && !call.approved {
        return 0;
    }
    match call.effect {
        EffectClass::ReadOnly | EffectClass::Idempotent => u32::MAX,
        EffectClass::Keyed => 1,
        EffectClass::Unsafe | EffectClass::Unspecified => 1 + call.again,
    }
}

fn calls(events: &[wire::RunEvent]) -> BTreeMap<String, Call> {
    let mut labels = BTreeMap::new();
    let mut calls: BTreeMap<String, Call> = BTreeMap::new();
    let mut asked: BTreeMap<String, wire::HumanRequest> = BTreeMap::new();
    for event in events.iter().filter_map(|event| event.event.as_ref()) {
        match event {
            Event::AssistantMessage(said) => labels.extend(labels_of(said.message.as_ref())),
            Event::ToolCallProposed(call) => {
                let label = labels.get(&call.call_id).cloned().unwrap_or_default();
                let (tool, effect) = (call.tool.clone(), call.effect());
                let before =
                    calls.insert(call.call_id.clone(), Call { label, tool, effect, ..Call::default() });
                assert!(before.is_none(), "a call is proposed once: {call:?}");
            }
            Event::HumanRequested(request) => {
                let request = request.request.clone().expect("a question");
                let before = asked.insert(request.request_id.clone(), request);
                assert!(before.is_none(), "a question is asked once: {before:?}");
            }
            Event::HumanResolved(resolved) => {
                let question = asked.get(&resolved.request_id).expect("it was asked");
                if let Some(call) = calls.get_mut(&resolved.call_id) {
                    resolve(call, question, resolved);
                }
            }
            Event::ToolCallResult(result) => {
                let attempt = result.attempt;
                let result = result.result.as_ref().expect("a result");
                // A call that could not run was never proposed.
                if let Some(call) = calls.get_mut(&result.call_id) {
                    call.results.push((result.status(), attempt));
                }
            }
            _ => {}
        }
    }
    calls
}

fn labels_of(message: Option<&wire::Message>) -> Vec<(String, String)> {
    let parts = message.map(|message| message.parts.as_slice()).unwrap_or_default();
    let label = |part: &wire::Part| match &part.content {
        Some(Content::ToolCall(call)) => Some((call.call_id.clone(), label_of(&call.arguments_json)?)),
        _ => None,
    };
    parts.iter().filter_map(label).collect()
}

fn resolve(call: &mut Call, question: &wire::HumanRequest, resolved: &wire::HumanResolved) {
    let answer = resolved.answer.as_ref();
    let decision = answer.and_then(|answer| answer.decision.as_ref()?.decision.as_ref());
    match (question.kind(), decision) {
        (HumanRequestKind::InDoubt, Some(Decision::Approve(_))) => call.again += 1,
        (HumanRequestKind::Approve, Some(Decision::Approve(_))) => call.approved = true,
        (HumanRequestKind::Approve, Some(Decision::ApproveWithEdits(edits))) => {
            call.approved = true;
            call.edited = label_of(&edits.arguments_json);
        }
        _ => {}
    }
}

/// Every answer that was acknowledged is in the journal, as it was given.
fn answers_are_recorded(events: &[wire::RunEvent], said: &[Said]) {
    for said in said {
        let recorded: Vec<_> = events
            .iter()
            .filter_map(|event| match &event.event {
                Some(Event::HumanResolved(resolved)) if resolved.request_id == said.request_id => {
                    Some(resolved.answer.clone().expect("an answer"))
                }
                _ => None,
            })
            .collect();
        assert_eq!(recorded.len(), 1, "an acknowledged answer is recorded once: {said:?}");
        let decision = recorded[0].decision.as_ref().and_then(|decision| decision.decision.clone());
        assert_eq!(decision, said.decision, "as it was given");
    }
}
