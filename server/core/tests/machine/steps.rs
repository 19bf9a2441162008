//! A stepped run: nothing goes on before someone says so, and each step is one instruction.

use agentloop_core::agent::RunSpec;
use agentloop_core::id::Attempt;
use agentloop_core::message::ToolStatus;
use agentloop_core::model::error::ModelErrorKind;
use agentloop_core::run::event::{Event, Ran};
use agentloop_core::run::human::Decision;
use agentloop_core::run::input::AbortCause;
use agentloop_core::run::plan::Instruction;
use agentloop_core::run::refusal::Refusal;
use agentloop_core::run::status::{RunErrorCode, RunStatus};
use agentloop_core::run::steps::step_of;
use agentloop_core::run::view::WaitKind;
use agentloop_core::time::Millis;

use crate::support::*;

/// A stepped run whose model asked for these; nothing of it runs yet.
#[track_caller]
fn asked<const N: usize>(tools: [Tool; N]) -> Script {
    let mut script = given(stepped());
    script.steps("model");
    script.asks(tools);
    script
}

/// The kinds of events of a step, as they are read back.
#[track_caller]
fn step(script: &Script, request: &str) -> String {
    let step = step_of(&run_id(), &script.journal, request).expect("it was called for");
    assert!(step.is_done, "{request} is under way");
    kinds(step.records)
}

#[test]
fn a_whole_conversation_goes_step_by_step() {
    let mut script = given(stepped());
    assert_eq!(kinds(&script.journal), "started input_added");
    assert_eq!(
        (script.status(), script.state().waiting_on().unwrap().kind),
        (RunStatus::Paused, WaitKind::Step)
    );
    assert_eq!(script.steps("1"), "planned model_call_started");
    script.asks([tool("weather").approval()]);
    assert_eq!(script.status(), RunStatus::Paused);
    assert_eq!(script.steps("2"), "planned human_requested");
    assert_eq!(script.status(), RunStatus::AwaitingHuman);
    let question = script.question(A).unwrap().request;
    let by_approval = script.does(step_by("3", question));
    assert_eq!(kinds(&by_approval.records), "planned human_resolved");
    script.runs(A, "sunny");
    assert_eq!(script.status(), RunStatus::Paused);
    assert_eq!(script.steps("4"), "planned model_call_started");
    script.says("it is sunny");
    assert_eq!(script.steps("5"), "planned finished");
    assert_eq!(script.end(), None);

    assert_eq!(step(&script, "1"), "planned model_call_started assistant_message call_proposed");
    assert_eq!(step(&script, "2"), "planned human_requested");
    assert_eq!(step(&script, "3"), "planned human_resolved call_offered call_accepted call_settled");
    assert_eq!(step(&script, "4"), "planned model_call_started assistant_message");
    assert_eq!(step(&script, "5"), "planned finished");
    assert_eq!(step_of(&run_id(), &script.journal, "6"), None);
}

#[test]
fn what_is_decided_is_what_the_built_in_loop_decides() {
    let mut script = asked([tool("pay"), tool("look")]);
    script.steps("tools");
    script.runs(A, "paid");
    script.runs(B, "seen");
    script.steps("again");
    script.says("done");
    script.steps("end");
    let decided: Vec<_> = script
        .journal
        .iter()
        .filter_map(|record| match &record.event {
            Event::Planned { instruction, planner, .. } => Some((instruction.name(), planner.as_str())),
            _ => None,
        })
        .collect();
    let names = ["call_model", "call_tools", "call_model", "finish"];
    assert_eq!(decided, names.map(|name| (name, "")));
    assert_eq!(script.state().decisions(), 4);
}

#[test]
fn the_same_request_is_confirmed_and_another_waits_its_turn() {
    let mut script = given(stepped());
    script.steps("1");
    check(&script, step_on("1"), Ok(""));
    check(&script, step_on("2"), Err(Refusal::WrongPhase(Some(RunStatus::ModelRunning))));
    script.asks([tool("pay").approval()]);
    check(&script, step_on("1"), Ok(""));
    check(&script, step_on("2"), Ok("planned human_requested"));
    script.steps("2");
    check(&script, step_on("3"), Err(Refusal::WrongPhase(Some(RunStatus::AwaitingHuman))));
    script.aborts();
    check(&script, step_on("2"), Ok(""));
    check(&script, step_on("3"), Err(Refusal::WrongPhase(Some(RunStatus::Aborted))));
}

#[test]
fn the_same_request_for_something_else_is_refused() {
    let mut script = asked([tool("pay").approval(), tool("look").approval()]);
    script.steps("ask");
    let question = |slot| script.state().call_id(slot).request(Attempt(0));
    let (a, b) = (question(A), question(B));
    check(&script, step_by("ask", a.clone()), Err(Refusal::IdReused));
    script.does(step_by("run", a.clone()));
    let only_the_same = |script: &Script| {
        check(script, step_by("run", a.clone()), Ok(""));
        check(script, step_by("run", b.clone()), Err(Refusal::IdReused));
        check(script, step_on("run"), Err(Refusal::IdReused));
    };
    only_the_same(&script);
    script.runs(A, "paid");
    script.restarts();
    only_the_same(&script);
    script.aborts();
    only_the_same(&script);
}

#[test]
fn a_question_that_was_answered_before_is_part_of_the_request_too() {
    let mut script = asked([tool("pay").approval()]);
    script.steps("ask");
    script.decides(A, Decision::Approve);
    let question = script.state().call_id(A).request(Attempt(0));
    script.does(step_by("run", question.clone()));
    check(&script, step_by("run", question), Ok(""));
    check(&script, step_on("run"), Err(Refusal::IdReused));
}

#[test]
fn a_run_that_is_not_stepped_is_not() {
    check(&given(spec()), step_on("1"), Err(Refusal::NotStepped));
    check(&given(directed()), step_on("1"), Err(Refusal::NotStepped));
    check(&unstarted(), step_on("1"), Err(Refusal::WrongPhase(None)));
}

#[test]
fn a_decision_is_recorded_and_the_next_step_goes_on() {
    let mut script = asked([tool("pay").approval()]);
    script.steps("ask");
    let decided = script.decides(A, edits("7"));
    assert_eq!((kinds(&decided.records).as_str(), &decided.effects[..]), ("human_resolved", &[][..]));
    assert_eq!(script.status(), RunStatus::Paused);
    assert_eq!(script.steps("run"), "planned");
    script.runs(A, "paid");
    assert_eq!(script.call(A).arguments, "7");
    assert_eq!(step(&script, "ask"), "planned human_requested", "what came later is not of the step");
    assert_eq!(step(&script, "run"), "planned call_offered call_accepted call_settled");
}

#[test]
fn a_denial_settles_the_call_at_once() {
    let mut script = asked([tool("pay").approval()]);
    script.steps("ask");
    assert_eq!(kinds(&script.decides(A, deny()).records), "human_resolved call_settled");
    assert_eq!((script.status(), script.result(A).0), (RunStatus::Paused, ToolStatus::Denied));
    assert_eq!(script.steps("on"), "planned model_call_started");
}

#[test]
fn the_question_that_a_step_answers_is_checked() {
    let mut script = asked([tool("pay").approval(), tool("look").approval()]);
    let question = |slot| script.state().call_id(slot).request(Attempt(0));
    let (a, b) = (question(A), question(B));
    check(&script, step_by("2", a.clone()), Err(Refusal::UnknownRequest));
    script.steps("ask");
    script.decides(B, deny());
    let answered = script.state().questions()[&b].answer.clone().unwrap();
    check(&script, step_by("2", b), Err(Refusal::AlreadyResolved(Box::new(answered))));
    script.does(step_by("2", a.clone()));
    check(&script, step_by("2", a.clone()), Ok(""));
    check(&script, step_by("3", a), Err(Refusal::WrongPhase(Some(RunStatus::ToolRunning))));
}

#[test]
fn approved_before_it_is_run_by_the_step() {
    let mut script = asked([tool("pay").approval()]);
    script.steps("ask");
    script.decides(A, Decision::Approve);
    let question = script.state().call_id(A).request(Attempt(0));
    assert_eq!(kinds(&script.does(step_by("run", question)).records), "planned");
    script.runs(A, "paid");
}

#[test]
fn leave_that_expired_is_not_given_by_a_step() {
    let mut script = given(RunSpec { approval_timeout: Some(Millis::secs(5)), ..stepped() });
    script.steps("model");
    script.asks([tool("pay").approval()]);
    script.steps("ask");
    let question = script.question(A).unwrap().request;
    script.later(Millis::secs(6));
    assert!(matches!(script.refuses(step_by("2", question)), Refusal::AlreadyResolved(_)));
}

#[test]
fn one_approved_call_runs_while_another_still_waits() {
    let mut script = asked([tool("pay").approval(), tool("pay").with("2").approval()]);
    script.steps("ask");
    script.decides(A, Decision::Approve);
    assert_eq!(script.status(), RunStatus::Paused, "there is something to do");
    script.steps("run");
    script.runs(A, "paid");
    assert_eq!(script.status(), RunStatus::AwaitingHuman);
    assert_eq!(step(&script, "run"), "planned call_offered call_accepted call_settled");
    let question = script.question(B).unwrap().request;
    script.does(step_by("run the other", question));
    script.runs(B, "paid");
    assert_eq!(script.status(), RunStatus::Paused);
}

#[test]
fn a_call_in_doubt_is_run_once_more_by_a_step() {
    let mut script = asked([tool("pay")]);
    script.steps("tools");
    script.grants(A);
    script.loses(A, Ran::Maybe);
    assert_eq!(step(&script, "tools"), "planned call_offered call_attempt_failed human_requested");
    let mut waits = script.clone();
    waits.decides(A, Decision::Approve);
    assert_eq!(waits.status(), RunStatus::Paused);
    // A failure that is told twice puts nothing off, and a late result settles it all the same.
    assert_eq!(kinds(&waits.answers(A, passing(Ran::No, Millis(0))).records), "");
    assert_eq!(kinds(&waits.finishes(A, "paid after all").records), "call_settled");
    let question = script.question(A).unwrap().request;
    script.does(step_by("again", question));
    script.runs(A, "paid");
    assert_eq!(script.call(A).attempt, Attempt(2));
}

#[test]
fn a_call_that_cannot_run_is_no_step_of_its_own() {
    let mut script = given(stepped());
    script.steps("1");
    assert_eq!(kinds(&script.asks([bad_tool("wether")]).records), "assistant_message call_settled");
    assert_eq!(script.steps("2"), "planned model_call_started");
    let mut script = given(stepped());
    script.steps("1");
    script.asks([bad_tool("wether"), tool("weather")]);
    assert_eq!(step(&script, "1"), "planned model_call_started assistant_message call_settled call_proposed");
    assert_eq!(script.steps("2"), "planned");
}

#[test]
fn a_step_lasts_through_retries_and_ends_where_an_operator_must_help() {
    let mut spec = stepped();
    spec.retry.max_retries = 1;
    spec.retry.pause_when_exhausted = true;
    let mut script = given(spec);
    script.steps("1");
    script.model_fails(ModelErrorKind::Timeout);
    check(&script, step_on("2"), Err(Refusal::WrongPhase(Some(RunStatus::BackingOff))));
    assert!(!step_of(&run_id(), &script.journal, "1").unwrap().is_done);
    script.wakes();
    script.model_fails(ModelErrorKind::Timeout);
    check(&script, step_on("2"), Err(Refusal::WrongPhase(Some(RunStatus::Paused))));
    let paused = "planned model_call_started model_call_failed model_call_started model_call_failed paused";
    assert_eq!(step(&script, "1"), paused);
    assert_eq!(script.state().waiting_on().unwrap().kind, WaitKind::Operator);
    script.resumes("r");
    script.says("back");
    assert_eq!(step(&script, "1"), paused, "the same as before");
    assert_eq!(script.steps("2"), "planned finished");
}

#[test]
fn it_survives_a_restart_after_every_input() {
    let mut script = given(stepped());
    let mut then = |go: &mut dyn FnMut(&mut Script)| {
        script.restarts();
        go(&mut script);
    };
    then(&mut |script| drop(script.steps("model")));
    then(&mut |script| drop(script.asks([tool("pay").approval()])));
    then(&mut |script| drop(script.steps("ask")));
    then(&mut |script| {
        let question = script.question(A).unwrap().request;
        script.does(step_by("run", question));
    });
    then(&mut |script| drop(script.grants(A)));
    then(&mut |script| drop(script.accepts(A)));
    then(&mut |script| drop(script.finishes(A, "paid")));
    then(&mut |script| drop(script.steps("again")));
    then(&mut |script| drop(script.says("done")));
    then(&mut |script| drop(script.steps("end")));
    assert_eq!(script.end(), None);
    let cut = "planned model_call_started model_call_failed model_call_started assistant_message";
    assert_eq!(step(&script, "model"), format!("{cut} call_proposed"));
    assert_eq!(step(&script, "ask"), "planned human_requested");
    assert_eq!(step(&script, "run"), "planned human_resolved call_offered call_accepted call_settled");
    assert_eq!(step(&script, "again"), cut);
    assert_eq!(step(&script, "end"), "planned finished");
}

#[test]
fn limits_hold_for_steps_too() {
    let mut script = given(RunSpec { stepped: true, ..limited(|limits| limits.max_iterations = 1) });
    script.steps("1");
    script.asks([bad_tool("x")]);
    assert_eq!(script.steps("2"), "planned finished");
    assert_eq!(script.end().unwrap().code, RunErrorCode::LimitIterations);
    let mut script =
        given(RunSpec { stepped: true, ..limited(|limits| limits.max_run_duration = Some(Millis::secs(9))) });
    script.wakes();
    assert_eq!(script.end().unwrap().code, RunErrorCode::LimitDuration, "a run that nobody steps");
}

#[test]
fn an_abort_settles_what_is_held() {
    let mut script = asked([tool("pay"), tool("mail").approval()]);
    assert_eq!(kinds(&script.aborts().records), "call_settled call_settled finished");
    assert_eq!(script.end().unwrap().code, RunErrorCode::AbortedByCaller);
    let mut script = given(stepped());
    script.does(abort(AbortCause::Disconnect));
    assert_eq!(script.end().unwrap().code, RunErrorCode::AbortedByDisconnect);
}

#[test]
fn a_planner_is_asked_once_a_step_is_called_for() {
    let mut script = given(RunSpec { stepped: true, ..directed() });
    assert_eq!(script.watch.owed(), []);
    check(&script, planned(1, Instruction::CallModel), Err(Refusal::StaleDecision));
    let step = script.does(step_on("1"));
    assert_eq!((kinds(&step.records).as_str(), script.watch.owed()), ("", vec![Owed::Plan(1)]));
    check(&script, step_on("1"), Ok(""));
    check(&script, step_by("1", run_id().planned_question(1)), Err(Refusal::IdReused));
    check(&script, step_on("2"), Err(Refusal::WrongPhase(Some(RunStatus::Paused))));
    assert_eq!(script.plans(Instruction::CallModel), "planned model_call_started");
    let Event::Planned { planner, step, .. } = &script.journal[2].event else { panic!("the decision") };
    assert_eq!((planner.as_str(), step.as_deref()), ("ada", Some("1")));
    script.asks([tool("pay").approval()]);
    assert_eq!(script.watch.owed(), [], "it rests again");
}

#[test]
fn a_step_whose_planner_was_cut_off_is_called_for_again() {
    let mut script = given(RunSpec { stepped: true, ..directed() });
    script.does(step_on("1"));
    script.restarts();
    assert_eq!((script.watch.owed(), script.machine.has_pending_step()), (vec![], false));
    script.does(step_on("1"));
    assert_eq!(script.watch.owed(), [Owed::Plan(1)]);
    script.plans(Instruction::CallModel);
    assert_eq!(script.state().steps().len(), 1);
}

#[test]
fn a_humans_leave_needs_no_planner() {
    let mut script = given(RunSpec { stepped: true, ..directed() });
    script.does(step_on("1"));
    script.plans(Instruction::CallModel);
    script.asks([tool("pay")]);
    script.does(step_on("2"));
    assert_eq!(script.plans(Instruction::RequestApproval), "planned human_requested");
    script.decides(A, Decision::Approve);
    assert_eq!(script.steps("3"), "planned");
    script.runs(A, "paid");
}
