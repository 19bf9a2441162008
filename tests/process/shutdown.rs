//! The server told to stop, or killed, with much to do, and a database that is in use.

use agentloop_client::v1 as wire;
use agentloop_client::v1::Approve;
use agentloop_client::v1::decision::Decision;
use agentloop_tests::raw_host::{RawHost, declared, hello, result_of};
use serde_json::json;
use tonic::transport::Endpoint;
use wire::connect_request::Frame;
use wire::connect_response::Frame as ServerFrame;
use wire::{EffectClass, RunStatus, ToolStatus};

use crate::support::follow::Follower;
use crate::support::host::Host;
use crate::support::model::{Call, Model};
use crate::support::server::{Server, input};

/// Runs in each of three places: the model speaks, a tool works, a human is asked.
const EACH: usize = 4;

#[tokio::test]
async fn under_load_loses_nothing() {
    let model = Model::start().await;
    let mut server = Server::start(&model.setting()).await;
    loses_nothing(model, &mut server, async |server| {
        let (code, said) = server.terminate().await;
        assert_eq!(code, 0, "{said}");
    })
    .await;
}

#[tokio::test]
async fn killed_under_load_it_loses_nothing() {
    let model = Model::start().await;
    let mut server = Server::start(&model.setting()).await;
    loses_nothing(model, &mut server, Server::kill).await;
}

async fn loses_nothing(mut model: Model, server: &mut Server, stop: impl AsyncFn(&mut Server)) {
    let host = Host::start(server, "h-1").await;
    let (mut speaking, cut) = speaking(server, &mut model).await;
    let mut charging = using(server, &mut model, "charge", json!({ "seconds": 3.0 })).await;
    let mut asking = using(server, &mut model, "send_email", json!({ "to": "a@example.com" })).await;
    for run in &mut asking {
        run.question().await;
    }
    for run in &charging {
        host.does(&format!("charge {}", run.run_id())).await;
    }

    stop(server).await;
    drop(cut);
    server.start_again().await;

    for run in &asking {
        let question = server.question(run.run_id()).await;
        run.decide(&question, Decision::Approve(Approve {})).await;
    }
    model.answers_by(async |call| {
        let request = call.request.to_string();
        let name = request.split("I am ").nth(1).and_then(|rest| rest.split('.').next());
        let name = name.expect("every run says who it is");
        call.say(&format!("The answer of {name}.")).await;
    });
    for run in speaking.iter_mut().chain(&mut charging).chain(&mut asking) {
        assert_eq!(run.answer().await, format!("The answer of {}.", run.run_id()));
    }
    assert_eq!((host.did("charge").len(), host.did("send_email").len()), (EACH, EACH));
}

/// Runs whose model has begun to answer, and its calls.
async fn speaking(server: &Server, model: &mut Model) -> (Vec<Follower>, Vec<Call>) {
    let (mut runs, mut calls) = (Vec::new(), Vec::new());
    for number in 0..EACH {
        let (run, mut call) = start(server, model, "speak", number).await;
        call.begin("The ans").await;
        runs.push(run);
        calls.push(call);
    }
    (runs, calls)
}

/// Runs that use a tool.
async fn using(
    server: &Server,
    model: &mut Model,
    tool: &str,
    arguments: serde_json::Value,
) -> Vec<Follower> {
    let mut runs = Vec::new();
    for number in 0..EACH {
        let (run, call) = start(server, model, tool, number).await;
        call.use_tool(tool, arguments.clone()).await;
        runs.push(run);
    }
    runs
}

async fn start(server: &Server, model: &mut Model, what: &str, number: usize) -> (Follower, Call) {
    let (run_id, session_id) = (format!("{what}-{number}"), format!("s-{what}-{number}"));
    let run = Follower::start(server, input(&run_id, &session_id, &format!("I am {run_id}."))).await;
    (run, model.call_about(&format!("I am {run_id}.")).await)
}

#[tokio::test]
async fn a_second_server_on_the_same_database_is_refused() {
    let mut model = Model::start().await;
    let server = Server::start(&model.setting()).await;
    let (code, said) = server.another().ended().await;
    assert_ne!(code, 0);
    assert!(said.contains("agentloop.db") && said.contains("in use"), "{said}");

    // The first one is as well as before.
    let mut run = Follower::start(&server, input("r-1", "s-1", "Hello")).await;
    model.call().await.say("Hello.").await;
    assert_eq!(run.answer().await, "Hello.");
}

/// A stopped process keeps its lock: nobody takes its runs while it may still wake up and write.
#[tokio::test]
async fn a_second_server_is_refused_while_the_first_one_is_frozen() {
    let mut model = Model::start().await;
    let server = Server::start(&model.setting()).await;
    let mut run = Follower::start(&server, input("r-1", "s-1", "Hello")).await;
    let call = model.call().await;

    server.signal("STOP").await;
    let (code, said) = server.another().ended().await;
    server.signal("CONT").await;

    assert_ne!(code, 0);
    let process = format!("process {}", server.pid());
    assert!(said.contains("in use") && said.contains(&process), "{said}");
    call.say("Good morning.").await;
    assert_eq!(run.answer().await, "Good morning.");
}

/// A host of one process, `p-1`, that runs `pay` and has these calls in hand.
async fn host_of(server: &Server, calls_in_hand: Vec<wire::CallInHand>) -> RawHost {
    let channel =
        Endpoint::from_shared(server.url()).expect("an address").connect().await.expect("connected");
    let mut host = RawHost::over(channel).await;
    let tools = vec![declared("pay", EffectClass::Unsafe)];
    let instance_id = "p-1".to_owned();
    host.send(Frame::Hello(wire::Hello { instance_id, calls_in_hand, ..hello("h-1", tools) }));
    host.wait_for(|frame| matches!(frame, ServerFrame::Welcome(_))).await;
    host
}

async fn next_call(host: &mut RawHost) -> wire::CallRequest {
    match host.wait_for(|frame| matches!(frame, ServerFrame::CallRequest(_))).await {
        ServerFrame::CallRequest(call) => call,
        _ => unreachable!("it was waited for"),
    }
}

/// A host is slow to accept: it has eight calls when the server is told to stop, and has begun none. It accepts half of
/// them then and never hears of the others again.
#[tokio::test]
async fn told_to_stop_before_a_host_accepts_it_puts_no_call_in_doubt() {
    const CALLS: usize = 8;
    let mut model = Model::start().await;
    let mut server = Server::start(&model.setting()).await;
    let mut host = host_of(&server, Vec::new()).await;
    let max_parallel = u32::try_from(CALLS).ok();
    let policy = wire::ToolPolicy { max_parallel, ..wire::ToolPolicy::default() };
    let input = wire::RunInput { tool_policy: Some(policy), ..input("r-1", "s-1", "Pay.") };
    let mut run = Follower::start(&server, input).await;
    let calls = (0..CALLS).map(|number| ("pay", json!({ "x": number.to_string() }))).collect::<Vec<_>>();
    model.call().await.use_tools(&calls).await;
    let mut offered = Vec::new();
    for _ in 0..CALLS {
        offered.push(next_call(&mut host).await);
    }

    server.signal("TERM").await;
    let begun = offered.split_off(CALLS / 2);
    for call in &begun {
        let (call_id, attempt) = (call.call_id.clone(), call.attempt);
        host.send(Frame::CallAccepted(wire::CallAccepted { call_id, attempt }));
    }
    // The result of a call that was begun counts as long as the server is there.
    let (first, rest) = begun.split_first().expect("some were begun");
    host.send(Frame::CallResult(result_of(first, "paid")));
    let acknowledged = host.wait_for(|frame| matches!(frame, ServerFrame::ResultAck(_))).await;
    let ServerFrame::ResultAck(acknowledged) = acknowledged else { unreachable!("it was waited for") };
    assert_eq!(acknowledged.call_id, first.call_id);
    let (code, said) = server.take().ended().await;
    assert_eq!(code, 0, "{said}");
    drop(host);

    server.start_again().await;
    let in_hand = |call: &wire::CallRequest| wire::CallInHand {
        call_id: call.call_id.clone(),
        attempt: call.attempt,
        lease_token: call.lease_token.clone(),
        finished: false,
    };
    let mut host = host_of(&server, rest.iter().map(in_hand).collect()).await;
    for call in rest {
        host.send(Frame::CallResult(result_of(call, "paid")));
    }
    for _ in &offered {
        let again = host.take_call().await;
        assert!(again.attempt == 2 && offered.iter().any(|call| call.call_id == again.call_id), "{again:?}");
        host.send(Frame::CallResult(result_of(&again, "paid")));
    }
    model.call().await.say("All paid.").await;
    let finished = run.finished().await;
    assert_eq!(finished.status(), RunStatus::Completed);
    let settled = |event: &wire::run_event::Event| match event {
        wire::run_event::Event::ToolCallResult(result) => {
            result.result.as_ref().is_some_and(|result| result.status() == ToolStatus::Succeeded)
        }
        _ => false,
    };
    assert_eq!(run.count(settled), CALLS);
    let asked = |event: &wire::run_event::Event| matches!(event, wire::run_event::Event::HumanRequested(_));
    assert_eq!(run.count(asked), 0, "nothing is in doubt");
}
