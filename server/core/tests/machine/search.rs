//! Every order of a few events, exhaustively: two calls, one approval, losses, late answers, restarts, and an end at
//! any time. What `Watch` checks holds after each step of each path.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use agentloop_core::agent::RunSpec;
use agentloop_core::message::FinishReason;
use agentloop_core::model::error::ModelErrorKind;
use agentloop_core::run::event::Ran;
use agentloop_core::run::human::Decision;
use agentloop_core::run::input::{AbortCause, Input, Prepared};
use agentloop_core::run::plan::Instruction;
use agentloop_core::run::state::Phase;
use agentloop_core::time::Millis;
use agentloop_core::tool::EffectClass;

use crate::support::*;

/// Steps after the model asked for its tools.
const DEPTH: usize = 7;

/// One thing that can happen.
#[derive(Debug, Clone)]
enum Move {
    Input(Box<Input>),
    /// The next due thing happens.
    Wake,
    /// Another owner takes over.
    Restart,
}

#[test]
fn every_order_of_a_few_events_keeps_every_promise() {
    let mut tally = Tally::default();
    search(round(1), &mut tally);
    search(round(2), &mut tally);
    search(held_round(RunSpec { stepped: true, ..round_spec(2) }), &mut tally);
    search(held_round(RunSpec { planner: Some("ada".to_owned()), ..round_spec(2) }), &mut tally);
    assert!(tally.states > 5_000, "{tally:?}");
    assert!(tally.completed > 0 && tally.aborted > 0 && tally.failed > 0, "{tally:?}");
}

/// Counts of the states that a search has seen, and of the ends of their runs.
#[derive(Debug, Default)]
struct Tally {
    states: usize,
    completed: usize,
    aborted: usize,
    failed: usize,
}

/// A payment that needs approval, and a search that may be repeated.
fn round(max_parallel: u32) -> Script {
    given_round(round_spec(max_parallel), tools())
}

/// The same, of a run that is directed: both calls are held.
fn held_round(spec: RunSpec) -> Script {
    let mut script = given(spec);
    if script.state().spec().stepped {
        script.steps("model");
    } else {
        script.plans(Instruction::CallModel);
    }
    script.asks(tools());
    script
}

fn tools() -> [Tool; 2] {
    let pay = tool("pay").approval().within(Millis::secs(20));
    let look = tool("look").class(EffectClass::Idempotent).within(Millis::secs(10));
    [pay, look]
}

fn round_spec(max_parallel: u32) -> RunSpec {
    RunSpec {
        approval_timeout: Some(Millis::secs(30)),
        in_doubt_timeout: Some(Millis::secs(15)),
        retry: agentloop_core::agent::RetryPolicy { max_retries: 1, ..spec().retry },
        ..parallel(max_parallel)
    }
}

/// Breadth first, each state once.
fn search(from: Script, tally: &mut Tally) {
    let mut seen = HashSet::from([fingerprint(&from)]);
    let mut level = vec![from];
    for _ in 0..DEPTH {
        let mut next = Vec::new();
        for script in &level {
            for step in moves(script) {
                let Some(after) = take(script, &step) else { continue };
                if seen.insert(fingerprint(&after)) {
                    tally.count(&after);
                    next.push(after);
                }
            }
        }
        level = next;
    }
}

impl Tally {
    fn count(&mut self, script: &Script) {
        use agentloop_core::run::event::Outcome;
        self.states += 1;
        match script.state().phase() {
            Phase::Finished { outcome: Outcome::Completed } => self.completed += 1,
            Phase::Finished { outcome: Outcome::Aborted } => self.aborted += 1,
            Phase::Finished { outcome: Outcome::Failed } => self.failed += 1,
            _ => {}
        }
    }
}

/// The state after a move; `None` if it is refused.
fn take(script: &Script, step: &Move) -> Option<Script> {
    let mut after = script.clone();
    match step {
        Move::Input(input) => {
            after.step((**input).clone()).ok()?;
        }
        Move::Wake => {
            after.wakes();
        }
        Move::Restart => {
            after.restarts();
        }
    }
    Some(after)
}

/// The parts of a state that tell it from others, on whatever way it was reached.
fn fingerprint(script: &Script) -> u64 {
    let state = script.state();
    let told = format!(
        "{:?} {:?} {:?} {:?} {:?} {:?} {}",
        state.phase(),
        state.waiting_messages().collect::<Vec<_>>(),
        state.questions(),
        state.settled_calls(),
        script.now,
        script.watch.owed(),
        script.watch.fingerprint()
    );
    let mut hasher = DefaultHasher::new();
    told.hash(&mut hasher);
    hasher.finish()
}

fn moves(script: &Script) -> Vec<Move> {
    let mut inputs = vec![abort(AbortCause::Caller)];
    if script.state().spec().tool_policy.max_parallel == 1 {
        // Messages in between do not depend on the number of calls that run side by side.
        inputs.push(steer("more", "make haste"));
    }
    for owed in script.watch.owed() {
        inputs.extend(answers(script, owed));
    }
    for slot in [A, B] {
        if script.question(slot).is_some() {
            let text = Decision::Text { text: "that".to_owned() };
            let decisions = [Decision::Approve, edits("2"), deny(), deny_and_stop(), answer(), text];
            inputs.extend(decisions.map(|decision| script.decision(slot, decision)));
        }
        for attempt in [1, 2] {
            inputs.push(script.finished(slot, attempt, ok("late")));
            inputs.push(script.finished(slot, attempt, passing(Ran::No, Millis(0))));
        }
        inputs.push(granted(slot));
        inputs.push(script.decision(slot, Decision::Approve));
    }
    if script.state().spec().stepped {
        inputs.push(step_on(&format!("step {}", script.state().steps().len())));
        let open = script.state().open_questions();
        inputs.extend(open.map(|question| step_by("by approval", question.request.clone())));
    }
    let mut moves: Vec<Move> = inputs.into_iter().map(|input| Move::Input(Box::new(input))).collect();
    moves.push(Move::Restart);
    if script.machine.deadline().is_some() {
        moves.push(Move::Wake);
    }
    moves
}

fn answers(script: &Script, owed: Owed) -> Vec<Input> {
    match owed {
        Owed::Model(number, attempt) => vec![
            model_says(number, attempt.0, "it is done"),
            model_asks(number, attempt.0, &[bad_tool("nonsense")], FinishReason::Refusal),
            Input::ModelFailed { model_call: number, attempt, failure: failure(ModelErrorKind::Timeout) },
        ],
        Owed::Prepare => vec![prepared(Prepared::default())],
        Owed::Plan(decision) => {
            let instructions = [
                Instruction::CallModel,
                Instruction::CallTools,
                Instruction::RequestApproval,
                Instruction::RequestPrompt { question: "which?".to_owned(), metadata: None },
                Instruction::Compact { strategy: String::new() },
                Instruction::Finish { failure: None },
            ];
            instructions.map(|instruction| planned(decision, instruction)).to_vec()
        }
        Owed::Compact(number) => vec![compacted(number), compaction_failed(number)],
        Owed::Seek(slot) => vec![granted(slot), denied(slot)],
        Owed::Call(slot, attempt) => {
            // Only the call that must not run twice leaves states: one more of each at both calls doubles the states.
            let asks = match slot {
                A => vec![leaves(slot, attempt.0, "q", b"left"), resumable(slot, attempt.0, 1, b"left")],
                _ => vec![needs(slot, attempt.0, "q")],
            };
            let ends = vec![
                accepted(slot, attempt.0),
                script.finished(slot, attempt.0, ok("done")),
                script.finished(slot, attempt.0, passing(Ran::Maybe, Millis(0))),
                script.finished(slot, attempt.0, passing(Ran::No, Millis::secs(1))),
                lost(slot, attempt.0, Ran::Maybe),
                lost(slot, attempt.0, Ran::No),
            ];
            [asks, ends].concat()
        }
    }
}
