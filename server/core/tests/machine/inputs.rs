//! The model asks a human for text or a choice: the answer is the call's result.

use agentloop_core::agent::RunSpec;
use agentloop_core::id::Attempt;
use agentloop_core::message::ToolStatus;
use agentloop_core::policy::{Approvers, PolicyAction, PolicyRule, RuleOrigin};
use agentloop_core::run::effect::Effect;
use agentloop_core::run::human::{BadAnswer, Decision, QuestionKind};
use agentloop_core::run::refusal::Refusal;
use agentloop_core::run::state::CallState;
use agentloop_core::run::status::RunStatus;
use agentloop_core::run::view::{LoopPhase, PlanningGaps, WaitKind, loop_position};
use agentloop_core::time::Millis;

use crate::support::*;

fn text(text: &str) -> Decision {
    Decision::Text { text: text.to_owned() }
}

fn selected(options: &[&str]) -> Decision {
    Decision::Selected { options: options.iter().map(|id| (*id).to_owned()).collect() }
}

fn choice(multiple: bool) -> Tool {
    let arguments =
        format!(r#"{{"question":"which?","options":["red","blue","green"],"multiple":{multiple}}}"#);
    question("").with(&arguments)
}

#[test]
fn a_question_waits_and_its_answer_is_the_result() {
    let mut script = given(spec());
    let transition = script.asks([question("which city?")]);
    assert_eq!(kinds(&transition.records), "assistant_message call_proposed human_requested");
    assert_eq!(
        transition.effects,
        [Effect::StopModel { model_call: 1, attempt: Attempt(1) }],
        "no host is sought"
    );
    assert_eq!(script.status(), RunStatus::AwaitingHuman);
    let asked = script.question(A).expect("it is asked");
    assert_eq!(asked.request.as_str(), "run-1:1.0:0.1");
    assert_eq!(
        (asked.kind, asked.tool.as_str(), asked.arguments.as_str()),
        (QuestionKind::Prompt, "ask_human", "")
    );
    assert_eq!(asked.content.as_ref().map(|content| content.text.as_str()), Some("which city?"));
    let waiting = script.state().waiting_on().expect("it waits");
    assert_eq!((waiting.kind, waiting.what.as_str()), (WaitKind::Human, "run-1:1.0:0.1 (ask_human)"));
    let transition = script.decides(A, text("Ulm"));
    assert_eq!(kinds(&transition.records), "human_resolved call_settled model_call_started");
    let told = "Question: which city?\nAnswer: Ulm".to_owned();
    assert_eq!(script.result(A), (ToolStatus::Answered, told), "an answer alone tells the model nothing");
}

/// The answer, its result and the next model call are written together, so no list shows a status in between. Of the events, the
/// result tells of the round that it ends, as every result does.
#[test]
fn an_answer_goes_on_to_the_model_in_one_step() {
    let mut script = given_round(spec(), [question("which city?")]);
    let transition = script.decides(A, text("Ulm"));
    let (mut gaps, mut told) = (PlanningGaps::default(), Vec::new());
    for record in &transition.records {
        let plans_before = gaps.precedes(&record.event, record.status);
        told.push((record.status, loop_position(&record.event, record.status).0, plans_before));
    }
    assert_eq!(
        told,
        [
            (RunStatus::AwaitingHuman, LoopPhase::Executing, false),
            (RunStatus::ToolRunning, LoopPhase::Observing, false),
            (RunStatus::ModelRunning, LoopPhase::Executing, true),
        ]
    );
}

#[test]
fn a_choice_is_told_by_its_labels() {
    let mut script = given_round(spec(), [choice(false)]);
    assert_eq!(script.question(A).map(|asked| asked.kind), Some(QuestionKind::Select));
    script.decides(A, selected(&["2"]));
    assert_eq!(script.result(A), (ToolStatus::Answered, "Question: which?\nAnswer: blue".to_owned()));
    let mut script = given_round(spec(), [choice(true)]);
    script.decides(A, selected(&["3", "1"]));
    let told = "Question: which?\nAnswers:\n- red\n- green".to_owned();
    assert_eq!(script.result(A), (ToolStatus::Answered, told));
    let mut script = given_round(spec(), [choice(true)]);
    script.decides(A, selected(&[]));
    let told = "Question: which?\nAnswer: none of the options".to_owned();
    assert_eq!(script.result(A), (ToolStatus::Answered, told));
}

/// A form of a name and an age.
fn form() -> Tool {
    let schema = r#"{"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer","minimum":18}},"required":["name"]}"#;
    question("").with(&format!(r#"{{"question":"who?","form":{schema}}}"#))
}

fn filled(fields: &str) -> Decision {
    Decision::Filled { fields: fields.to_owned() }
}

#[test]
fn a_form_is_checked_before_its_answer_counts() {
    let mut script = given_round(spec(), [form()]);
    assert_eq!(script.question(A).map(|asked| asked.kind), Some(QuestionKind::Form));
    for (answer, at) in [
        (r#"{"age":20}"#, "name"),
        (r#"{"name":"Zoe","age":17}"#, "age"),
        (r#"{"name":"Zoe","pin":1}"#, "pin"),
        ("yes", ""),
    ] {
        let refusal = script.clone().refuses(script.decision(A, filled(answer)));
        let Refusal::BadAnswer(BadAnswer::Field { field, .. }) = refusal else { panic!("{refusal:?}") };
        assert_eq!(field, at, "{answer}");
    }
    assert_eq!(
        script.clone().refuses(script.decision(A, text("Zoe"))),
        Refusal::BadAnswer(BadAnswer::FormWanted)
    );
    let again = script.decision(A, filled(r#"{ "age": 18, "name": "Zoe" }"#));
    script.decides(A, filled(r#"{"name":"Zoe","age":18}"#));
    let told = r#"{"age":18,"name":"Zoe"}"#;
    assert_eq!(script.result(A), (ToolStatus::Answered, format!("Question: who?\nAnswer: {told}")));
    check(&script, again, Ok(""));
}

#[test]
fn a_form_that_is_none_is_told_to_the_model() {
    let mut script = given(spec());
    let nested = r#"{"question":"who?","form":{"type":"object","properties":{"a":{"type":"object"}}}}"#;
    script.asks([question("").with(nested)]);
    let (status, told) = script.result(A);
    assert_eq!(status, ToolStatus::Rejected);
    assert!(told.starts_with("form: properties.a:"), "{told}");
}

#[test]
fn every_question_that_is_not_about_a_call_may_be_declined() {
    for tool in [question("x?"), choice(false), choice(true), form()] {
        let mut script = given_round(spec(), [tool]);
        script.decides(A, Decision::Declined { message: "ask Ada".to_owned() });
        let (status, told) = script.result(A);
        assert_eq!(status, ToolStatus::Denied);
        assert!(told.ends_with("?\nNot answered: the person declined: ask Ada"), "{told}");
        assert_eq!(script.status(), RunStatus::ModelRunning);
    }
    let script = given_round(spec(), [tool("pay").approval()]);
    let declined = Decision::Declined { message: String::new() };
    let refusal = script.clone().refuses(script.decision(A, declined));
    assert_eq!(refusal, Refusal::BadAnswer(BadAnswer::DecisionWanted));
}

#[test]
fn an_answer_has_to_fit() {
    let refusals = |tool: Tool, cases: &[(Decision, BadAnswer)]| {
        let script = given_round(spec(), [tool]);
        for (decision, bad) in cases {
            let refusal = script.clone().refuses(script.decision(A, decision.clone()));
            assert_eq!(refusal, Refusal::BadAnswer(bad.clone()), "{decision:?}");
        }
    };
    refusals(
        question("x?"),
        &[
            (selected(&["1"]), BadAnswer::TextWanted),
            (Decision::Approve, BadAnswer::InputWanted),
            (text(""), BadAnswer::EmptyText),
            (filled("{}"), BadAnswer::TextWanted),
        ],
    );
    let unknown = || BadAnswer::UnknownOption("9".to_owned());
    refusals(
        choice(false),
        &[
            (text("red"), BadAnswer::SelectionWanted),
            (selected(&["9"]), unknown()),
            (selected(&["1", "2"]), BadAnswer::OneWanted),
            (selected(&[]), BadAnswer::OneWanted),
            (deny(), BadAnswer::InputWanted),
        ],
    );
    refusals(choice(true), &[(selected(&["1", "9"]), unknown())]);
    let approval = given_round(spec(), [tool("pay").approval()]);
    let refusal = approval.clone().refuses(approval.decision(A, text("yes")));
    assert_eq!(refusal, Refusal::BadAnswer(BadAnswer::DecisionWanted));
}

#[test]
fn the_first_answer_counts_and_the_same_again_is_confirmed() {
    let mut script = given_round(spec(), [choice(true)]);
    let first = script.decision(A, selected(&["3", "1"]));
    let again = script.decision(A, selected(&["1", "3", "1"]));
    let other = script.decision(A, selected(&["1"]));
    script.does(first);
    check(&script, again, Ok(""));
    assert!(matches!(script.refuses(other), Refusal::AlreadyResolved(_)));
}

#[test]
fn nobody_answers_in_time() {
    let patient = RunSpec { approval_timeout: Some(Millis::secs(30)), ..spec() };
    let mut script = given_round(patient, [question("x?")]);
    script.later(Millis::secs(30));
    script.wakes();
    let told = "Question: x?\nNot answered: nobody answered in time".to_owned();
    assert_eq!(script.result(A), (ToolStatus::Denied, told));
    assert_eq!(script.status(), RunStatus::ModelRunning);
}

#[test]
fn what_can_run_runs_meanwhile() {
    let mut script = given_round(spec(), [question("x?"), tool("look"), tool("pay").approval()]);
    assert_eq!(script.status(), RunStatus::ToolRunning);
    script.runs(B, "seen");
    assert_eq!(script.status(), RunStatus::AwaitingHuman);
    script.decides(A, text("y"));
    script.decides(C, deny());
    assert_eq!(script.status(), RunStatus::ModelRunning);
}

#[test]
fn an_abort_withdraws_the_question() {
    let mut script = given_round(spec(), [question("x?")]);
    script.aborts();
    assert_eq!(script.result(A).0, ToolStatus::Aborted);
    assert_eq!(script.state().open_questions().count(), 0);
}

#[test]
fn a_rule_can_deny_asking_but_not_ask_about_it() {
    let ruled = |action| {
        let mut spec = spec();
        let rule = PolicyRule {
            name: String::new(),
            action,
            tool: String::new(),
            arguments: vec![],
            origin: RuleOrigin::Agent,
            terms: None,
            approvers: Approvers::default(),
            made_under: None,
        };
        spec.tool_policy.rules = vec![rule];
        given_round(spec, [question("x?")])
    };
    assert_eq!(ruled(PolicyAction::Deny).result(A).0, ToolStatus::Rejected);
    assert!(matches!(ruled(PolicyAction::Ask).call_state(A), CallState::AwaitingInput { .. }));
}

#[test]
fn arguments_that_ask_nothing_are_told_to_the_model() {
    let mut script = given(spec());
    script.asks([question("").with("{}")]);
    assert_eq!(script.result(A).0, ToolStatus::Rejected);
    assert_eq!(script.status(), RunStatus::ModelRunning);
}
