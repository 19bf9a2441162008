//! Runs that abort the live run of their session.

use agentloop_client::v1 as wire;
use agentloop_tests::events::names;
use agentloop_tests::host::Host;
use agentloop_tests::input::in_session;
use agentloop_tests::model::Model;
use agentloop_tests::server::TestServer;
use serde_json::json;
use wire::{RunErrorCode, RunStatus, ToolStatus};

use super::{end, enqueued, interrupting, said};

#[tokio::test]
async fn the_live_run_is_aborted_and_says_by_whom() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let mut speech = model.speaks();
    let mut first = server.stream(in_session("s1", "r1", "one")).await;
    speech.asked().await;
    speech.say("I was about to");
    first.wait_for_speech().await;
    model.says("second");
    let second = server.run(interrupting("r2", "two")).await;
    assert_eq!((second.run_id.as_str(), second.status()), ("r2", RunStatus::Completed));
    speech.hung_up().await;
    let error = end(&first.rest().await);
    assert_eq!(error.code(), RunErrorCode::AbortedByCaller);
    assert!(error.message.contains("interrupted by run r2"), "{}", error.message);
    let note = "[The answer above was cut off before its end: the run was aborted]";
    assert_eq!(said(&server).await, ["one", "I was about to", note, "two", "second"]);
    let again = server.run(interrupting("r2", "two")).await;
    assert_eq!(again, second, "the same request again interrupts nothing");
}

#[tokio::test]
async fn a_running_tool_is_cancelled_and_the_history_is_whole() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let host = Host::start(&server).await;
    model.asks("hold", json!({ "x": "y" })).says("second");
    let first = server.stream(in_session("s1", "r1", "one")).await;
    host.gate.began(1).await;
    assert_eq!(server.run(interrupting("r2", "two")).await.status(), RunStatus::Completed);
    host.gate.cancelled(1).await;
    let results = agentloop_tests::events::results(&first.rest().await);
    assert_eq!(results[0].status(), ToolStatus::Aborted);
}

#[tokio::test]
async fn it_comes_before_those_that_wait() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let mut speech = model.speaks();
    let _first = server.stream(in_session("s1", "r1", "one")).await;
    speech.asked().await;
    let waiting = server.stream(enqueued("r2", "two")).await;
    let mut third = model.speaks();
    let urgent = server.stream(interrupting("r3", "three")).await;
    third.asked().await;
    assert_eq!(server.get_run("r2").await.queue_position, 1);
    model.says("second");
    third.say("third");
    third.end();
    let events = urgent.rest().await;
    assert!(names(&events).contains(&"session_entered"), "{:?}", names(&events));
    waiting.rest().await;
    assert_eq!(said(&server).await, ["one", "three", "third", "two", "second"]);
}

#[tokio::test]
async fn the_last_of_several_is_the_one_that_stays() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let mut speech = model.speaks();
    let _first = server.stream(in_session("s1", "r1", "one")).await;
    speech.asked().await;
    model.answers(|request| {
        let messages = request["messages"].as_array().expect("messages");
        let last = messages.last().and_then(|message| message["content"].as_str());
        agentloop_tests::model::Answer::Says(format!("to {}", last.unwrap_or_default()))
    });
    let second = server.stream(interrupting("r2", "two")).await;
    let third = server.stream(interrupting("r3", "three")).await;
    second.rest().await;
    third.rest().await;
    // The length of the second answer by then is a matter of time; all that was said is there, in order.
    let is_of_second = |text: &String| "to two".starts_with(text) || text.starts_with("[The answer above");
    let said: Vec<String> = said(&server).await.into_iter().filter(|text| !is_of_second(text)).collect();
    assert_eq!(said, ["one", "two", "three", "to three"]);
    assert_eq!(server.get_run("r1").await.status(), RunStatus::Aborted);
}

#[tokio::test]
async fn a_run_that_waits_for_a_human_is_interrupted_too() {
    let model = Model::start().await;
    let mut server = TestServer::start(&model).await;
    let _host = Host::start(&server).await;
    model.asks("mail", json!({ "to": "bob" })).says("second");
    let first = server.run(in_session("s1", "r1", "one")).await;
    assert_eq!(first.status(), RunStatus::AwaitingHuman);
    server.restart().await;
    assert_eq!(server.run(interrupting("r2", "two")).await.status(), RunStatus::Completed);
    assert_eq!(server.pending().await, [], "nobody is asked in vain");
}
