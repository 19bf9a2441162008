//! A planner in the server's process decides what its runs do next.

use std::collections::VecDeque;
use std::sync::Arc;

use agentloop_client::v1 as wire;
use agentloop_core::message::Role;
use agentloop_core::run::plan::{Instruction, SelectOption, Situation};
use agentloop_core::time::Millis;
use agentloop_server::extension::{ExtensionError, PlanView, Planner};
use agentloop_tests::errors::{assert_invalid, assert_refused, metadata};
use agentloop_tests::events::{names, results, text};
use agentloop_tests::host::Host;
use agentloop_tests::input::named;
use agentloop_tests::model::Model;
use agentloop_tests::server::TestServer;
use agentloop_tests::soon;
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::Notify;
use tonic::Code;
use wire::decision::Decision;
use wire::run_event::Event;
use wire::submit_input_request::Input;
use wire::{HumanRequestKind, RunErrorCode, RunStatus, ToolStatus, WaitKind};

/// A planner's answer to one question.
enum Say {
    Do(Instruction),
    Fail(ExtensionError),
    Panic,
    Never,
}

/// A planner that reads from a script; without one, it decides like the built-in loop, but asks about every call.
#[derive(Clone, Default)]
struct Scripted {
    script: Arc<Mutex<VecDeque<Say>>>,
    seen: Arc<Mutex<Vec<PlanView>>>,
    patience: Option<Millis>,
    asked: Arc<Notify>,
}

impl Scripted {
    fn says(script: impl IntoIterator<Item = Say>) -> Self {
        Self { script: Arc::new(Mutex::new(script.into_iter().collect())), ..Self::default() }
    }

    fn seen(&self) -> Vec<PlanView> {
        self.seen.lock().clone()
    }

    async fn serve(&self, model: &Model, more: &str) -> TestServer {
        let planner = self.clone();
        TestServer::extended(model, more, move |extensions| {
            extensions.add_planner("careful", Arc::new(planner.clone()));
        })
        .await
    }
}

#[async_trait::async_trait]
impl Planner for Scripted {
    fn timeout(&self) -> Millis {
        self.patience.unwrap_or(Millis(300))
    }

    async fn plan(&self, view: PlanView) -> Result<Instruction, ExtensionError> {
        self.seen.lock().push(view.clone());
        self.asked.notify_one();
        let say = self.script.lock().pop_front();
        match say {
            Some(Say::Do(instruction)) => Ok(instruction),
            Some(Say::Fail(error)) => Err(error),
            Some(Say::Panic) => panic!("a planner's fault"),
            Some(Say::Never) => std::future::pending().await,
            None => Ok(match view.situation {
                Situation::Prompted
                | Situation::ToolsSettled
                | Situation::HumanAnswered
                | Situation::Compacted => Instruction::CallModel,
                Situation::CallsWaiting => Instruction::RequestApproval,
                Situation::Responded { .. } => Instruction::Finish { failure: None },
            }),
        }
    }
}

fn planned(prompt: &str) -> wire::RunInput {
    wire::RunInput { planner: Some("careful".to_owned()), ..named("r1", prompt) }
}

fn retryable(message: &str) -> Say {
    Say::Fail(ExtensionError::Failed { message: message.to_owned(), retryable: true })
}

#[tokio::test]
async fn it_asks_a_human_about_what_policy_would_let_run() {
    let model = Model::start().await;
    let planner = Scripted::default();
    let server = planner.serve(&model, "").await;
    let host = Host::start(&server).await;
    model.asks("weather", json!({ "city": "Rome" })).says("sunny");
    let waits = server.run(planned("how is Rome?")).await;
    assert_eq!((waits.status(), host.gate.count("weather")), (RunStatus::AwaitingHuman, 0));
    server.decide(&waits.pending[0].request_id, Decision::Approve(wire::Approve {})).await.expect("decided");
    let done = server.run(planned("how is Rome?")).await;
    assert_eq!(text(&done.final_assistant_message.expect("an answer")), "sunny");

    let events = server.subscribe("r1", 0).await.rest().await;
    let planned = events.iter().filter_map(|event| match &event.event {
        Some(Event::InstructionPlanned(planned)) => Some(planned.clone()),
        _ => None,
    });
    let planned: Vec<_> = planned.collect();
    assert_eq!(planned.len(), 4);
    assert!(planned.iter().all(|planned| planned.planner == "careful" && planned.step_request_id.is_empty()));
    let Some(Event::RunStarted(started)) = &events[0].event else { panic!("{events:?}") };
    assert_eq!(started.planner, "careful");

    let seen = planner.seen();
    assert_eq!(seen.iter().map(|view| view.decision).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert_eq!(seen[0].situation, Situation::Prompted);
    assert_eq!(seen[1].calls.len(), 1);
    assert_eq!((seen[1].calls[0].name.as_str(), seen[1].messages.len()), ("weather", 2));
    assert_eq!(seen[2].messages.last().map(|message| message.role), Some(Role::Tool));
    assert_eq!(seen[3].run.state.iterations(), 2);
}

#[tokio::test]
async fn it_goes_on_without_a_call_and_the_session_stays_whole() {
    let model = Model::start().await;
    let script = [
        Say::Do(Instruction::CallModel),
        Say::Do(Instruction::CallModel),
        Say::Do(Instruction::Finish { failure: None }),
    ];
    let server = Scripted::says(script).serve(&model, "").await;
    let host = Host::start(&server).await;
    model.asks("weather", json!({ "city": "Rome" })).says("I do not know");
    let done = server.run(planned("how is Rome?")).await;
    assert_eq!((done.status(), host.gate.calls()), (RunStatus::Completed, vec![]));
    let events = server.subscribe("r1", 0).await.rest().await;
    assert_eq!(results(&events)[0].status(), ToolStatus::Rejected);
    let read = model.last_request()["messages"].as_array().expect("messages").last().cloned();
    assert!(read.expect("a message")["content"].as_str().is_some_and(|text| text.contains("not run")));
}

#[tokio::test]
async fn the_agent_may_name_it() {
    let model = Model::start().await;
    let planner = Scripted::says([Say::Do(Instruction::Finish { failure: Some("not today".to_owned()) })]);
    let agent = "[agents.planned]\nmodel = \"fake/m\"\nplanner = \"careful\"\n";
    let server = planner.serve(&model, agent).await;
    let input = wire::RunInput { agent: Some("planned".to_owned()), ..named("r1", "hi") };
    let error = server.run(input).await.last_error.expect("it failed");
    assert_eq!((error.code(), error.message.as_str()), (RunErrorCode::ExtensionFailed, "not today"));
    assert_eq!(planner.seen().len(), 1);
}

#[tokio::test]
async fn one_that_nobody_offers_is_refused() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    assert_invalid(server.try_run(planned("hi")).await, &["input.planner"]);
    assert_eq!(model.requests().len(), 0);
}

/// The error of a run whose planner gives this answer, and the number of questions to the planner.
async fn failure(script: impl IntoIterator<Item = Say>) -> (wire::RunError, usize) {
    let model = Model::start().await;
    let planner = Scripted::says(script);
    let server = planner.serve(&model, "").await;
    let done = server.run(planned("hi")).await;
    assert_eq!(done.status(), RunStatus::Failed);
    let events = server.subscribe("r1", 0).await.rest().await;
    assert_eq!(names(&events)[2..], ["instruction_planned", "run_finished"]);
    let error = done.last_error.expect("why");
    assert_eq!(error.code(), RunErrorCode::ExtensionFailed);
    (error, planner.seen().len())
}

#[tokio::test]
async fn a_failing_planner_fails_the_run() {
    let lasting = ExtensionError::Failed { message: "no rules".to_owned(), retryable: false };
    let empty = Instruction::RequestPrompt { question: String::new(), metadata: None };
    for (script, says, asked) in [
        (vec![Say::Fail(lasting)], "no rules", 1),
        (vec![retryable("busy"), retryable("still busy")], "still busy", 2),
        (vec![Say::Never], "no response in time", 1),
        (vec![Say::Panic], "panicked", 1),
        (vec![Say::Do(empty)], "empty", 1),
        (vec![Say::Do(Instruction::CallTools)], "no tool call waits", 1),
    ] {
        let (error, times) = failure(script).await;
        assert!(error.message.contains(says), "{}", error.message);
        assert_eq!(times, asked, "{says}");
    }
}

#[tokio::test]
async fn one_that_failed_in_passing_is_asked_once_more() {
    let model = Model::start().await;
    let planner = Scripted::says([retryable("busy")]);
    let server = planner.serve(&model, "").await;
    model.says("hello");
    assert_eq!(server.run(planned("hi")).await.status(), RunStatus::Completed);
    let decisions: Vec<u32> = planner.seen().iter().map(|view| view.decision).collect();
    assert_eq!(decisions, [1, 1, 2]);
}

#[tokio::test]
async fn a_restart_asks_it_the_same_again() {
    let model = Model::start().await;
    let planner = Scripted::says([Say::Do(Instruction::CallModel), Say::Never]);
    let mut server = planner.serve(&model, "").await;
    let mut speech = model.speaks();
    let mut events = server.stream(planned("hi")).await;
    speech.asked().await;
    speech.say("hello");
    speech.end();
    events.wait_for_name("assistant_message").await;
    let waiting_on = server.get_run("r1").await.waiting_on.expect("it waits");
    assert_eq!((waiting_on.kind(), waiting_on.what.as_str()), (WaitKind::Extension, "careful"));
    server.restart().await;
    let done = server.run(planned("hi")).await;
    assert_eq!(done.status(), RunStatus::Completed);
    let decisions: Vec<u32> = planner.seen().iter().map(|view| view.decision).collect();
    assert_eq!(decisions, [1, 2, 2]);
}

#[tokio::test]
async fn a_stepped_run_asks_it_at_each_step() {
    let model = Model::start().await;
    let planner = Scripted::default();
    let server = planner.serve(&model, "").await;
    let _host = Host::start(&server).await;
    model.asks("weather", json!({ "city": "Rome" })).says("sunny");
    server.run(wire::RunInput { stepped: true, ..planned("how is Rome?") }).await;
    assert_eq!(planner.seen().len(), 0);
    server.step("r1", "1", "").await.expect("a step");
    let asks = server.step("r1", "2", "").await.expect("a step");
    assert_eq!(names(&asks.events), ["instruction_planned", "human_requested"]);
    let Some(Event::InstructionPlanned(planned)) = &asks.events[0].event else { panic!("{asks:?}") };
    assert_eq!((planned.planner.as_str(), planned.step_request_id.as_str()), ("careful", "2"));
    let question = asks.run.expect("a run").pending[0].request_id.clone();
    server.step("r1", "3", &question).await.expect("a step");
    server.step("r1", "4", "").await.expect("a step");
    let done = server.step("r1", "5", "").await.expect("a step");
    assert_eq!(done.run.expect("a run").status(), RunStatus::Completed);
    assert_eq!(planner.seen().len(), 4, "a human's leave needs no planner");
}

#[tokio::test]
async fn an_abort_does_not_wait_for_it() {
    let model = Model::start().await;
    let server = Scripted::says([Say::Never]).serve(&model, "").await;
    let mut events = server.stream(planned("hi")).await;
    events.wait_for_name("input_message").await;
    assert_eq!(server.abort("r1").await.status(), RunStatus::Aborted);
    assert_eq!(names(&events.rest().await).last(), Some(&"run_finished"));
}

#[tokio::test]
async fn a_step_that_an_abort_overtakes_is_refused_to_all_who_called_for_it() {
    let model = Model::start().await;
    let planner = Scripted { patience: Some(Millis(60_000)), ..Scripted::says([Say::Never]) };
    let server = planner.serve(&model, "").await;
    server.run(wire::RunInput { stepped: true, ..planned("hi") }).await;
    let overtaken = async {
        tokio::join!(server.step("r1", "1", ""), server.step("r1", "1", ""), async {
            soon(planner.asked.notified()).await;
            server.abort("r1").await
        })
    };
    let (first, second, aborted) = soon(Box::pin(overtaken)).await;
    for cut in [first, second] {
        assert_eq!(
            metadata(&assert_refused(cut, Code::FailedPrecondition, "WRONG_STATE"), "status"),
            "aborted"
        );
    }
    assert_eq!(aborted.status(), RunStatus::Aborted);
}

fn by(answer: Input, question: &wire::HumanRequest) -> wire::SubmitInputRequest {
    let request_id = question.request_id.clone();
    wire::SubmitInputRequest { request_id, answered_by: "ada".to_owned(), input: Some(answer) }
}

#[tokio::test]
async fn a_planners_question_survives_a_restart_and_its_answer_becomes_a_message() {
    let facts = || Some(r#"{"page":3}"#.to_owned());
    let option = |id: &str, label: &str| SelectOption { id: id.to_owned(), label: label.to_owned() };
    let options = vec![option("r", "Rome"), option("u", "Ulm")];
    let select = Instruction::RequestSelect {
        question: "Where?".to_owned(),
        options,
        multiple: false,
        metadata: facts(),
    };
    let prompt = Instruction::RequestPrompt { question: "When?".to_owned(), metadata: facts() };
    let selection = Input::Selection(wire::Selection { option_ids: vec!["u".to_owned()] });
    let schema = r#"{"type":"object","properties":{"day":{"type":"string"}}}"#;
    let form =
        Instruction::RequestForm { question: "When?".to_owned(), form: schema.to_owned(), metadata: facts() };
    let filled = Input::FormJson(r#"{"day":"tomorrow"}"#.to_owned());
    let url = "https://pay.example".to_owned();
    let visit = Instruction::RequestUrl { question: "Pay".to_owned(), url, metadata: facts() };
    let done = Input::Url(wire::UrlOutcome::Done.into());
    for (instruction, kind, answer, said) in [
        (
            prompt,
            HumanRequestKind::Prompt,
            Input::Text("tomorrow".to_owned()),
            "Question: When?\nAnswer: tomorrow",
        ),
        (select, HumanRequestKind::Select, selection, "Question: Where?\nAnswer: Ulm"),
        (form, HumanRequestKind::Form, filled, "Question: When?\nAnswer: {\"day\":\"tomorrow\"}"),
        (visit, HumanRequestKind::Url, done, "Question: Pay (https://pay.example)\nAnswer: done"),
    ] {
        let model = Model::start().await;
        let planner = Scripted::says([Say::Do(instruction)]);
        let mut server = planner.serve(&model, "").await;
        let waits = server.run(planned("I want to travel")).await;
        assert_eq!(waits.status(), RunStatus::AwaitingHuman);
        let question = waits.pending[0].clone();
        assert_eq!((question.kind(), Some(question.metadata_json.clone())), (kind, facts()));
        server.restart().await;
        assert_eq!(server.pending().await, std::slice::from_ref(&question));
        assert_eq!(planner.seen().len(), 1, "a parked run asks nobody");
        model.says("noted");
        soon(server.agent_loop().submit_input(by(answer, &question))).await.expect("answered");
        assert_eq!(server.run(planned("I want to travel")).await.status(), RunStatus::Completed);
        assert_eq!(planner.seen()[1].situation, Situation::HumanAnswered);
        let read = model.last_request()["messages"].as_array().expect("messages").last().cloned();
        assert_eq!(read.expect("a message")["content"], said);
    }
}

#[tokio::test]
async fn it_may_have_the_context_made_smaller() {
    let model = Model::start().await;
    let compact = Instruction::Compact { strategy: "truncate".to_owned() };
    let planner =
        Scripted::says([Say::Do(Instruction::CallModel), Say::Do(compact), Say::Do(Instruction::CallModel)]);
    let server = planner.serve(&model, "").await;
    model.says("one").says("two");
    let policy = wire::ContextPolicy { keep_recent: Some(1), ..Default::default() };
    let done = server.run(wire::RunInput { context_policy: Some(policy), ..planned("count") }).await;
    assert_eq!((done.status(), done.last_error), (RunStatus::Completed, None));
    let events = server.subscribe("r1", 0).await.rest().await;
    let names = names(&events);
    let began = names.iter().position(|name| *name == "compaction_started").expect("it began");
    assert_eq!(
        names[began - 1..began + 3],
        ["instruction_planned", "compaction_started", "context_compacted", "instruction_planned"]
    );
    let Some(Event::CompactionStarted(started)) = &events[began].event else {
        unreachable!("its name says so")
    };
    assert_eq!((started.strategy.as_str(), started.reason()), ("truncate", wire::CompactionReason::Planned));
    assert_eq!(planner.seen()[2].situation, Situation::Compacted);
    let read = model.last_request()["messages"].to_string();
    assert!(read.contains("one") && read.contains("left out"), "{read}");
}
