//! A run can be ended at any instant, and its session takes the next message.

use std::collections::BTreeMap;
use std::sync::Arc;

use agentloop_core::agent::RunSpec;
use agentloop_core::context::build::messages;
use agentloop_core::id::{Attempt, CallSlot, EntryNo};
use agentloop_core::message::{
    FinishReason, Message, Part, Reasoning, Role, SharedMessage, ToolCall, ToolStatus, Usage,
};
use agentloop_core::model::error::ModelErrorKind;
use agentloop_core::run::effect::{CancelCause, Effect};
use agentloop_core::run::event::{Event, Outcome, Ran, Record};
use agentloop_core::run::human::Decision;
use agentloop_core::run::input::{AbortCause, Input, ResponseSoFar};
use agentloop_core::run::machine::Machine;
use agentloop_core::run::refusal::Refusal;
use agentloop_core::run::state::Phase;
use agentloop_core::run::status::{RunErrorCode, RunStatus};
use agentloop_core::time::Millis;
use agentloop_core::tool::{Digest, EffectClass};

use crate::support::*;

/// Everything that a run can go through, short of its end.
fn long_conversation() -> Script {
    let mut script = given(RunSpec {
        approval_timeout: Some(Millis::secs(600)),
        in_doubt_timeout: Some(Millis::secs(600)),
        retry: agentloop_core::agent::RetryPolicy {
            max_retries: 1,
            pause_when_exhausted: true,
            ..spec().retry
        },
        ..spec()
    });
    model_trouble(&mut script);
    let lookup = || tool("lookup").class(EffectClass::ReadOnly);
    script.asks([lookup(), tool("pay").approval(), bad_tool("nonsense"), tool("mail").approval()]);
    script.grants(A);
    script.accepts(A);
    script.saves(A, b"half");
    script.loses(A, Ran::Maybe);
    script.decides(B, edits(r#"{"amount":3}"#));
    script.grants(A);
    script.grants(B);
    script.accepts(B);
    script.answers(A, passing(Ran::Yes, Millis::secs(2)));
    script.loses(B, Ran::Maybe);
    script.decides(CallSlot::from((1, 3)), deny());
    script.decides(B, Decision::Approve);
    script.grants(B);
    script.wakes();
    script.loses(B, Ran::No);
    script.runs(A, "found");
    script.wakes();
    script.runs(B, "paid");
    script.restarts();
    script.asks([tool("ask").approval(), tool("slow").deadline_is_outcome(), tool("lost")]);
    let (ask, slow, lost) = (CallSlot::from((2, 0)), CallSlot::from((2, 1)), CallSlot::from((2, 2)));
    script.grants(slow);
    script.grants(lost);
    script.loses(lost, Ran::Maybe);
    script.restarts();
    script.wakes();
    assert_eq!(script.result(slow).0, ToolStatus::TimedOut);
    script.decides(ask, answer());
    let question = script.question(lost).expect("it is in doubt");
    script.now = question.expires_at.expect("it expires");
    script.does(Input::DeadlinePassed);
    assert_eq!(script.result(lost).0, ToolStatus::OutcomeUnknown);
    script.asks([tool("weather").approval(), tool("weather").approval()]);
    script.decides(CallSlot::from((3, 1)), Decision::Approve);
    script.grants(CallSlot::from((3, 1)));
    script
}

fn model_trouble(script: &mut Script) {
    script.model_fails(ModelErrorKind::RateLimited);
    script.wakes();
    script.model_fails(ModelErrorKind::Unavailable);
    script.resumes("r1");
    script.restarts();
}

#[test]
fn the_conversation_has_every_kind_of_event_but_the_last() {
    let script = long_conversation();
    let all = [
        "started",
        "input_added",
        "model_call_started",
        "model_call_failed",
        "assistant_message",
        "call_proposed",
        "call_offered",
        "call_accepted",
        "call_checkpoint",
        "call_attempt_failed",
        "call_settled",
        "human_requested",
        "human_resolved",
        "paused",
        "resumed",
    ];
    for kind in all {
        assert!(script.journal.iter().any(|record| record.event.kind() == kind), "{kind}");
    }
    assert_eq!(script.journal.iter().filter(|record| record.event.kind() == "finished").count(), 0);
}

#[test]
fn after_each_event_a_run_can_be_aborted() {
    let script = long_conversation();
    for end in 1..=script.journal.len() {
        for cause in [AbortCause::Caller, AbortCause::Disconnect, AbortCause::Fault, AbortCause::Memory] {
            let mut journal = script.journal[..end].to_vec();
            let mut machine = Machine::replay(run_id(), &journal);
            let transition = machine.handle(abort(cause), script.now).expect("a live run can be aborted");
            journal.extend(transition.records);
            assert_ended(&machine, &journal, cause);
            assert_eq!(Machine::replay(run_id(), &journal).state(), machine.state());
        }
    }
}

/// The response until it is cut off: reasoning, text and half a call.
fn half_an_answer() -> ResponseSoFar {
    let text = |text: &str| Part::Text { text: text.to_owned(), state: None };
    let call = ToolCall {
        slot: A,
        provider_id: "p".to_owned(),
        name: "lookup".to_owned(),
        arguments: "{\"ci".to_owned(),
        state: None,
    };
    let reasoning = Part::Reasoning(Reasoning { text: "hm".to_owned(), ..Reasoning::default() });
    let parts = vec![reasoning, text(""), text("It is \n"), text("sun \n"), text(" "), Part::ToolCall(call)];
    ResponseSoFar {
        model_call: 1,
        attempt: Attempt(1),
        message: Arc::new(Message { role: Role::Assistant, parts }),
        usage: Usage { input_tokens: 7, ..Usage::default() },
        first_token: Millis(1),
        duration: Millis(2),
        tools: Digest::of(&[]),
    }
}

fn duration_limited() -> RunSpec {
    limited(|limits| limits.max_run_duration = Some(Millis::secs(10)))
}

#[test]
fn an_answer_is_kept_as_far_as_it_has_come_whatever_ends_the_run() {
    let aborts = [AbortCause::Caller, AbortCause::Disconnect, AbortCause::Memory].map(abort);
    for (input, why) in aborts.into_iter().map(|input| (input, "")).chain([(Input::DeadlinePassed, "10 s")]) {
        let mut script = given(duration_limited());
        script.does(steer("st-1", "and tomorrow?"));
        let at = script.now.after(Millis::secs(11));
        let machine = &mut script.machine;
        let transition = machine.handle_during_response(input, at, Some(half_an_answer())).expect("it ends");
        script.journal.extend(transition.records.iter().cloned());
        let said: Vec<String> = history(&script.journal).iter().map(|message| message.plain_text()).collect();
        let [.., answer, note, waiting] = &said[..] else { panic!("{said:?}") };
        assert_eq!(answer, "It is \nsun");
        assert!(note.contains("was cut off") && note.contains(why), "{note}");
        assert_eq!(waiting, "and tomorrow?", "what waited comes after it");
        assert_eq!(kinds(&transition.records), "assistant_message context_added input_entered finished");
        assert!(matches!(
            &transition.records[0].event,
            Event::AssistantMessage { finish: FinishReason::CutOff, .. }
        ));
        let Event::Finished { totals, .. } = &transition.records[3].event else { panic!("{transition:?}") };
        assert_eq!(totals.usage.input_tokens, 7);
        assert_eq!(Machine::replay(run_id(), &script.journal).state(), script.machine.state());
        assert_next_run_starts(history(&script.journal));
    }
}

#[test]
fn without_text_of_this_attempt_nothing_is_kept() {
    let text = |text: &str| Message::text(Role::Assistant, text);
    let half = half_an_answer();
    let no_text = Message { role: Role::Assistant, parts: half.message.parts[..2].to_vec() };
    let of_another = ResponseSoFar { attempt: Attempt(2), ..half.clone() };
    let blank = ResponseSoFar { message: Arc::new(text(" \n")), ..half.clone() };
    for answer in [ResponseSoFar { message: Arc::new(no_text), ..half }, of_another, blank] {
        let mut script = given(spec());
        let transition =
            script.machine.handle_during_response(abort(AbortCause::Caller), script.now, Some(answer));
        assert_eq!(kinds(&transition.expect("it ends").records), "finished");
    }
    // An answer that another input comes during goes on.
    let mut script = given(spec());
    let now = script.now;
    let transition =
        script.machine.handle_during_response(steer("st-1", "more"), now, Some(half_an_answer()));
    assert_eq!(kinds(&transition.expect("it waits").records), "input_held");
    let whole = script.machine.handle(model_says(1, 1, "whole"), now).expect("it is complete");
    assert!(kinds(&whole.records).starts_with("assistant_message"), "{whole:?}");
}

/// Between steps, a new owner first takes over what was under way, and then stops all of it.
#[test]
fn after_each_step_an_abort_stops_what_is_under_way() {
    let script = long_conversation();
    let mut steps = 0;
    for end in 1..=script.journal.len() {
        let mut machine = Machine::replay(run_id(), &script.journal[..end]);
        if !between_steps(&machine) {
            continue;
        }
        steps += 1;
        let taken_over = machine.handle(Input::Recovered, script.now).expect("it can be taken over");
        let transition = machine.handle(abort(AbortCause::Caller), script.now).expect("it can be aborted");
        let stops: Vec<Effect> = taken_over.effects.iter().map(stop_of).collect();
        assert_eq!(transition.effects, stops, "after event {end}");
        assert_eq!(machine.outstanding(script.now), []);
    }
    assert!(steps > 30, "{steps} places to stop at");
}

/// True if a journal could end here: nothing is left for the same step.
fn between_steps(machine: &Machine) -> bool {
    let state = machine.state();
    let settling = state.round().iter().any(|call| {
        use agentloop_core::run::state::CallState;
        match &call.state {
            CallState::Proposed
            | CallState::AwaitingApproval { request: None }
            | CallState::AwaitingInput { request: None }
            | CallState::InDoubt { request: None, .. } => true,
            CallState::AwaitingApproval { request: Some(request) }
            | CallState::AwaitingInput { request: Some(request) }
            | CallState::InDoubt { request: Some(request), .. } => {
                state.questions()[request].answer.is_some()
            }
            CallState::Ready { .. }
            | CallState::Offered { .. }
            | CallState::Accepted { .. }
            | CallState::AwaitingInstruction { .. }
            | CallState::Suspended { .. }
            | CallState::Settled => false,
        }
    });
    !settling && !matches!(state.phase(), Phase::Preparing | Phase::Observed { .. })
}

fn stop_of(effect: &Effect) -> Effect {
    match effect {
        Effect::CallModel { model_call, attempt, .. } => {
            Effect::StopModel { model_call: *model_call, attempt: *attempt }
        }
        Effect::SeekHost { slot, .. } => Effect::StopSeeking { slot: *slot },
        Effect::ReclaimCall(offer) => cancelled(offer.slot, offer.attempt.0),
        other => panic!("not owed after a restart: {other:?}"),
    }
}

#[track_caller]
fn assert_ended(machine: &Machine, journal: &[Record], cause: AbortCause) {
    let (outcome, status, code) = match cause {
        AbortCause::Caller => (Outcome::Aborted, RunStatus::Aborted, RunErrorCode::AbortedByCaller),
        AbortCause::Disconnect => (Outcome::Aborted, RunStatus::Aborted, RunErrorCode::AbortedByDisconnect),
        AbortCause::Fault => (Outcome::Failed, RunStatus::Failed, RunErrorCode::Internal),
        AbortCause::Memory => (Outcome::Failed, RunStatus::Failed, RunErrorCode::LimitMemory),
    };
    let last = journal.last().expect("a journal");
    assert_eq!(last.status, status);
    let Event::Finished { outcome: ended, error, .. } = &last.event else { panic!("{last:?}") };
    assert_eq!((*ended, error.as_ref().map(|error| error.code)), (outcome, Some(code)));
    assert_eq!(machine.state().open_questions().count(), 0);
    assert_eq!(machine.deadline(), None);
    let history = history(journal);
    assert_paired(&history);
    assert_next_run_starts(history);
}

#[track_caller]
fn assert_paired(history: &[SharedMessage]) {
    assert_eq!(messages(history), history, "each call has its result, right after it");
    let mut results: BTreeMap<CallSlot, usize> = BTreeMap::new();
    for call in history.iter().flat_map(|message| message.tool_calls()) {
        assert_eq!(results.insert(call.slot, 0), None, "a call has its own place");
    }
    for message in history.iter().filter(|message| message.role == Role::Tool) {
        let slot = message.tool_result().expect("a result").slot;
        *results.get_mut(&slot).expect("a result has its call") += 1;
    }
    assert!(results.values().all(|count| *count == 1), "{results:?}");
}

/// Another run takes the session where this one left it, and its model reads all of it.
#[track_caller]
fn assert_next_run_starts(before: Vec<SharedMessage>) {
    let entries = before.len() as u64;
    let mut next = Machine::new(run_id());
    let transition =
        next.handle(start_after(entries, spec()), T0).expect("the session takes the next message");
    let all = [before, history(&transition.records)].concat();
    assert_eq!(messages(&all), all);
    let reads = EntryNo(entries + 1);
    assert_eq!(
        transition.effects,
        [Effect::CallModel { model_call: 1, attempt: Attempt(1), last_entry: reads, checked: true }]
    );
}

#[test]
fn an_aborted_call_says_what_is_known_of_it() {
    let mut script = given_round(
        parallel(9),
        [
            tool("pay"),
            tool("pay").with("1"),
            tool("look").class(EffectClass::ReadOnly),
            tool("pay").with("2").approval(),
            tool("pay").with("3"),
        ],
    );
    let (look, asked, doubt) = (CallSlot::from((1, 2)), CallSlot::from((1, 3)), CallSlot::from((1, 4)));
    script.grants(B);
    script.grants(look);
    script.grants(doubt);
    script.loses(doubt, Ran::Maybe);
    script.aborts();
    let plain = "not completed: the run was aborted";
    for slot in [A, look, asked] {
        assert_eq!(script.result(slot), (ToolStatus::Aborted, plain.to_owned()), "{slot}");
    }
    for slot in [B, doubt] {
        let unsure = format!("{plain}; it may have taken effect all the same");
        assert_eq!(script.result(slot), (ToolStatus::Aborted, unsure), "{slot}");
    }
}

/// The host reads the reason that was given for the abort.
fn cancelled(slot: CallSlot, attempt: u32) -> Effect {
    Effect::CancelCall {
        slot,
        attempt: Attempt(attempt),
        cause: CancelCause::Aborted,
        reason: "enough".to_owned(),
    }
}

#[test]
fn a_call_of_a_run_that_fails_is_told_that_the_run_ended() {
    let mut script =
        given_round(limited(|limits| limits.max_run_duration = Some(Millis::secs(9))), [tool("a")]);
    script.grants(A);
    let transition = script.wakes();
    let reason = "ran for longer than 9 s".to_owned();
    let cancel = Effect::CancelCall { slot: A, attempt: Attempt(1), cause: CancelCause::RunEnded, reason };
    assert_eq!(transition.effects, [cancel]);
}

#[test]
fn an_abort_withdraws_what_was_asked() {
    let mut script = given_round(spec(), [tool("pay").approval()]);
    let question = script.question(A).expect("it is asked");
    script.aborts();
    let answer = script.state().questions()[&question.request].answer.clone().expect("it is settled");
    assert_eq!((answer.decision, answer.by.as_str()), (Decision::Withdrawn, ""));
    let refusal = script.refuses(script.decision(A, Decision::Approve));
    assert!(matches!(refusal, Refusal::AlreadyResolved(answer) if answer.decision == Decision::Withdrawn));
}

#[test]
fn an_abort_hangs_up_at_once() {
    let mut script = given(spec());
    assert_eq!(script.aborts().effects, [Effect::StopModel { model_call: 1, attempt: Attempt(1) }]);
    let mut script = given_round(parallel(1), [tool("a"), tool("b")]);
    script.grants(A);
    assert_eq!(script.aborts().effects, [cancelled(A, 1)]);
    let mut script = given_round(parallel(1), [tool("a"), tool("b")]);
    assert_eq!(script.aborts().effects, [Effect::StopSeeking { slot: A }]);
}

#[test]
fn an_abort_is_kept_with_its_reason() {
    let mut script = given(spec());
    script.does(Input::Abort { cause: AbortCause::Disconnect, reason: "the client left".to_owned() });
    let error = script.end().expect("a reason");
    assert_eq!((error.code, error.message.as_str()), (RunErrorCode::AbortedByDisconnect, "the client left"));
    assert_eq!(script.state().last_error(), Some(&error));
    let refusal = script.refuses(abort(AbortCause::Caller));
    assert_eq!(refusal, Refusal::WrongPhase(Some(RunStatus::Aborted)));
}
