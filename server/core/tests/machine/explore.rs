//! Random runs, from seeds: whatever happens and whenever, what `Watch` checks holds.

use std::sync::Arc;

use agentloop_core::agent::{LoopLimits, RetryPolicy, RunSpec, ToolPolicy};
use agentloop_core::id::{Attempt, CallSlot};
use agentloop_core::message::FinishReason;
use agentloop_core::model::error::ModelErrorKind;
use agentloop_core::policy::{Approvers, PolicyAction, PolicyRule, RuleOrigin};
use agentloop_core::run::event::{Ran, Record};
use agentloop_core::run::human::{Decision, RememberScope};
use agentloop_core::run::input::{AbortCause, CallFinished, CallOutcome, Input, Prepared};
use agentloop_core::run::machine::Machine;
use agentloop_core::run::plan::Instruction;
use agentloop_core::run::state::Phase;
use agentloop_core::time::Millis;
use agentloop_core::tool::{Digest, EffectClass, ToolTerms};

use crate::support::*;

const RUNS: u64 = 1_200;
const STEPS: usize = 120;

/// Names the seed when its run breaks something.
struct Named(u64);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {} breaks it", self.0);
        }
    }
}

#[test]
fn random_runs_keep_every_promise() {
    let mut ends = std::collections::BTreeMap::new();
    for seed in 0..RUNS {
        let _named = Named(seed);
        let script = explore(seed);
        let end = script.end().map(|error| format!("{:?}", error.code));
        *ends.entry(end).or_insert(0_u32) += 1;
    }
    for wanted in [
        None,
        Some("AbortedByCaller"),
        Some("AbortedByDenial"),
        Some("LimitIterations"),
        Some("LimitToolRounds"),
        Some("LimitToolCalls"),
        Some("LimitDuration"),
        Some("LimitTokens"),
        Some("LimitConsecutiveFailures"),
        Some("LimitRepeatedCalls"),
        Some("ModelRefused"),
        Some("ExtensionFailed"),
        Some("Model(Timeout)"),
    ] {
        assert!(ends.contains_key(&wanted.map(str::to_owned)), "never came to {wanted:?}: {ends:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in 0..20 {
        assert_eq!(explore(seed).journal, explore(seed).journal);
    }
}

/// One random run to its end.
fn explore(seed: u64) -> Script {
    let mut random = Random::new(seed);
    let mut script = unstarted();
    let spec = random_spec(&mut random);
    script.does(if random.one_in(4) { start_queued(spec) } else { start(spec) });
    for _ in 0..STEPS {
        if let Phase::Finished { .. } = script.state().phase() {
            break;
        }
        happen(&mut random, &mut script);
    }
    if script.state().is_live() {
        script.aborts();
    }
    for _ in 0..5 {
        // An input after the end is refused, or changes nothing.
        let written = script.journal.len();
        happen(&mut random, &mut script);
        assert_eq!(script.journal.len(), written);
    }
    every_prefix_reads(&script);
    script
}

fn every_prefix_reads(script: &Script) {
    let mut machine = Machine::new(run_id());
    assert_eq!(machine.state().status(), None);
    for (at, record) in script.journal.iter().enumerate() {
        let text = serde_json::to_string(record).expect("plain data serialises");
        let read: Record = serde_json::from_str(&text).expect("what was written is read");
        assert_eq!(read, *record);
        if at % 16 == 0 {
            machine = Machine::replay(run_id(), &script.journal[..=at]);
            assert_eq!(machine.state().status(), Some(record.status));
        }
    }
    machine = Machine::replay(run_id(), &script.journal);
    assert_eq!(machine.state(), script.state());
}

fn random_spec(random: &mut Random) -> RunSpec {
    let rarely = |random: &mut Random, value: u64| random.one_in(8).then_some(value);
    let few = |random: &mut Random, value: u64| rarely(random, value).map(|value| value as u32);
    RunSpec {
        tool_policy: ToolPolicy {
            max_parallel: random.below(4) as u32,
            max_calls_per_run: few(random, 4),
            require_approval_by_default: random.one_in(6),
            ..ToolPolicy::default()
        },
        limits: LoopLimits {
            max_iterations: if random.one_in(8) { 3 } else { 40 },
            max_tool_rounds: few(random, 2),
            max_run_duration: rarely(random, 200_000).map(Millis),
            max_tokens: rarely(random, 500),
            max_consecutive_failures: few(random, 3),
            max_cost_micros: None,
            max_repeated_calls: few(random, 2),
        },
        retry: RetryPolicy {
            max_retries: random.below(4) as u32,
            pause_when_exhausted: random.one_in(2),
            jitter: random.one_in(2),
            ..RetryPolicy::default()
        },
        stepped: random.one_in(4),
        hooks: random.one_in(6).then(|| "audit".to_owned()).into_iter().collect(),
        planner: random.one_in(4).then(|| "ada".to_owned()),
        approval_timeout: random.maybe(Millis::secs(30)),
        in_doubt_timeout: random.maybe(Millis::secs(30)),
        ..spec()
    }
}

/// Something happens, now or later; the machine takes it or not.
fn happen(random: &mut Random, script: &mut Script) {
    if *script.state().phase() == Phase::Queued && random.one_in(4) {
        script.does(enter(script));
    }
    match random.below(100) {
        50..54 => {
            let id = random.pick(&["s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8"]);
            let _ = script.step(steer(id, random.pick(&["quick", "slow"])));
        }
        0..50 if script.state().awaits_step() && !script.machine.has_pending_step() => {
            step_somehow(random, script);
        }
        0..50 => {
            if let Some(input) = answer_something(random, script) {
                wait_a_little(random, script);
                let _ = script.step(input);
            }
        }
        54..65 if script.state().planned_question().is_some() => {
            let request = script.state().planned_question().expect("it asks").request.clone();
            let decision = Decision::Text { text: "tomorrow".to_owned() };
            let _ = script.step(Input::Decided {
                request,
                decision,
                digest: None,
                by: "ann".to_owned().into(),
                remember: None,
            });
        }
        54..65 => {
            let decision = random_decision(random);
            let open: Vec<CallSlot> =
                script.state().open_questions().filter_map(|question| question.slot).collect();
            if !open.is_empty() {
                let slot = random.pick(&open);
                let decision = script.decision(slot, decision);
                let _ = script.step(if random.one_in(4) { kept(random, decision) } else { decision });
            }
        }
        65..75 => {
            if let Some(due) = script.machine.deadline() {
                script.now = script.now.max(due);
            }
            let _ = script.step(Input::DeadlinePassed);
        }
        75..80 => {
            wait_a_little(random, script);
            let _ = script.step(Input::DeadlinePassed);
        }
        80..85 => {
            script.restarts();
        }
        85..97 => {
            let input = stray(random, script);
            let _ = script.step(input);
        }
        97 => step_somehow(random, script),
        98 => {
            let _ = script.step(resume(random.pick(&["r1", "r2", "r3"])));
        }
        _ => {
            if random.one_in(4) {
                let cause = random.pick(&[AbortCause::Caller, AbortCause::Disconnect, AbortCause::Fault]);
                let _ = script.step(abort(cause));
            }
        }
    }
}

fn wait_a_little(random: &mut Random, script: &mut Script) {
    let wait = random.pick(&[0, 0, 1, 40, 700, 9_000]);
    script.later(Millis(wait));
    if random.one_in(20) {
        // Someone sets the clock back.
        script.now = agentloop_core::time::Timestamp(script.now.0 - random.below(5_000));
    }
}

/// The world answers one of the effects that it owes.
fn answer_something(random: &mut Random, script: &Script) -> Option<Input> {
    let owed = script.watch.owed();
    if owed.is_empty() {
        return None;
    }
    Some(match random.pick(&owed) {
        Owed::Model(number, attempt) => model_answers(random, number, attempt.0),
        Owed::Plan(decision) => planner_answers(random, decision),
        Owed::Prepare => prepared(random_preparation(random)),
        Owed::Compact(number) if random.one_in(4) => compaction_failed(number),
        Owed::Compact(number) => compacted(number),
        Owed::Seek(slot) if random.one_in(8) => denied(slot),
        Owed::Seek(slot) if random.one_in(3) => granted_under(slot, &random_terms(random)),
        Owed::Seek(slot) => granted_by(slot, random.pick(&["host-1", "host-1", "host-2"])),
        Owed::Call(slot, attempt) => match random.below(10) {
            0..2 => accepted(slot, attempt.0),
            2 => checkpoint(slot, attempt.0, &[random.below(256) as u8]),
            3..5 => lost(slot, attempt.0, random_ran(random)),
            5 if random.one_in(2) => leaves(slot, attempt.0, random.pick(&["q", "r"]), b"left"),
            5 => resumable(slot, attempt.0, random.below(3) + 1, b"left"),
            _ => script.finished(slot, attempt.0, random_outcome(random)),
        },
    })
}

/// Hosts redeclare their tools at random.
fn random_terms(random: &mut Random) -> Arc<ToolTerms> {
    let classes = [EffectClass::ReadOnly, EffectClass::Idempotent, EffectClass::Keyed, EffectClass::Unsafe];
    terms(random.pick(&classes), random.one_in(3), random.pick(&["old", "new"]))
}

fn random_preparation(random: &mut Random) -> Prepared {
    let failure = random.one_in(10).then(|| "vetoed".to_owned());
    Prepared {
        applied: vec![applied("noted")],
        failure,
        messages: random.maybe(vec![user("another question")]),
        context: random.maybe(from_memory("remember")).into_iter().collect(),
    }
}

fn model_answers(random: &mut Random, number: u32, attempt: u32) -> Input {
    match random.below(20) {
        0 => model_says(number, attempt, "it is sunny"),
        1 => model_asks(number, attempt, &[tool("weather")], FinishReason::Refusal),
        2..6 => {
            let kind =
                random.pick(&[ModelErrorKind::Timeout, ModelErrorKind::Timeout, ModelErrorKind::RateLimited]);
            let mut failure = failure(kind);
            failure.retry_after = random.maybe(Millis::secs(3));
            Input::ModelFailed { model_call: number, attempt: Attempt(attempt), failure }
        }
        6 => Input::ModelFailed {
            model_call: number,
            attempt: Attempt(attempt),
            failure: failure(ModelErrorKind::ContextOverflow),
        },
        7 => too_large(number, attempt),
        _ => {
            let count = 1 + random.below(4);
            let tools: Vec<Tool> = (0..count).map(|_| random_tool(random)).collect();
            let asks = model_asks(number, attempt, &tools, FinishReason::ToolCalls);
            if random.one_in(6) { full(asks) } else { asks }
        }
    }
}

/// Mostly what fits, sometimes not.
fn planner_answers(random: &mut Random, decision: u32) -> Input {
    let instruction = match random.below(24) {
        0 => return planner_fails(decision),
        1 => Instruction::Finish { failure: Some("enough".to_owned()) },
        2 | 3 => Instruction::Finish { failure: None },
        4 => Instruction::Compact { strategy: String::new() },
        5 => Instruction::RequestPrompt { question: "when?".to_owned(), metadata: None },
        6..10 => Instruction::RequestApproval,
        10..17 => Instruction::CallTools,
        _ => Instruction::CallModel,
    };
    planned(decision, instruction)
}

/// A step, sometimes one that was called for before, sometimes by way of a question.
fn step_somehow(random: &mut Random, script: &mut Script) {
    let request = format!("step {}", script.state().steps().len() as u64 + random.below(2));
    let open: Vec<_> = script.state().open_questions().map(|question| question.request.clone()).collect();
    let input = if open.is_empty() || random.one_in(2) {
        step_on(&request)
    } else {
        step_by(&request, random.pick(&open))
    };
    let _ = script.step(input);
}

fn random_tool(random: &mut Random) -> Tool {
    if random.one_in(8) {
        return bad_tool("nonsense");
    }
    let class = random.pick(&[
        EffectClass::Unsafe,
        EffectClass::Unsafe,
        EffectClass::ReadOnly,
        EffectClass::Idempotent,
        EffectClass::Keyed,
    ]);
    let named = tool(random.pick(&["pay", "look"])).with(random.pick(&["{}", "1", "2", "3"])).class(class);
    let timed = named.within(Millis::secs(random.pick(&[0, 5, 60])));
    let placed = if random.one_in(4) { timed.in_runtime() } else { timed };
    if random.one_in(3) { placed.approval() } else { placed }
}

fn random_ran(random: &mut Random) -> Ran {
    random.pick(&[Ran::No, Ran::Maybe, Ran::Yes])
}

fn random_outcome(random: &mut Random) -> CallOutcome {
    let delay = Millis(random.pick(&[0, 0, 2_000]));
    match random.below(10) {
        0..6 => ok("done"),
        6 => turned_down(),
        7 => lasting(random_ran(random)),
        _ => passing(random_ran(random), delay),
    }
}

fn random_decision(random: &mut Random) -> Decision {
    match random.below(16) {
        0..8 => Decision::Approve,
        8..10 => edits("9"),
        10..12 => deny(),
        12 => deny_and_stop(),
        13 => answer(),
        14 => Decision::Expired,
        _ => Decision::Withdrawn,
    }
}

/// A decision that is remembered, for calls like this one or for more.
fn kept(random: &mut Random, decision: Input) -> Input {
    let rule = PolicyRule {
        name: String::new(),
        action: PolicyAction::Ask,
        tool: random.pick(&["", "pay", "look"]).to_owned(),
        arguments: Vec::new(),
        origin: RuleOrigin::Run,
        terms: None,
        approvers: Approvers::default(),
        made_under: None,
    };
    remembering(decision, RememberScope::Run, random.maybe(rule))
}

/// Something that nobody waits for: late, twice, forged, or of another call.
fn stray(random: &mut Random, script: &Script) -> Input {
    let (number, model_try) = script.model_call();
    let slot = CallSlot::from((number.saturating_sub(random.below(2) as u32), random.below(4) as u32));
    let attempt = random.below(4) as u32;
    match random.below(11) {
        9 => compacted(random.below(3) as u32),
        10 => compaction_failed(random.below(3) as u32),
        0 => granted(slot),
        1 => denied(slot),
        2 => accepted(slot, attempt),
        3 => checkpoint(slot, attempt, b"late"),
        4 | 5 => script.finished(slot, attempt, random_outcome(random)),
        6 => Input::CallFinished(Box::new(CallFinished {
            slot,
            attempt: Attempt(attempt),
            lease: Digest::of(&[b"forged"]),
            host: host(),
            outcome: ok("forged"),
            sent: None,
            applied: Vec::new(),
        })),
        7 if random.one_in(2) => script.stopped(slot, attempt, random.one_in(2)),
        7 => lost(slot, attempt, random_ran(random)),
        _ => {
            let other_try = model_try + 1 + random.below(2) as u32;
            model_answers(random, number, other_try)
        }
    }
}
