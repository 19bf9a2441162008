//! Messages that are delivered to a live run.

use agentloop_client::v1 as wire;
use agentloop_tests::errors::assert_refused;
use agentloop_tests::events::{assert_dense, name, names};
use agentloop_tests::host::Host;
use agentloop_tests::input::in_session;
use agentloop_tests::model::{Answer, Model};
use agentloop_tests::server::TestServer;
use agentloop_tests::soon;
use serde_json::json;
use tonic::Code;
use wire::RunStatus;

use super::{read, said, steering};

#[tokio::test]
async fn they_are_read_with_the_next_model_call() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let host = Host::start(&server).await;
    model.asks("hold", json!({ "x": "y" })).says("done");
    let _first = server.stream(in_session("s1", "r1", "one")).await;
    host.gate.began(1).await;
    let mut steered = server.stream(steering("more", "make haste")).await;
    steered.wait_for(|event| event.seq > 2 && name(event) == "input_message").await;
    host.gate.open(1);
    let events = steered.rest().await;
    assert!(events.iter().all(|event| event.run_id == "r1"), "it is the live run that is shown");
    assert_dense(&events, 1);
    let from = events.iter().filter_map(|event| match &event.event {
        Some(wire::run_event::Event::InputMessage(input)) => Some(input.steer_id.clone()),
        _ => None,
    });
    assert_eq!(from.collect::<Vec<_>>(), ["", "more"], "each says which request it came with");
    let names = names(&events);
    let entered = names.iter().position(|name| *name == "input_entered").expect("it entered");
    assert_eq!(names[entered + 1], "model_call_started");
    assert_eq!(read(&model.last_request()), ["one", "", "held", "make haste"]);
    assert_eq!(said(&server).await.last().map(String::as_str), Some("done"));
    let request = wire::GetRunRequest { run_id: "more".to_owned() };
    let none = soon(server.agent_loop().get_run(request)).await;
    assert_refused(none, Code::NotFound, "RUN_NOT_FOUND");
}

#[tokio::test]
async fn a_run_that_would_end_asks_the_model_again() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let mut speech = model.speaks();
    let first = server.stream(in_session("s1", "r1", "one")).await;
    speech.asked().await;
    let mut steered = server.stream(steering("more", "and two?")).await;
    steered.wait_for(|event| event.seq > 3 && name(event) == "input_message").await;
    model.says("two");
    speech.say("one");
    speech.end();
    let result = server.run(steering("more", "and two?")).await;
    assert_eq!((result.run_id.as_str(), result.status()), ("r1", RunStatus::Completed));
    assert_eq!(said(&server).await, ["one", "one", "and two?", "two"]);
    first.rest().await;
    steered.rest().await;
}

#[tokio::test]
async fn the_same_request_again_says_nothing_twice() {
    let model = Model::start().await;
    let mut server = TestServer::start(&model).await;
    let host = Host::start(&server).await;
    model.asks("mail", json!({ "to": "bob" }));
    server.run(in_session("s1", "r1", "one")).await;
    let result = server.run(steering("more", "make haste")).await;
    assert_eq!((result.run_id.as_str(), result.status()), ("r1", RunStatus::AwaitingHuman));
    drop(host);
    server.restart().await;
    server.run(steering("more", "make haste")).await;
    let reused = server.try_run(steering("more", "take your time")).await;
    assert_refused(reused, Code::AlreadyExists, "ID_REUSED");

    model.says("I did not");
    let question = server.pending().await.remove(0);
    let deny = wire::decision::Decision::Deny(wire::Deny::default());
    server.decide(&question.request_id, deny).await.expect("decided");
    let done = server.run(steering("more", "make haste")).await;
    assert_eq!((done.run_id.as_str(), done.status()), ("r1", RunStatus::Completed));
    let read = read(&model.last_request());
    assert_eq!(read.iter().filter(|text| *text == "make haste").count(), 1);
    assert_eq!(read.last().map(String::as_str), Some("make haste"), "after the tool's result");

    server.restart().await;
    assert_eq!(server.run(steering("more", "make haste")).await, done, "also when it is over");
    let reused = server.try_run(in_session("s1", "more", "make haste")).await;
    assert_refused(reused, Code::AlreadyExists, "ID_REUSED");
}

#[tokio::test]
async fn steered_messages_stay_in_the_session_when_the_run_is_aborted() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let host = Host::start(&server).await;
    model.asks("hold", json!({ "x": "y" }));
    let first = server.stream(in_session("s1", "r1", "one")).await;
    host.gate.began(1).await;
    let steered = server.stream(steering("more", "make haste")).await;
    server.abort("r1").await;
    steered.rest().await;
    let events = first.rest().await;
    let names = names(&events);
    assert_eq!(names[names.len() - 3..], ["tool_call_result", "input_entered", "run_finished"]);
    model.says("back");
    assert_eq!(server.run(in_session("s1", "r2", "two")).await.status(), RunStatus::Completed);
    assert_eq!(read(&model.last_request())[3..], ["make haste", "two"]);
}

#[tokio::test]
async fn a_steering_caller_may_disconnect_and_may_give_after_seq() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let mut speech = model.speaks();
    let mut first = server.stream(in_session("s1", "r1", "one")).await;
    speech.asked().await;
    let cancel = wire::DisconnectPolicy::Cancel.into();
    let leaves = wire::RunInput { on_disconnect: cancel, ..steering("more", "make haste") };
    drop(server.stream(leaves).await);
    first.wait_for(|event| event.seq == 4).await;

    let from = |run: &str, after_seq| {
        let input = Some(steering(run, "please"));
        let mut client = server.agent_loop();
        async move { soon(client.run_stream(wire::RunStreamRequest { input, after_seq })).await }
    };
    let ahead = from("late", 99).await;
    assert_refused(ahead.map(drop), Code::OutOfRange, "SEQ_AHEAD");
    let mut joined = agentloop_tests::events::Events::of_run(from("most", 4).await.expect("taken"));
    assert_eq!(joined.event().await.expect("goes on").map(|event| event.seq), Some(5));

    model.says("two");
    speech.say("one");
    speech.end();
    joined.rest().await;
    assert_eq!(server.get_run("r1").await.status(), RunStatus::Completed, "who left did not end it");
    assert_eq!(said(&server).await, ["one", "one", "make haste", "please", "two"]);
}

/// So many requests at a time, each with its own id and text.
async fn steer_at_once(server: &TestServer, count: usize) -> Vec<Result<wire::RunResult, tonic::Status>> {
    let requests = (0..count).map(|at| server.try_run(steering(&format!("m{at}"), &format!("say {at}"))));
    futures_util::future::join_all(requests).await
}

#[tokio::test]
async fn many_at_once_reach_a_run_that_waits_for_a_human() {
    const COUNT: usize = 300;
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let _host = Host::start(&server).await;
    model.asks("mail", json!({ "to": "bob" }));
    server.run(in_session("s1", "r1", "one")).await;
    for result in steer_at_once(&server, COUNT).await {
        let result = result.expect("taken");
        assert_eq!((result.run_id.as_str(), result.status()), ("r1", RunStatus::AwaitingHuman));
    }
    model.says("so many");
    let question = server.pending().await.remove(0);
    let deny = wire::decision::Decision::Deny(wire::Deny::default());
    server.decide(&question.request_id, deny).await.expect("decided");
    server.run(in_session("s1", "r1", "one")).await;
    let read = read(&model.last_request());
    assert_eq!(read.iter().filter(|text| text.starts_with("say ")).count(), COUNT);
}

#[tokio::test]
async fn many_at_once_go_on_whichever_run_is_the_live_one() {
    const COUNT: usize = 200;
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    model.answers(|_| Answer::Says("yes".to_owned()));
    for result in steer_at_once(&server, COUNT).await {
        assert_eq!(result.expect("taken").status(), RunStatus::Completed);
    }
    let said = said(&server).await;
    assert_eq!(said.iter().filter(|text| text.starts_with("say ")).count(), COUNT);
}
