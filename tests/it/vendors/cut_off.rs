//! Answers that are cut off in the middle: what stays of them is sent in a request that every vendor takes. A part of a
//! thought, a call without its result, empty text and spaces at the end are all refused by one vendor or another.

use agentloop_client::v1 as wire;
use agentloop_tests::events::{Events, text};
use agentloop_tests::input::in_session;
use agentloop_tests::vendor::{Answer, Asked, Format, Manner, Piece};
use serde_json::Value;
use wire::RunStatus;
use wire::model_delta::Delta;
use wire::run_event::Event;

use super::{
    DEEPSEEK, Kind, OPENROUTER, World, assert_has, assert_lacks, completes, for_each_kind, weather, world,
};

for_each_kind!(left_by_its_caller, aborted, at_its_limit_on_duration, after_a_round_of_tools, without_a_word,);

/// An answer that stops after a thought, a text and the beginning of calls. Of two calls, the first is whole by then.
fn held(said: &str) -> Answer {
    let calls = ["Rome", "Oslo"].map(|city| Piece::call("weather", weather(city)));
    let pieces = [Piece::thought("rain"), Piece::text(said)].into_iter().chain(calls);
    Answer::of(pieces).written(Manner::Held)
}

/// Until the whole text and a call are there.
async fn wait_for_call(events: &mut Events) {
    let calls = |event: &wire::RunEvent| match &event.event {
        Some(Event::ModelDelta(delta)) => matches!(delta.delta, Some(Delta::ToolCall(_))),
        Some(Event::PartialMessage(partial)) => {
            let parts = partial.message.iter().flat_map(|message| &message.parts);
            parts.into_iter().any(|part| matches!(part.content, Some(wire::part::Content::ToolCall(_))))
        }
        _ => false,
    };
    events.wait_for(calls).await;
}

/// The messages of a request as roles and their texts in the words of all vendors. A call or a thought has no text.
fn messages(asked: &Asked) -> Vec<(String, Vec<String>)> {
    let (field, parts) = match asked.format {
        Format::Chat | Format::Messages => ("messages", "content"),
        Format::Responses => ("input", "content"),
        Format::Gemini => ("contents", "parts"),
    };
    let role = |message: &Value| match message["role"].as_str().unwrap_or_default() {
        "model" => "assistant".to_owned(),
        role => role.to_owned(),
    };
    let texts = |message: &Value| match &message[parts] {
        Value::String(text) => vec![text.clone()],
        Value::Array(parts) => {
            parts.iter().filter_map(|part| part["text"].as_str().map(str::to_owned)).collect()
        }
        _ => Vec::new(),
    };
    asked.list(field).iter().map(|message| (role(message), texts(message))).collect()
}

/// Asks once more, and checks what stands before the new question: the text as far as it came, and a note.
async fn assert_goes_on(world: &World, why: &str) {
    let World { vendor, server, .. } = world;
    let states = vendor.states();
    vendor.says("Well then.");
    completes(server, "r2").await;
    let asked = vendor.last_request();
    let sent = messages(&asked);
    let said = |role: &str| {
        let of_role = sent.iter().filter(|(sent, _)| sent == role);
        of_role.flat_map(|(_, texts)| texts.clone()).collect::<Vec<_>>()
    };
    let note = format!("[The answer above was cut off before its end: {why}]");
    assert_eq!(said("assistant"), ["It is sunny"], "{:#}", asked.body);
    let of_user = said("user");
    assert_eq!(of_user[of_user.len() - 2..], [note, "r2 asks".to_owned()], "{:#}", asked.body);
    assert_eq!(sent.last().map(|(role, _)| role.as_str()), Some("user"));
    assert_eq!(calls(&asked), 0, "{:#}", asked.body);
    assert_lacks(&asked, &states);
    assert!(!asked.contains("I think about: rain"), "{:#}", asked.body);
}

/// The calls and results of tools in a request.
fn calls(asked: &Asked) -> usize {
    let text = asked.body.to_string();
    [
        "\"tool_calls\"",
        "\"tool_use\"",
        "\"function_call\"",
        "\"functionCall\"",
        "tool_result",
        "function_call_output",
    ]
    .iter()
    .map(|word| text.matches(word).count())
    .sum()
}

async fn begins(world: &World, input: wire::RunInput) -> Events {
    world.vendor.then(held("It is sunny \n"));
    let mut events = world.server.stream(input).await;
    wait_for_call(&mut events).await;
    events
}

async fn left_by_its_caller(kind: Kind) {
    let world = world(kind).await;
    let on_disconnect = wire::DisconnectPolicy::Cancel.into();
    let input = wire::RunInput { on_disconnect, ..in_session("s1", "r1", "r1 asks") };
    drop(begins(&world, input).await);
    let events = world.server.subscribe("r1", 0).await.rest().await;
    assert_eq!(events.last().map(wire::RunEvent::status), Some(RunStatus::Aborted));
    assert_goes_on(&world, "the run was aborted").await;
}

async fn aborted(kind: Kind) {
    let world = world(kind).await;
    let events = begins(&world, in_session("s1", "r1", "r1 asks")).await;
    assert_eq!(world.server.abort("r1").await.status(), RunStatus::Aborted);
    events.rest().await;
    assert_goes_on(&world, "the run was aborted").await;
}

async fn at_its_limit_on_duration(kind: Kind) {
    let world = world(kind).await;
    let second = prost_types::Duration { seconds: 1, nanos: 0 };
    let limits = wire::LoopLimits { max_run_duration: Some(second), ..Default::default() };
    let input = wire::RunInput { loop_limits: Some(limits), ..in_session("s1", "r1", "r1 asks") };
    let events = begins(&world, input).await.rest().await;
    assert_eq!(events.last().map(wire::RunEvent::status), Some(RunStatus::Failed));
    assert_goes_on(&world, "ran for longer than 1 s").await;
}

/// They refuse some messages that come back without the reasoning before them.
#[tokio::test]
async fn at_vendors_that_want_their_reasoning_back() {
    for kind in [DEEPSEEK, OPENROUTER] {
        Box::pin(aborted(kind)).await;
        Box::pin(after_a_round_of_tools(kind)).await;
    }
}

/// The round that was complete stays with its signatures; only the answer after it loses what is not whole.
async fn after_a_round_of_tools(kind: Kind) {
    let World { vendor, server, host: _host } = world(kind).await;
    vendor.thinks_and_asks("weather", weather("Bern"));
    vendor.then(held("It is sunny\n\n"));
    let mut events = server.stream(in_session("s1", "r1", "r1 asks")).await;
    events.wait_for_name("tool_call_result").await;
    wait_for_call(&mut events).await;
    let given = vendor.states();
    server.abort("r1").await;
    events.rest().await;
    vendor.says("Well then.");
    completes(&server, "r2").await;
    let asked = vendor.last_request();
    assert!(asked.contains("Bern") && asked.contains("It is sunny"), "{:#}", asked.body);
    assert!(asked.contains("was cut off before its end"), "{:#}", asked.body);
    assert!(!asked.contains("Oslo") && !asked.contains("It is sunny\n"), "{:#}", asked.body);
    // Not every vendor gives out state.
    let (whole, cut_off) = given.split_at(given.len().min(1));
    assert_has(&asked, whole);
    assert_lacks(&asked, cut_off);
}

/// An answer of spaces and calls leaves nothing.
async fn without_a_word(kind: Kind) {
    let world = world(kind).await;
    let World { vendor, server, .. } = &world;
    vendor.then(held(" \n"));
    let mut events = server.stream(in_session("s1", "r1", "r1 asks")).await;
    wait_for_call(&mut events).await;
    server.abort("r1").await;
    events.rest().await;
    let entries = server.entries("s1").await;
    let kept: Vec<String> = entries.iter().filter_map(|entry| entry.message.as_ref().map(text)).collect();
    assert_eq!(kept, ["r1 asks"]);
    vendor.says("Well then.");
    completes(server, "r2").await;
    let asked = vendor.last_request();
    assert!(!asked.contains("cut off") && messages(&asked).iter().all(|(role, _)| role != "assistant"));
    assert_lacks(&asked, &vendor.states());
}
