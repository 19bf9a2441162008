//! A planner on a host decides what its runs do next.

use agentloop_client::v1 as wire;
use agentloop_tests::input::named;
use agentloop_tests::model::Model;
use agentloop_tests::raw_host::{Offer, RawHost};
use agentloop_tests::server::TestServer;
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

/// What the planner is asked, and the request that it has to name.
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
async fn where_its_host_is_lost_another_is_asked_and_without_one_the_run_fails() {
    let model = Model::start().await;
    let server = TestServer::with(&model, "[hosts]\nhost_wait = \"1s\"\n").await;
    let mut first = RawHost::extending(&server, "first", offer()).await;
    let events = server.stream(planned()).await;
    let (_, plan) = asked(&mut first).await;
    assert_eq!(plan.decision, 1);
    let mut second = RawHost::extending(&server, "second", offer()).await;
    drop(first);
    let (_, again) = asked(&mut second).await;
    assert_eq!(again.decision, 1, "the same decision");
    drop(second);
    let events = events.rest().await;
    assert_eq!(events.last().map(wire::RunEvent::status), Some(RunStatus::Failed));
    let error = server.get_run("r1").await.last_error.expect("why");
    assert_eq!(error.code(), RunErrorCode::ExtensionFailed);
}
