//! The checks at the end of a simulation. They compare the journals with the hosts' own counts.

use std::collections::BTreeMap;

use agentloop_core::context::build::messages;
use agentloop_core::context::view::view;
use agentloop_core::entry::Entry;
use agentloop_core::id::{CallId, CallSlot, EntryNo, RunId, RunKey};
use agentloop_core::message::{Part, SharedMessage, ToolStatus};
use agentloop_core::run::event::{Event, Record};
use agentloop_core::run::human::{Decision, QuestionKind};
use agentloop_core::run::replay::replay;
use agentloop_core::run::status::RunErrorCode;
use agentloop_core::tool::EffectClass;

use crate::ledger::Ledger;
use crate::model::fits_together;
use crate::store::Tables;
use crate::world::{World, tenant};

/// Everything, once all runs are over.
pub(crate) fn everything(world: &World) {
    let problems = {
        let tables = world.truth.tables();
        let ledger = world.ledger();
        let mut problems = promises(world, &tables);
        for (RunKey { run: id, .. }, run) in &tables.runs {
            problems.extend(journal(id, &run.records).into_iter().map(|problem| format!("{id}: {problem}")));
            problems.extend(row(&tables, id).map(|problem| format!("{id}: {problem}")));
            problems.extend(calls(id, &run.records, &ledger));
        }
        problems.extend(sessions(&tables));
        problems
    };
    problems.iter().for_each(|problem| world.problem(problem));
}

/// Checks the promises that the server made to callers.
fn promises(world: &World, tables: &Tables) -> Vec<String> {
    let promises = world.promises();
    let lost = promises.runs.keys().filter(|run| tables.run(&tenant(), run).is_none());
    let unheard = promises.steered.iter().filter(|id| tables.steered(&tenant(), id).is_none());
    let gone = lost.chain(unheard).map(|id| format!("{id} is acknowledged and gone"));
    let waits =
        promises.watching.iter().map(|(run, _)| format!("a subscriber of {run} is not shown its end"));
    gone.chain(waits).collect()
}

/// A journal folds, event by event, and ends.
fn journal(id: &RunId, records: &[Record]) -> Vec<String> {
    let mut problems = Vec::new();
    if !records.iter().zip(1..).all(|(record, seq)| record.seq.0 == seq) {
        problems.push("its events are not dense".to_owned());
    }
    let replayed = replay(id, records, |_| Ok(()));
    problems.extend(replayed.difference);
    match records.last().map(|record| &record.event) {
        Some(Event::Finished { error: Some(error), .. }) if error.code == RunErrorCode::Internal => {
            problems.push(format!("a fault of the server: {}", error.message));
        }
        Some(Event::Finished { .. }) => {}
        other => problems.push(format!("it does not end: {:?}", other.map(Event::kind))),
    }
    problems
}

/// The run's row is what its journal says.
fn row(tables: &Tables, id: &RunId) -> Option<String> {
    let run = tables.run(&tenant(), id)?;
    let state = replay(id, &run.records, |_| Ok(())).state;
    let told = (run.row.last_seq, Some(run.row.summary.status), run.row.summary.usage, run.row.queue_no);
    let folded = (state.seq(), state.status(), state.usage(), None);
    (told != folded).then(|| format!("its row says {told:?}, its journal {folded:?}"))
}

/// The events of one call in a journal.
#[derive(Default)]
struct CallHistory {
    effect: Option<EffectClass>,
    needs_leave: bool,
    leave: bool,
    /// Human leaves to run it although it may have run.
    reruns: u32,
    offers: u32,
    settled: u32,
    output: Option<String>,
}

/// Each call has one result; what must not run twice did not, without a human's word; what is recorded as a host's
/// answer is what a host said.
fn calls(id: &RunId, records: &[Record], ledger: &Ledger) -> Vec<String> {
    let mut problems = Vec::new();
    let histories = call_histories(records);
    for (slot, history) in &histories {
        let call = CallId { run: id.clone(), slot: *slot };
        let effects = ledger.effects.get(&call).copied().unwrap_or(0);
        if history.settled != 1 {
            problems.push(format!("{call} has {} results", history.settled));
        }
        if history.effect == Some(EffectClass::Unsafe) && effects > 1 + history.reruns {
            problems
                .push(format!("{call} took effect {effects} times, with {} leaves to rerun", history.reruns));
        }
        if effects > history.offers {
            problems.push(format!("{call} took effect {effects} times, and was offered {}", history.offers));
        }
        if effects > 0 && history.needs_leave && !history.leave {
            problems.push(format!("{call} took effect without anybody's leave"));
        }
        if let Some(output) = &history.output {
            let said = ledger.outputs.get(&call);
            if !said.is_some_and(|said| said.iter().any(|said| output.ends_with(said.as_str()))) {
                problems.push(format!("{call} is recorded with what no host said: {output}"));
            }
        }
    }
    let strays = ledger.effects.keys().filter(|call| call.run == *id && !histories.contains_key(&call.slot));
    problems.extend(strays.map(|call| format!("{call} took effect, and the journal does not know it")));
    problems
}

fn call_histories(records: &[Record]) -> BTreeMap<CallSlot, CallHistory> {
    let mut histories: BTreeMap<CallSlot, CallHistory> = BTreeMap::new();
    let mut kinds = BTreeMap::new();
    for record in records {
        match &record.event {
            Event::CallProposed { slot, effect, needs_approval, .. } => {
                let call = histories.entry(*slot).or_default();
                (call.effect, call.needs_leave) = (Some(*effect), *needs_approval);
            }
            Event::CallOffered { slot, .. } => histories.entry(*slot).or_default().offers += 1,
            Event::HumanRequested { question, .. } => {
                kinds.insert(question.request.clone(), question.kind);
            }
            Event::HumanResolved { request, slot: Some(slot), answer } => {
                let yes = matches!(answer.decision, Decision::Approve | Decision::ApproveWithEdits { .. });
                let call = histories.entry(*slot).or_default();
                match kinds.get(request) {
                    Some(QuestionKind::Approve) if yes => call.leave = true,
                    Some(QuestionKind::InDoubt) if yes => call.reruns += 1,
                    _ => {}
                }
            }
            Event::CallSettled { slot, host, message, .. } => {
                let call = histories.entry(*slot).or_default();
                call.settled += 1;
                call.output = message.parts.iter().find_map(|part| match part {
                    Part::ToolResult(result) if result.status == ToolStatus::Succeeded && host.is_some() => {
                        Some(result.output.clone())
                    }
                    _ => None,
                });
            }
            _ => {}
        }
    }
    histories
}

/// Every session is free, its entries are dense, and no call in it is without its result.
fn sessions(tables: &Tables) -> Vec<String> {
    let mut problems = Vec::new();
    for ((tenant, id), session) in &tables.sessions {
        if let Some(run) = &session.row.live_run {
            problems.push(format!("session {id} is still busy with {run}"));
        }
        if let Some(run) = tables.next_queued(tenant, id) {
            problems.push(format!("{run} still waits for session {id}"));
        }
        let rows = tables.entries(tenant, id, EntryNo(0), u32::MAX);
        if !rows.iter().zip(1..).all(|(row, entry)| row.entry.0 == entry) {
            problems.push(format!("the entries of session {id} are not dense"));
        }
        let entries: Vec<Entry> = rows.into_iter().map(|row| row.content).collect();
        // A fork may have been made between a call and its result.
        let is_fork = session.row.forked_from.is_some();
        let said: Vec<SharedMessage> = entries.iter().filter_map(Entry::message).cloned().collect();
        let shown = view(&entries);
        for (what, list) in [("history", said), ("view", shown)] {
            let sent = messages(&list);
            let problem = fits_together(if is_fork { &sent } else { &list }).err();
            let repaired = (!is_fork && sent != list).then(|| "it has to be repaired".to_owned());
            problems
                .extend(problem.or(repaired).map(|problem| format!("the {what} of session {id}: {problem}")));
        }
    }
    problems.extend(tables.jobs.keys().map(|job| format!("{job} is left undone")));
    problems
}
