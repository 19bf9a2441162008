//! A planner decides what comes next; what does not fit is told, and leaves nothing open.

use agentloop_core::agent::RunSpec;
use agentloop_core::entry::CompactionReason;
use agentloop_core::id::EntryNo;
use agentloop_core::limits::SHORT_TEXT_BYTES_MAX;
use agentloop_core::message::{FinishReason, ToolStatus};
use agentloop_core::model::error::ModelErrorKind;
use agentloop_core::run::effect::Effect;
use agentloop_core::run::event::{Event, Observation, Totals};
use agentloop_core::run::human::{BadAnswer, Decision, QuestionKind};
use agentloop_core::run::input::Input;
use agentloop_core::run::plan::{Instruction, SelectOption, Situation};
use agentloop_core::run::refusal::Refusal;
use agentloop_core::run::status::{RunErrorCode, RunStatus};
use agentloop_core::run::view::WaitKind;
use agentloop_core::time::Millis;

use crate::support::*;

fn finish() -> Instruction {
    Instruction::Finish { failure: None }
}

/// A run with a planner whose model asked for these; none runs yet.
#[track_caller]
fn asked<const N: usize>(tools: [Tool; N]) -> Script {
    let mut script = given(directed());
    script.plans(Instruction::CallModel);
    script.asks(tools);
    script
}

#[track_caller]
fn totals(script: &Script) -> Totals {
    let Some(Event::Finished { totals, .. }) = script.journal.last().map(|record| &record.event) else {
        panic!("it is not over")
    };
    *totals
}

#[test]
fn it_is_asked_wherever_the_run_stands_still() {
    let plan = |decision, situation| vec![Effect::Plan { decision, situation }];
    let mut script = unstarted();
    let started = script.does(start(directed()));
    assert_eq!(started.effects, plan(1, Situation::Prompted));
    let waiting = script.state().waiting_on().unwrap();
    assert_eq!((waiting.kind, waiting.what.as_str()), (WaitKind::Extension, "ada"));
    assert_eq!(script.status(), RunStatus::Preparing);
    script.plans(Instruction::CallModel);
    let asked = script.asks([tool("pay"), tool("look")]);
    assert_eq!(asked.effects[1..], plan(2, Situation::CallsWaiting), "after the end of the model call");
    script.plans(Instruction::CallTools);
    script.runs(A, "paid");
    assert_eq!(script.status(), RunStatus::ToolRunning);
    assert!(script.runs(B, "seen").effects.contains(&plan(3, Situation::ToolsSettled)[0]));
    script.plans(Instruction::CallModel);
    let finish_reason = FinishReason::Stop;
    let said = script.says("done");
    assert_eq!(said.effects[1..], plan(4, Situation::Responded { finish: finish_reason }));
    assert_eq!(script.plans(finish()), "planned finished");
    assert_eq!((script.end(), totals(&script).final_entry), (None, None));
}

#[test]
fn its_model_message_does_not_say_that_the_run_is_over() {
    let mut script = given(directed());
    script.plans(Instruction::CallModel);
    script.says("done?");
    let Event::AssistantMessage { decision, .. } = script.journal.last().unwrap().event else { panic!() };
    assert_eq!(decision, Observation::Continue);
    assert_eq!(script.plans(Instruction::CallModel), "planned model_call_started", "it asks once more");
}

#[test]
fn only_the_decision_that_is_due_is_taken() {
    let mut script = given(directed());
    check(&script, planned(0, Instruction::CallModel), Err(Refusal::StaleDecision));
    check(&script, planned(2, Instruction::CallModel), Err(Refusal::StaleDecision));
    script.plans(Instruction::CallModel);
    check(&script, planned(1, Instruction::CallModel), Err(Refusal::StaleDecision));
    check(&script, planned(2, Instruction::CallModel), Err(Refusal::StaleDecision));
    script.says("done");
    check(&script, planned(1, finish()), Err(Refusal::StaleDecision));
    check(&script, planned(2, finish()), Ok("planned finished"));
}

#[test]
fn policy_asks_a_human_where_it_must() {
    let mut script = asked([tool("pay").approval(), tool("look")]);
    assert_eq!(script.plans(Instruction::CallTools), "planned human_requested");
    script.runs(B, "seen");
    script.decides(A, Decision::Approve);
    script.runs(A, "paid");
    assert_eq!(script.watch.owed(), [Owed::Plan(3)]);
}

#[test]
fn it_may_ask_a_human_whatever_the_policy_says() {
    let mut script = asked([tool("pay"), tool("look").approval()]);
    assert_eq!(script.plans(Instruction::RequestApproval), "planned human_requested human_requested");
    assert_eq!(script.status(), RunStatus::AwaitingHuman);
    script.decides(A, Decision::Approve);
    script.runs(A, "paid");
    script.decides(B, deny());
    assert_eq!(script.watch.owed(), [Owed::Plan(3)]);
}

#[test]
fn calls_that_it_goes_on_without_are_settled_as_not_run() {
    let mut script = asked([tool("pay"), tool("mail").approval()]);
    let went_on = script.plans(Instruction::CallModel);
    assert_eq!(went_on, "planned call_settled call_settled model_call_started");
    assert_eq!(script.result(A).0, ToolStatus::Rejected);
    assert!(script.result(B).1.contains("not run"), "{}", script.result(B).1);
    let mut script = asked([tool("pay")]);
    assert_eq!(script.plans(finish()), "planned call_settled finished");
    assert_eq!(script.end(), None);
    assert_eq!(totals(&script).final_entry, Some(EntryNo(2)), "the message that asked for it");
    let mut script = asked([tool("pay")]);
    let gave_up = script.plans(Instruction::Finish { failure: Some("no way on".to_owned()) });
    assert_eq!(gave_up, "planned call_settled finished");
    let error = script.end().unwrap();
    assert_eq!((error.code, error.message.as_str()), (RunErrorCode::ExtensionFailed, "no way on"));
}

#[test]
fn a_run_may_be_over_before_the_model_was_asked() {
    let mut script = given(directed());
    assert_eq!(script.plans(finish()), "planned finished");
    assert_eq!((script.status(), totals(&script).final_entry), (RunStatus::Completed, Some(EntryNo(0))));
}

#[test]
fn what_cannot_be_done_fails_the_run_and_says_what() {
    for instruction in [Instruction::CallTools, Instruction::RequestApproval] {
        let mut script = given(directed());
        assert_eq!(script.plans(instruction.clone()), "planned finished");
        let error = script.end().unwrap();
        assert_eq!(error.code, RunErrorCode::ExtensionFailed);
        assert!(error.message.contains(instruction.name()), "{}", error.message);
    }
}

#[test]
fn nonsense_and_failures_are_recorded_as_the_end() {
    let long = Instruction::RequestPrompt { question: "x".repeat(SHORT_TEXT_BYTES_MAX + 1), metadata: None };
    for (input, says) in [(planner_fails(2), "no answer in 10 s"), (planned(2, long), "at most")] {
        let mut script = asked([tool("pay")]);
        assert_eq!(kinds(&script.does(input).records), "planned call_settled finished");
        let error = script.end().unwrap();
        assert_eq!(error.code, RunErrorCode::ExtensionFailed);
        assert!(error.message.contains(says) && error.message.contains("ada"), "{}", error.message);
        let planned = script.journal.iter().rev().find_map(|record| match &record.event {
            Event::Planned { instruction, planner, .. } => Some((instruction.name(), planner.clone())),
            _ => None,
        });
        assert_eq!(planned, Some(("finish", String::new())), "it is not what the planner decided");
    }
}

#[test]
fn limits_hold_against_a_planner() {
    let spec = RunSpec { planner: Some("ada".to_owned()), ..limited(|limits| limits.max_iterations = 2) };
    let mut script = given(spec);
    for _ in 0..2 {
        script.plans(Instruction::CallModel);
        script.says("hm");
    }
    assert_eq!(script.plans(Instruction::CallModel), "planned finished");
    assert_eq!(script.end().unwrap().code, RunErrorCode::LimitIterations);
    let spec = RunSpec {
        planner: Some("ada".to_owned()),
        ..limited(|limits| limits.max_run_duration = Some(Millis::secs(5)))
    };
    let mut script = given(spec);
    assert!(script.wakes().effects.contains(&Effect::StopPlanning { decision: 1 }));
    assert_eq!(script.end().unwrap().code, RunErrorCode::LimitDuration);
}

#[test]
fn an_abort_does_without_its_answer() {
    let mut script = asked([tool("pay")]);
    assert!(script.aborts().effects.contains(&Effect::StopPlanning { decision: 2 }));
    assert_eq!(script.refuses(planned(2, Instruction::CallTools)), Refusal::StaleDecision);
}

#[test]
fn after_a_restart_it_is_asked_the_same_again() {
    let mut script = asked([tool("pay")]);
    let asked_again = script.restarts();
    assert_eq!(asked_again.effects, [Effect::Plan { decision: 2, situation: Situation::CallsWaiting }]);
    script.plans(Instruction::CallTools);
    script.runs(A, "paid");
    assert_eq!(script.restarts().effects, [Effect::Plan { decision: 3, situation: Situation::ToolsSettled }]);
}

#[test]
fn a_model_call_is_retried_without_it() {
    let mut script = given(directed());
    script.plans(Instruction::CallModel);
    script.model_fails(ModelErrorKind::Timeout);
    script.wakes();
    script.says("done");
    assert_eq!(script.state().decisions(), 1);
}

// ---- questions of its own

fn prompt() -> Instruction {
    Instruction::RequestPrompt { question: "when?".to_owned(), metadata: None }
}

fn select(multiple: bool) -> Instruction {
    let option = |id: &str, label: &str| SelectOption { id: id.to_owned(), label: label.to_owned() };
    Instruction::RequestSelect {
        question: "where?".to_owned(),
        options: vec![option("r", "Rome"), option("o", "Oslo")],
        multiple,
        metadata: None,
    }
}

/// An answer to what the planner asks.
fn says(script: &Script, decision: Decision) -> Input {
    let request = script.state().planned_question().expect("it asks").request.clone();
    Input::Decided { request, decision, digest: None, by: "ann".to_owned().into(), remember: None }
}

fn text(text: &str) -> Decision {
    Decision::Text { text: text.to_owned() }
}

fn selected(options: &[&str]) -> Decision {
    Decision::Selected { options: options.iter().map(|id| (*id).to_owned()).collect() }
}

#[track_caller]
fn last_words(script: &Script) -> String {
    history(&script.journal).last().expect("a message").plain_text()
}

#[test]
fn a_human_answers_its_question_and_the_session_has_it() {
    let mut script = given(directed());
    assert_eq!(script.plans(prompt()), "planned human_requested");
    assert_eq!(script.status(), RunStatus::AwaitingHuman);
    let question = script.state().planned_question().expect("it asks").clone();
    assert_eq!((question.kind, question.request.as_str()), (QuestionKind::Prompt, "run-1:plan:1"));
    let waiting = script.state().waiting_on().unwrap();
    assert_eq!((waiting.kind, waiting.what.as_str()), (WaitKind::Human, "run-1:plan:1"));
    check(&script, planned(2, Instruction::CallModel), Err(Refusal::StaleDecision));
    script.restarts();
    let answered = script.does(says(&script, text("tomorrow")));
    assert_eq!(kinds(&answered.records), "human_resolved input_added");
    assert_eq!(answered.effects, [Effect::Plan { decision: 2, situation: Situation::HumanAnswered }]);
    assert_eq!(last_words(&script), "Question: when?\nAnswer: tomorrow");
    assert_eq!(script.plans(Instruction::CallModel), "planned model_call_started");
    assert_eq!(script.state().instruction_result(), None);
}

#[test]
fn what_was_chosen_is_said_by_its_labels() {
    let mut script = given(directed());
    script.plans(select(true));
    script.does(says(&script, selected(&["o", "r"])));
    assert_eq!(last_words(&script), "Question: where?\nAnswers:\n- Rome\n- Oslo");
    let mut script = given(directed());
    script.plans(select(false));
    check(&script, says(&script, selected(&["r", "o"])), Err(Refusal::BadAnswer(BadAnswer::OneWanted)));
    check(&script, says(&script, Decision::Approve), Err(Refusal::BadAnswer(BadAnswer::InputWanted)));
    check(&script, says(&script, selected(&["r"])), Ok("human_resolved input_added"));
}

#[test]
fn a_form_and_a_visit_are_asked_for_and_told() {
    let form =
        r#"{"type":"object","properties":{"day":{"type":"string","format":"date"}},"required":["day"]}"#;
    let mut script = given(directed());
    script.plans(Instruction::RequestForm {
        question: "when?".to_owned(),
        form: form.to_owned(),
        metadata: None,
    });
    assert_eq!(script.state().planned_question().map(|asked| asked.kind), Some(QuestionKind::Form));
    let wrong =
        script.clone().refuses(says(&script, Decision::Filled { fields: r#"{"day":"soon"}"#.to_owned() }));
    assert!(matches!(wrong, Refusal::BadAnswer(BadAnswer::Field { .. })), "{wrong:?}");
    script.does(says(&script, Decision::Filled { fields: r#"{"day":"2027-01-31"}"#.to_owned() }));
    assert_eq!(last_words(&script), "Question: when?\nAnswer: {\"day\":\"2027-01-31\"}");

    let visit = || Instruction::RequestUrl {
        question: "pay".to_owned(),
        url: "https://pay.example".to_owned(),
        metadata: None,
    };
    for (decision, told) in [
        (Decision::Visited { done: true }, "Answer: done"),
        (Decision::Visited { done: false }, "Answer: not done"),
        (Decision::Declined { message: String::new() }, "Not answered: the person declined"),
    ] {
        let mut script = given(directed());
        script.plans(visit());
        check(&script, says(&script, text("done")), Err(Refusal::BadAnswer(BadAnswer::VisitWanted)));
        script.does(says(&script, decision));
        assert_eq!(last_words(&script), format!("Question: pay (https://pay.example)\n{told}"));
    }
}

#[test]
fn nobody_answers_its_question_in_time() {
    let mut script = given(RunSpec { approval_timeout: Some(Millis::secs(5)), ..directed() });
    script.plans(prompt());
    let expired = script.wakes();
    assert_eq!(kinds(&expired.records), "human_resolved");
    assert_eq!(expired.effects, [Effect::Plan { decision: 2, situation: Situation::HumanAnswered }]);
    assert_eq!(script.plans(finish()), "planned finished");
}

#[test]
fn an_answer_waits_until_no_call_is_open() {
    let mut script = asked([tool("pay")]);
    assert_eq!(script.plans(prompt()), "planned human_requested");
    assert_eq!(kinds(&script.does(says(&script, text("go ahead"))).records), "human_resolved input_held");
    assert_eq!(script.plans(Instruction::CallTools), "planned");
    script.runs(A, "paid");
    assert_eq!(script.plans(Instruction::CallModel), "planned input_entered model_call_started");
    assert_eq!(last_words(&script), "Question: when?\nAnswer: go ahead");
    let mut script = asked([tool("pay")]);
    script.plans(prompt());
    script.does(says(&script, text("never")));
    assert_eq!(script.plans(Instruction::CallModel), "planned call_settled input_entered model_call_started");
    let mut script = asked([tool("pay")]);
    script.plans(prompt());
    script.does(says(&script, text("never")));
    assert_eq!(kinds(&script.aborts().records), "call_settled input_entered finished");
}

#[test]
fn a_question_goes_with_the_run() {
    let mut script = asked([tool("pay")]);
    script.plans(prompt());
    assert_eq!(kinds(&script.aborts().records), "human_resolved call_settled finished");
}

#[test]
fn a_stepped_run_asks_and_rests() {
    let mut script = given(RunSpec { stepped: true, ..directed() });
    script.does(step_on("1"));
    script.plans(prompt());
    check(&script, step_on("2"), Err(Refusal::WrongPhase(Some(RunStatus::AwaitingHuman))));
    let question = script.state().planned_question().expect("it asks").request.clone();
    check(&script, step_by("2", question), Err(Refusal::BadAnswer(BadAnswer::InputWanted)));
    script.does(says(&script, text("tomorrow")));
    assert_eq!((script.status(), script.watch.owed()), (RunStatus::Paused, vec![]));
    script.does(step_on("2"));
    assert_eq!(script.watch.owed(), [Owed::Plan(2)]);
}

// ---- a smaller context

fn compact() -> Instruction {
    Instruction::Compact { strategy: "extract".to_owned() }
}

#[test]
fn it_may_want_a_smaller_context_and_stands_where_it_stood() {
    let mut script = asked([tool("pay")]);
    assert_eq!(script.plans(compact()), "planned compaction_started");
    let Event::CompactionStarted { strategy, reason, .. } = &script.journal.last().unwrap().event else {
        panic!("it begins")
    };
    assert_eq!((strategy.as_str(), *reason), ("extract", CompactionReason::Planned));
    let done = script.does(compacted(1));
    assert_eq!(done.effects.last(), Some(&Effect::Plan { decision: 3, situation: Situation::Compacted }));
    assert_eq!(script.plans(Instruction::CallTools), "planned");
    script.runs(A, "paid");
    assert_eq!(script.watch.owed(), [Owed::Plan(4)]);
}

#[test]
fn a_planned_compaction_that_a_restart_cuts_ends_where_it_would_have() {
    let mut script = asked([tool("pay")]);
    script.plans(compact());
    assert_eq!(kinds(&script.restarts().records), "compaction_started");
    let done = script.does(compacted(2));
    assert_eq!(done.effects.last(), Some(&Effect::Plan { decision: 3, situation: Situation::Compacted }));
}

#[test]
fn a_compaction_that_fails_is_trimmed_and_one_after_the_other_is_nonsense() {
    let mut script = given(directed());
    script.plans(compact());
    assert_eq!(kinds(&script.does(compaction_failed(1)).records), "compaction_failed compaction_started");
    script.does(compacted(2));
    assert_eq!(script.plans(compact()), "planned finished");
    assert_eq!(script.end().unwrap().code, RunErrorCode::ExtensionFailed);
}

#[test]
fn aborted_while_the_context_is_made_smaller_no_call_is_left_open() {
    let mut script = asked([tool("pay"), tool("look")]);
    script.plans(compact());
    assert_eq!(kinds(&script.aborts().records), "call_settled call_settled finished");
}

#[test]
fn a_context_that_is_full_is_made_smaller_as_part_of_the_step() {
    let mut script = given(stepped());
    script.steps("1");
    let (number, attempt) = script.model_call();
    script.does(full(model_asks(number, attempt, &[bad_tool("x")], FinishReason::ToolCalls)));
    assert_eq!(script.steps("2"), "planned compaction_started");
    check(&script, step_on("3"), Err(Refusal::WrongPhase(Some(RunStatus::Compacting))));
    script.does(compacted(1));
    script.says("done");
    let transition = agentloop_core::run::steps::step_of(&run_id(), &script.journal, "2").expect("a step");
    assert_eq!(
        kinds(transition.records),
        "planned compaction_started compacted model_call_started assistant_message"
    );
}
