//! A planner on a host decides what its runs do next.

use agentloop_client::v1 as wire;
use agentloop_tests::input::named;
use agentloop_tests::model::Model;
use agentloop_tests::raw_host::{Offer, RawHost};
use agentloop_tests::server::TestServer;
use wire::connect_request::Frame;
use wire::connect_response::Frame as ServerFrame;
use wire::extension_request::Request;
use wire::extension_response::Response;
use wire::instruction::Instruction;
use wire::run_event::Event;
use wire::{PlanSituation, RunErrorCode, RunStatus};

fn offer() -> Vec<Offer> {
    vec![Offer::Planner(wire::PlannerDeclaration { name: "remote".to_owned(), ..Default::default() })]
}

fn planned() -> wire::RunInput {
    wire::RunInput { planner: Some("remote".to_owned()), ..named("r1", "hi") }
}

fn does(instruction: Instruction) -> Response {
    Response::Instruction(wire::Instruction { instruction: Some(instruction) })
}

/// The planner's next question, and the request id that its answer must name.
async fn asked(host: &mut RawHost) -> (wire::ExtensionRequest, wire::PlanRequest) {
    let request = host.asked().await;
    match request.request.clone() {
        Some(Request::Plan(plan)) => (request, plan),
        other => panic!("a planner is asked for a plan: {other:?}"),
    }
}

#[tokio::test]
async fn it_decides_each_step_over_the_stream() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let mut host = RawHost::extending(&server, "h", offer()).await;
    model.says("hello");
    let events = server.stream(planned()).await;
    let (request, first) = asked(&mut host).await;
    assert_eq!((first.situation(), first.decision), (PlanSituation::Prompted, 1));
    assert_eq!(first.messages.len(), 1);
    host.answers(&request, does(Instruction::CallModel(wire::CallModelInstruction {})));
    let (request, second) = asked(&mut host).await;
    assert_eq!((second.situation(), second.decision), (PlanSituation::Answered, 2));
    host.answers(&request, does(Instruction::Finish(wire::FinishInstruction::default())));
    let events = events.rest().await;
    assert_eq!(events.last().map(wire::RunEvent::status), Some(RunStatus::Completed));
    let by = events.iter().filter_map(|event| match &event.event {
        Some(Event::InstructionPlanned(planned)) => Some(planned.planner.clone()),
        _ => None,
    });
    assert_eq!(by.collect::<Vec<_>>(), ["remote", "remote"]);
}

#[tokio::test]
async fn if_its_host_is_lost_another_is_asked_or_the_run_fails() {
    let model = Model::start().await;
    let server = TestServer::with(&model, "[hosts]\nhost_wait = \"1s\"\n").await;
    let mut first = RawHost::extending(&server, "first", within(8)).await;
    let events = server.stream(planned()).await;
    let (_, plan) = asked(&mut first).await;
    assert_eq!(plan.decision, 1);
    let mut second = RawHost::extending(&server, "second", within(8)).await;
    drop(first);
    let (_, again) = asked(&mut second).await;
    assert_eq!(again.decision, 1, "the same decision");
    drop(second);
    let events = events.rest().await;
    assert_eq!(events.last().map(wire::RunEvent::status), Some(RunStatus::Failed));
    let error = server.get_run("r1").await.last_error.expect("why");
    assert_eq!(error.code(), RunErrorCode::ExtensionFailed);
}

/// A planner that has a second to answer.
fn hasty() -> Vec<Offer> {
    within(1)
}

/// A planner that has so many seconds to answer, whoever of its hosts is asked.
fn within(seconds: i64) -> Vec<Offer> {
    let timeout = Some(prost_types::Duration { seconds, nanos: 0 });
    vec![Offer::Planner(wire::PlannerDeclaration {
        name: "remote".to_owned(),
        timeout,
        ..Default::default()
    })]
}

/// The error of a run whose planner gives this answer. The planner is asked once.
async fn failure_of(answer: impl Fn(&RawHost, &wire::ExtensionRequest)) -> String {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let mut host = RawHost::extending(&server, "h", hasty()).await;
    let events = server.stream(planned()).await;
    let ending = events.rest();
    tokio::pin!(ending);
    let mut questions = 0;
    let events = loop {
        tokio::select! { biased;
            events = &mut ending => break events,
            frame = host.next() => match frame {
                Ok(Some(ServerFrame::ExtensionRequest(request))) => {
                    questions += 1;
                    answer(&host, &request);
                }
                Ok(Some(_)) => {}
                // A stream that broke the protocol is over, and the run ends without it.
                Ok(None) | Err(_) => break ending.await,
            },
        }
    };
    assert_eq!(events.last().map(wire::RunEvent::status), Some(RunStatus::Failed));
    assert_eq!((questions, model.requests().len()), (1, 0));
    let error = server.get_run("r1").await.last_error.expect("why");
    assert_eq!(error.code(), RunErrorCode::ExtensionFailed);
    model.says("hello");
    let session_id = Some(server.get_run("r1").await.session_id);
    let next = wire::RunInput { session_id, ..named("r2", "hi") };
    assert_eq!(server.run(next).await.status(), RunStatus::Completed, "the session takes the next message");
    error.message
}

#[tokio::test]
async fn nonsense_from_it_fails_the_run_and_nothing_else() {
    let instruction = |instruction| Response::Instruction(wire::Instruction { instruction });
    let question = Instruction::RequestHumanPrompt(wire::RequestPromptInstruction::default());
    for (says, words) in [
        // An instruction of a later version of the contract.
        (instruction(None), "says what to do"),
        (instruction(Some(question)), "its response is invalid"),
        (does(Instruction::CallTools(wire::CallToolsInstruction {})), "no tool call waits"),
        (Response::Hook(wire::HookVerdict::default()), "a planner must respond with an instruction"),
    ] {
        let said = failure_of(|host, request| host.answers(request, says.clone())).await;
        assert!(said.contains(words), "{said}");
    }
    let empty = failure_of(|host, request| {
        let request_id = request.request_id.clone();
        host.send(Frame::ExtensionResponse(wire::ExtensionResponse { request_id, response: None }));
    });
    assert!(empty.await.contains("the response is empty"));
}

#[tokio::test]
async fn one_that_does_not_answer_what_it_was_asked_is_late() {
    let finish = || does(Instruction::Finish(wire::FinishInstruction::default()));
    let silence = failure_of(|_, _| {}).await;
    let another = failure_of(|host, request| {
        for request_id in ["", "x", "0-1", "0000000000000000-1", &format!("{}0", request.request_id)] {
            host.answers(
                &wire::ExtensionRequest { request_id: request_id.to_owned(), ..request.clone() },
                finish(),
            );
        }
    });
    let broken = failure_of(|host, _| host.send(Frame::CallResult(wire::CallResult::default())));
    for said in [silence, another.await, broken.await] {
        assert!(said.contains("no response in time"), "{said}");
    }
}

#[tokio::test]
async fn a_second_answer_to_the_same_question_changes_nothing() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let mut host = RawHost::extending(&server, "h", hasty()).await;
    let events = server.stream(planned()).await;
    let (request, _) = asked(&mut host).await;
    for failure in ["", "on second thoughts"] {
        let finish = wire::FinishInstruction { failure: failure.to_owned() };
        host.answers(&request, does(Instruction::Finish(finish)));
    }
    let events = events.rest().await;
    assert_eq!(events.last().map(wire::RunEvent::status), Some(RunStatus::Completed));
    let _second = server.stream(wire::RunInput { run_id: Some("r2".to_owned()), ..planned() }).await;
    let (_, again) = asked(&mut host).await;
    assert_eq!(again.decision, 1, "its stream goes on");
}
