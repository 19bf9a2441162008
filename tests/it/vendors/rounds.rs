//! Rounds of tools: thoughts go back with the calls that they led to.

use agentloop_client::v1 as wire;
use agentloop_tests::host::Host;
use agentloop_tests::input::in_session;
use agentloop_tests::vendor::{Answer, Manner, Piece};
use serde_json::json;
use wire::RunStatus;

use super::{
    CHAT, DEEPSEEK, Kind, OPENROUTER, World, approve, assert_has, completes, for_each_kind, weather, world,
};

for_each_kind!(
    three_rounds_and_the_next_run,
    calls_together,
    a_restart_within_a_round,
    streams_with_comments
);

async fn three_rounds_and_the_next_run(kind: Kind) {
    let World { vendor, server, host } = world(kind).await;
    for city in ["Rome", "Oslo", "Kyiv"] {
        vendor.thinks_and_asks("weather", weather(city));
    }
    vendor.thinks_and_says("Rome is warmer.");
    completes(&server, "r1").await;
    assert_eq!(host.gate.count("weather"), 3);
    assert_has(&vendor.last_request(), &vendor.states()[..3]);
    let given = vendor.states();
    vendor.thinks_and_asks("weather", weather("Bern")).says("Bern is in between.");
    completes(&server, "r2").await;
    assert_eq!(vendor.requests().len(), 6);
    assert_has(&vendor.last_request(), &given);
    assert_has(&vendor.last_request(), &vendor.states());
}

#[tokio::test]
async fn reasoning_goes_back_as_text_where_the_vendor_wants_it() {
    let World { vendor, server, host: _host } = world(DEEPSEEK).await;
    vendor.thinks_and_asks("weather", weather("Rome")).thinks_and_asks("weather", weather("Oslo"));
    vendor.says("Rome is warmer.");
    completes(&server, "r1").await;
    let messages = vendor.last_request().list("messages").to_vec();
    let sent = messages.iter().filter(|message| message["reasoning_content"] == "I think about: which tools");
    assert_eq!(sent.count(), 2);
}

#[tokio::test]
async fn reasoning_details_go_back_as_they_came() {
    three_rounds_and_the_next_run(OPENROUTER).await;
    calls_together(OPENROUTER).await;
}

async fn calls_together(kind: Kind) {
    let World { vendor, server, host } = world(kind).await;
    vendor.thinks_and_asks_all(&[("weather", weather("Rome")), ("weather", weather("Oslo"))]);
    vendor.thinks_and_asks_all(&[("weather", weather("Rome")), ("weather", weather("Rome"))]);
    vendor.says("Rome is warmer.");
    completes(&server, "r1").await;
    assert_eq!(host.gate.count("weather"), 4);
    assert_has(&vendor.last_request(), &vendor.states());
}

async fn a_restart_within_a_round(kind: Kind) {
    let World { vendor, mut server, host } = world(kind).await;
    vendor.thinks_and_asks("weather", weather("Rome"));
    vendor.thinks_and_asks_all(&[("weather", weather("Oslo")), ("mail", json!({ "to": "bob" }))]);
    vendor.says("It is sent.");
    let input = in_session("s1", "r1", "write to bob");
    let waits = server.run(input.clone()).await;
    assert_eq!(waits.status(), RunStatus::AwaitingHuman, "{:?}", waits.last_error);
    drop(host);
    server.restart().await;
    let _host = Host::with(&server, "h1", |tool| ["weather", "mail"].contains(&tool)).await;
    server.decide(&waits.pending[0].request_id, approve()).await.expect("decided");
    let done = server.run(input).await;
    assert_eq!(done.status(), RunStatus::Completed, "{:?}", done.last_error);
    assert_has(&vendor.last_request(), &vendor.states());
}

async fn streams_with_comments(kind: Kind) {
    let World { vendor, server, host: _host } = world(kind).await;
    let ask = Answer::of([Piece::thought("Rome"), Piece::call("weather", weather("Rome"))]);
    vendor.then(ask.written(Manner::Crlf)).then(Answer::of([Piece::text("Sunny.")]).written(Manner::Crlf));
    completes(&server, "r1").await;
    assert_has(&vendor.last_request(), &vendor.states());
}

#[tokio::test]
async fn calls_are_told_apart_whatever_their_index_and_run_whatever_the_end() {
    for manner in [Manner::NoIndex, Manner::SameIndex, Manner::StopDespiteCalls] {
        let World { vendor, server, host } = world(CHAT).await;
        let calls = ["Rome", "Oslo"].map(|city| Piece::call("weather", weather(city)));
        vendor.then(Answer::of(calls).written(manner)).says("Rome is warmer.");
        completes(&server, "r1").await;
        assert_eq!(host.gate.count("weather"), 2, "{manner:?}");
        assert_eq!(vendor.requests().len(), 2, "{manner:?}");
    }
}
