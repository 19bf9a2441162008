//! Small runs, exhausted: every order of everything that can happen to them, to the end of every path.
//!
//! The search is our own and not a model checker's: the transitions are the machine itself. After each, `Watch` checks what it
//! checks in every other test. A counterexample is a list of inputs.
//!
//! States are merged by all that decides what can happen next, so the search ends by itself. Failures are counted, since a call
//! can be lost and let run again without end. Each search has one crash, and one loss, or one more try of a call in doubt where
//! calls run in turn. `AGENTLOOP_EXHAUST=n` allows n more crashes and losses than the default, for as long as one likes to wait.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use agentloop_core::agent::{RetryPolicy, RunSpec};
use agentloop_core::context::build::messages;
use agentloop_core::id::{Attempt, CallSlot};
use agentloop_core::message::{FinishReason, Part};
use agentloop_core::model::error::ModelErrorKind;
use agentloop_core::policy::{Approvers, PolicyAction, PolicyRule, RuleOrigin};
use agentloop_core::run::effect::Effect;
use agentloop_core::run::event::{Event, Ran, Record};
use agentloop_core::run::human::{Decision, Person, QuestionKind};
use agentloop_core::run::input::{AbortCause, Input};
use agentloop_core::run::machine::Machine;
use agentloop_core::run::state::{CallState, Phase};
use agentloop_core::time::Millis;
use agentloop_core::tool::EffectClass;

use crate::support::*;

/// One thing that can happen.
#[derive(Debug, Clone)]
enum Move {
    /// The wait of the run, as it should be.
    Good(Input),
    /// Late, again, of somebody else, or an end.
    Stray(Input),
    /// Something goes wrong, of which there is a limited supply.
    Bad(Input),
    /// The next due thing happens.
    Wake,
    /// The process is killed after its last append, whatever it had performed of it; another takes over.
    Crash,
}

/// A state on a path to it.
#[derive(Clone)]
struct Node {
    script: Script,
    crashes: u32,
    losses: u32,
}

/// The explored graph: who leads where without anything going wrong, and which states are ends.
#[derive(Default)]
struct Graph {
    numbers: HashMap<u128, usize>,
    /// For each state, those that lead to it by what is good.
    before: Vec<Vec<usize>>,
    ends: Vec<usize>,
    shown: Vec<String>,
    transitions: u64,
}

/// A payment that needs leave, and a search that may be repeated.
fn pay_and_look() -> [Tool; 2] {
    let pay = tool("pay").approval().within(Millis::secs(20));
    [pay, tool("look").class(EffectClass::ReadOnly).within(Millis::secs(10))]
}

/// Two payments, of which the first asks from inside. Their deadlines are outcomes, as in the run with losses: doubts by
/// time beside those would be too many states. The run without either has them.
fn consult_and_pay() -> [Tool; 2] {
    [tool("consult").within(Millis::secs(20)), tool("pay").within(Millis::secs(10))]
        .map(Tool::deadline_is_outcome)
}

fn spec_of(max_parallel: u32) -> RunSpec {
    RunSpec {
        approval_timeout: Some(Millis::secs(30)),
        in_doubt_timeout: Some(Millis::secs(15)),
        retry: RetryPolicy { max_retries: 1, ..spec().retry },
        ..parallel(max_parallel)
    }
}

#[test]
fn a_payment_with_leave_beside_a_search() {
    exhaust("leave, side by side", 0, given_round(spec_of(2), pay_and_look()));
}

#[test]
fn a_payment_with_leave_and_then_a_search() {
    let tools = pay_and_look().map(Tool::deadline_is_outcome);
    exhaust("leave, in turn", 1, given_round(spec_of(1), tools));
}

#[test]
fn a_payment_that_two_people_approve_beside_a_search() {
    let mut spec = spec_of(2);
    spec.tool_policy.rules = vec![PolicyRule {
        name: String::new(),
        action: PolicyAction::Ask,
        tool: "pay".to_owned(),
        arguments: Vec::new(),
        origin: RuleOrigin::Agent,
        terms: None,
        approvers: Approvers { any_of: vec!["group:sre".to_owned()], forbid_requester: true, quorum: 2 },
        made_under: None,
    }];
    exhaust("two approve", 0, given_round(spec, pay_and_look()));
}

#[test]
fn a_call_that_asks_beside_a_payment() {
    exhaust("asks", 0, given_round(spec_of(2), consult_and_pay()));
}

/// Explores everything, and checks that every state leads to an end by good things alone.
#[expect(clippy::disallowed_methods, reason = "how far to explore is asked for by hand")]
fn exhaust(name: &str, losses: u32, from: Script) {
    let more = std::env::var("AGENTLOOP_EXHAUST").map_or(0, |more| more.parse().expect("a number"));
    let mut graph = Graph::default();
    let first = Node { script: from, crashes: 1 + more, losses: losses + more };
    let mut queue = VecDeque::from([(graph.number(&first).0, first)]);
    while let Some((number, node)) = queue.pop_front() {
        for step in moves(&node) {
            let Some(after) = take(&node, &step) else { continue };
            graph.transitions += 1;
            let (reached, new) = graph.number(&after);
            if matches!(step, Move::Good(_) | Move::Wake) {
                graph.before[reached].push(number);
            }
            if new {
                stands(&after.script);
                queue.push_back((reached, after));
            }
        }
    }
    let states = graph.before.len();
    println!("{name}: {states} states, {} transitions, {} ends", graph.transitions, graph.ends.len());
    assert!(states > 200 && graph.ends.len() > 10, "{name}: the search saw next to nothing: {states} states");
    let stuck = graph.stuck();
    assert!(
        stuck.is_empty(),
        "{name}: {} states lead to no end, such as {}",
        stuck.len(),
        graph.shown[stuck[0]]
    );
}

impl Graph {
    /// The state's number, and whether it is new.
    fn number(&mut self, node: &Node) -> (usize, bool) {
        let shown = shown(node);
        let next = self.before.len();
        let number = *self.numbers.entry(hash(&shown)).or_insert(next);
        if number == next {
            if matches!(node.script.state().phase(), Phase::Finished { .. }) {
                self.ends.push(number);
            }
            self.before.push(Vec::new());
            self.shown.push(shown);
        }
        (number, number == next)
    }

    /// States from which no end is reached by what is good.
    fn stuck(&self) -> Vec<usize> {
        let mut leads = vec![false; self.before.len()];
        let mut queue: Vec<usize> = self.ends.clone();
        while let Some(number) = queue.pop() {
            if !std::mem::replace(&mut leads[number], true) {
                queue.extend(&self.before[number]);
            }
        }
        (0..leads.len()).filter(|number| !leads[*number]).collect()
    }
}

/// All that decides what can happen next, however it came about.
fn shown(node: &Node) -> String {
    let (script, state) = (&node.script, node.script.state());
    let parts: [&dyn Debug; 8] = [
        &state.phase(),
        &state.questions(),
        &state.settled_calls(),
        &script.now,
        &script.machine.deadline(),
        &script.watch.owed(),
        &(node.crashes, node.losses),
        &script.watch.fingerprint(),
    ];
    format!("{parts:?}")
}

/// Wide enough that two states do not share one by chance.
fn hash(text: &str) -> u128 {
    let half = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        (salt, text).hash(&mut hasher);
        u128::from(hasher.finish())
    };
    half(0) << 64 | half(1)
}

/// The state after a move; `None` if it is refused, or if there is no more of it.
fn take(node: &Node, step: &Move) -> Option<Node> {
    let mut after = node.clone();
    match step {
        Move::Good(input) | Move::Stray(input) => {
            after.script.step(input.clone()).ok()?;
        }
        Move::Bad(input) => {
            after.losses = after.losses.checked_sub(1)?;
            after.script.step(input.clone()).ok()?;
        }
        Move::Wake => {
            after.script.wakes();
        }
        Move::Crash => {
            after.crashes = after.crashes.checked_sub(1)?;
            after.script.restarts();
        }
    }
    Some(after)
}

/// Beside what `Watch` checks of the step that led here: the journal alone tells the state and what is owed, and what a
/// model would be shown fits together.
#[track_caller]
fn stands(script: &Script) {
    let replayed = Machine::replay(run_id(), &script.journal);
    assert_eq!(replayed.state(), script.state(), "the journal tells all");
    assert_eq!(replayed.outstanding(script.now), script.machine.outstanding(script.now), "and what is owed");
    for effect in replayed.outstanding(script.now) {
        if let Effect::ReclaimCall(offer) = effect {
            let call = script.call(offer.slot);
            let unbegun = matches!(call.state, CallState::Offered { .. });
            assert!(call.last.open_inputs == 0 || call.last.instance.is_none(), "a call that asks has begun");
            assert_eq!(
                offer.instance.as_ref(),
                call.last.instance.as_ref().filter(|_| unbegun),
                "a process that names itself is named until its call is known to have begun"
            );
        }
    }
    has_its_quorum(script);
    let mut open = BTreeMap::new();
    for message in messages(&history(&script.journal)) {
        for part in &message.parts {
            match part {
                Part::ToolCall(call) => drop(open.insert(call.slot, ())),
                Part::ToolResult(result) => {
                    open.remove(&result.slot).expect("a result has its call");
                }
                Part::Text { .. } | Part::Reasoning(_) | Part::Opaque(_) | Part::Image { .. } => {}
            }
        }
    }
    assert!(open.is_empty(), "a model is shown calls without results: {open:?}");
}

fn moves(node: &Node) -> Vec<Move> {
    let script = &node.script;
    let mut moves = vec![Move::Stray(abort(AbortCause::Caller)), Move::Crash];
    for owed in script.watch.owed() {
        answers(script, owed, &mut moves);
    }
    for slot in [A, B] {
        if let Some(question) = script.question(slot) {
            let text = Decision::Text { text: "that".to_owned() };
            moves.extend([deny(), text].map(|decision| Move::Good(script.decision(slot, decision))));
            // A call that runs out of time can be let run again without end.
            let approve = script.decision(slot, Decision::Approve);
            let again = question.kind == QuestionKind::InDoubt;
            moves.push(if again { Move::Bad(approve) } else { Move::Good(approve) });
            moves.push(Move::Stray(script.decision(slot, deny_and_stop())));
            if question.approvers.people() > 1 {
                for name in ["ann", "bob"] {
                    let approve = approval_of(script, slot, name, &["sre"], false);
                    moves.push(if again { Move::Bad(approve) } else { Move::Good(approve) });
                }
                moves.push(Move::Good(denial_of(script, slot)));
                moves.push(Move::Stray(approval_of(script, slot, "eve", &["ops"], false)));
                moves.push(Move::Stray(approval_of(script, slot, "ada", &["sre"], true)));
            }
        }
        // It was answered before, or belongs to a try that is over.
        if script.question(slot).is_none() {
            moves.push(Move::Stray(script.decision(slot, Decision::Approve)));
        }
        let tries = script.state().call(slot).map_or(1, |call| call.attempt.0);
        for attempt in 1..=tries {
            moves.push(Move::Stray(script.finished(slot, attempt, ok("late"))));
            moves.push(Move::Stray(accepted(slot, attempt)));
            moves.push(Move::Stray(lost(slot, attempt.saturating_sub(1), Ran::Maybe)));
            for begun in [true, false] {
                let stopped = script.stopped(slot, attempt, begun);
                let again = runs_again(script, &stopped);
                moves.push(if again { Move::Bad(stopped) } else { Move::Stray(stopped) });
            }
        }
        moves.push(Move::Stray(granted(slot)));
    }
    let (number, attempt) = script.model_call();
    moves.push(Move::Stray(model_says(number, attempt.saturating_sub(1), "late")));
    if script.machine.deadline().is_some() {
        moves.push(Move::Wake);
    }
    moves
}

/// True if a call is to run again because of this.
fn runs_again(script: &Script, input: &Input) -> bool {
    let seeks = |effect: &Effect| matches!(effect, Effect::SeekHost { .. });
    let accepted = script.machine.clone().handle(input.clone(), script.now);
    accepted.is_ok_and(|transition| {
        transition.effects.iter().any(seeks) || transition.records.iter().any(is_failed_attempt)
    })
}

fn is_failed_attempt(record: &Record) -> bool {
    matches!(record.event, Event::CallAttemptFailed { .. })
}

/// The decision of a person whose name is proved.
fn by(input: Input, by: Person) -> Input {
    match input {
        Input::Decided { request, decision, digest, remember, .. } => {
            Input::Decided { request, decision, digest, by, remember }
        }
        other => other,
    }
}

fn approval_of(script: &Script, slot: CallSlot, name: &str, groups: &[&str], is_requester: bool) -> Input {
    let groups = groups.iter().map(|&group| group.to_owned()).collect();
    let person = Person { name: name.to_owned(), groups, is_proved: true, is_requester };
    by(script.decision(slot, Decision::Approve), person)
}

fn denial_of(script: &Script, slot: CallSlot) -> Input {
    let groups = vec!["sre".to_owned()];
    by(
        script.decision(slot, deny()),
        Person { name: "bob".to_owned(), groups, is_proved: true, is_requester: false },
    )
}

/// The promise of a quorum: a call that two must approve is offered to no host before two different people have.
#[track_caller]
fn has_its_quorum(script: &Script) {
    for asked in script.state().questions().values() {
        let quorum = asked.question.approvers.people();
        let asks = quorum > 1 && asked.question.kind == QuestionKind::Approve;
        let Some(slot) = asked.question.slot.filter(|_| asks) else { continue };
        let began = script.state().call(slot).is_some_and(|call| call.attempt > Attempt(0));
        let people: BTreeSet<&str> = asked.approvals.iter().map(|one| one.by.as_str()).collect();
        let last = asked.answer.as_ref().is_some_and(|answer| answer.decision == Decision::Approve);
        let approved = people.len() + usize::from(last);
        assert!(!began || approved >= quorum as usize, "it was offered with {approved} approvals: {asked:?}");
        assert!(people.len() < quorum as usize, "the last approval is the answer: {asked:?}");
        assert!(people.iter().all(|name| ["ann", "bob"].contains(name)), "nobody else counts: {people:?}");
    }
}

fn answers(script: &Script, owed: Owed, moves: &mut Vec<Move>) {
    match owed {
        Owed::Model(number, attempt) => {
            let failure = failure(ModelErrorKind::Timeout);
            moves.push(Move::Good(model_says(number, attempt.0, "it is done")));
            moves.push(Move::Bad(Input::ModelFailed { model_call: number, attempt, failure }));
            moves.push(Move::Bad(model_asks(
                number,
                attempt.0,
                &[bad_tool("nonsense")],
                FinishReason::Refusal,
            )));
        }
        Owed::Seek(slot) => {
            moves.extend(["host-1", "host-2"].map(|host| Move::Good(granted_by(slot, host))));
            moves.push(Move::Stray(denied(slot)));
        }
        Owed::Call(slot, attempt) => {
            moves.push(Move::Good(accepted(slot, attempt.0)));
            moves.push(Move::Good(script.finished(slot, attempt.0, ok("done"))));
            moves.push(Move::Stray(script.finished(slot, attempt.0, lasting(Ran::Yes))));
            if script.call(slot).requested.name == "consult" {
                moves.push(Move::Good(needs(slot, attempt.0, "q")));
            }
            moves.push(Move::Bad(script.finished(slot, attempt.0, passing(Ran::No, Millis::secs(1)))));
            moves.push(Move::Bad(lost(slot, attempt.0, Ran::Maybe)));
            moves.push(Move::Bad(lost(slot, attempt.0, Ran::No)));
        }
        Owed::Prepare | Owed::Plan(_) | Owed::Compact(_) => {
            unreachable!("this run has none of that: {owed:?}")
        }
    }
}
