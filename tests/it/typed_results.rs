//! Results of tools with more than a text: typed output, files and links.

use std::time::Duration;

use agentloop_client::v1 as wire;
use agentloop_tests::errors::assert_invalid;
use agentloop_tests::events::results;
use agentloop_tests::input::named;
use agentloop_tests::model::Model;
use agentloop_tests::raw_host::{RawHost, declared, hello, result_of};
use agentloop_tests::server::TestServer;
use agentloop_tests::soon;
use serde_json::json;
use wire::connect_request::Frame;
use wire::connect_response::Frame as ServerFrame;
use wire::{EffectClass, RunStatus, ToolStatus};

const SCHEMA: &str = r#"{"type":"object","properties":{"celsius":{"type":"number"}},"required":["celsius"]}"#;

fn typed() -> wire::ToolDeclaration {
    wire::ToolDeclaration {
        output_schema_json: SCHEMA.to_owned(),
        ..declared("weather", EffectClass::ReadOnly)
    }
}

fn csv() -> wire::FileContent {
    wire::FileContent {
        name: "days.csv".to_owned(),
        media_type: "text/csv".to_owned(),
        size_bytes: 4,
        source: Some(wire::file_content::Source::Data(b"a,b\n".to_vec())),
    }
}

fn more() -> wire::Link {
    wire::Link { url: "https://example.org/w".to_owned(), title: "More".to_owned() }
}

/// The last result as the model read it.
fn read(model: &Model) -> String {
    let request = model.last_request();
    let last = request["messages"].as_array().and_then(|all| all.last()).expect("messages").clone();
    last["content"].as_str().expect("text").to_owned()
}

#[tokio::test]
async fn the_model_reads_the_typed_output_and_names_of_files_and_links() {
    let model = Model::start().await;
    let mut server = TestServer::start(&model).await;
    let mut host = RawHost::welcomed(&server, "h1", vec![typed()]).await;
    model.asks("weather", json!({})).says("done");
    let events = server.stream(named("r1", "go")).await;
    let call = host.take_call().await;
    let sent = wire::CallResult {
        structured_json: r#"{"celsius": 21}"#.to_owned(),
        files: vec![csv()],
        links: vec![more()],
        ..result_of(&call, "")
    };
    host.send(Frame::CallResult(sent.clone()));
    let live = events.rest().await;
    server.restart().await;
    let stored = server.subscribe("r1", 0).await.rest().await;
    for events in [live, stored] {
        let [result] = &results(&events)[..] else { panic!("one result: {events:?}") };
        assert_eq!(result.status(), ToolStatus::Succeeded);
        assert_eq!(
            (&result.structured_json, &result.files, &result.links),
            (&sent.structured_json, &sent.files, &sent.links)
        );
    }
    let told = "{\"celsius\": 21}\n\n- file days.csv (text/csv, 4 bytes)\n- link More: https://example.org/w";
    assert_eq!(read(&model), told);
}

#[tokio::test]
async fn the_text_is_read_where_there_is_one() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let mut host = RawHost::welcomed(&server, "h1", vec![typed()]).await;
    model.asks("weather", json!({})).says("done");
    let events = server.stream(named("r1", "go")).await;
    let call = host.take_call().await;
    let structured_json = r#"{"celsius":21}"#.to_owned();
    host.send(Frame::CallResult(wire::CallResult { structured_json, ..result_of(&call, "mild") }));
    assert_eq!(events.rest().await.last().map(wire::RunEvent::status), Some(RunStatus::Completed));
    assert_eq!(read(&model), "mild");
}

#[tokio::test]
async fn output_that_does_not_follow_its_schema_fails_the_call() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let untyped = declared("plain", EffectClass::ReadOnly);
    let mut host = RawHost::welcomed(&server, "h1", vec![typed(), untyped]).await;
    for (run, tool, output, told) in [
        ("r1", "weather", r#"{"celsius":"warm"}"#, "at /celsius"),
        ("r2", "weather", "{}", "celsius"),
        ("r3", "weather", "{", "not valid JSON"),
        ("r4", "weather", r#"{"celsius":1,"celsius":2}"#, "appears twice"),
        ("r5", "plain", "{}", "declares no output_schema_json"),
    ] {
        model.asks(tool, json!({})).says("done");
        let events = server.stream(named(run, "go")).await;
        let call = host.take_call().await;
        let sent = wire::CallResult { structured_json: output.to_owned(), ..result_of(&call, "") };
        host.send(Frame::CallResult(sent));
        let events = events.rest().await;
        let [result] = &results(&events)[..] else { panic!("one result: {events:?}") };
        assert_eq!(result.status(), ToolStatus::Failed, "{output}");
        assert!(result.output.contains(told), "{}", result.output);
    }
}

#[tokio::test]
async fn the_declaration_of_the_host_that_ran_the_call_decides() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let text = r#"{"type":"string"}"#;
    let none = String::new();
    let (number, word) = (r#"{"celsius":21}"#, r#""warm""#);
    for (at, (later, output, status)) in [
        (text, number, ToolStatus::Succeeded),
        (&none, number, ToolStatus::Succeeded),
        (text, word, ToolStatus::Failed),
    ]
    .into_iter()
    .enumerate()
    {
        let mut host = RawHost::welcomed(&server, &format!("old-{at}"), vec![typed()]).await;
        model.asks("weather", json!({})).says("done");
        let events = server.stream(named(&format!("r{at}"), "go")).await;
        let call = host.take_call().await;
        let redeclared = wire::ToolDeclaration { output_schema_json: later.to_owned(), ..typed() };
        let newer = RawHost::welcomed(&server, &format!("new-{at}"), vec![redeclared]).await;
        let sent = wire::CallResult { structured_json: output.to_owned(), ..result_of(&call, "") };
        host.send(Frame::CallResult(sent));
        let events = events.rest().await;
        let [result] = &results(&events)[..] else { panic!("one result: {events:?}") };
        assert_eq!(result.status(), status, "{}", result.output);
        if status == ToolStatus::Succeeded {
            assert_eq!(result.structured_json, output);
        }
        drop((host, newer));
    }
}

#[tokio::test]
async fn output_of_a_declaration_that_is_forgotten_is_kept() {
    let model = Model::start().await;
    let mut server = TestServer::start(&model).await;
    for (run, text, output, kept, told) in [
        // After a restart the newest declaration is known, and no other.
        ("r1", "", r#""warm""#, true, ""),
        ("r2", "", r#"{"celsius":21}"#, false, "{\"celsius\":21}\n\n(The result has no structured output"),
        ("r3", "mild", r#"{"celsius":21}"#, false, "mild\n\n(The result has no structured output"),
    ] {
        let mut host = RawHost::welcomed(&server, "old", vec![typed()]).await;
        model.asks("weather", json!({})).says("done");
        let events = server.stream(named(run, "go")).await;
        let call = host.take_call().await;
        let schema = r#"{"type":"string"}"#.to_owned();
        let redeclared = wire::ToolDeclaration { output_schema_json: schema, ..typed() };
        let newer = RawHost::welcomed(&server, "new", vec![redeclared]).await;
        saved(&server).await;
        drop((host, newer, events));
        server.restart().await;
        let sent = wire::CallResult { structured_json: output.to_owned(), ..result_of(&call, text) };
        for verdict in [wire::ResultVerdict::Recorded, wire::ResultVerdict::Duplicate] {
            let outcome = Some(wire::complete_call_request::Outcome::Result(sent.clone()));
            let request = wire::CompleteCallRequest { outcome };
            let completed = soon(server.tool_host().complete_call(request)).await.expect("known");
            assert_eq!(completed.into_inner().verdict(), verdict);
        }
        let events = server.subscribe(run, 0).await.rest().await;
        let [result] = &results(&events)[..] else { panic!("one result: {events:?}") };
        assert_eq!(result.status(), ToolStatus::Succeeded, "{}", result.output);
        assert_eq!(result.structured_json, if kept { output } else { "" });
        assert!(result.output.starts_with(told), "{}", result.output);
    }
}

/// Waits until the newest declaration is in the store.
async fn saved(server: &TestServer) {
    soon(async {
        loop {
            let stored = server.engine().store().tools().await.expect("tools");
            if stored.tools.iter().any(|(_, row)| row.declaration.output_schema.contains("string")) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_schema_that_is_none_refuses_the_tool() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    for schema in ["{", r#"{"type":"nothing"}"#, r#"{"$ref":"https://example.org/schema"}"#] {
        let tool = wire::ToolDeclaration { output_schema_json: schema.to_owned(), ..typed() };
        let mut host = RawHost::open(&server).await;
        host.send(Frame::Hello(hello("h1", vec![tool])));
        let ServerFrame::Welcome(welcome) = host.wait_for(|_| true).await else {
            panic!("welcome comes first")
        };
        assert!(!welcome.capabilities[0].accepted, "{schema}");
        assert!(welcome.capabilities[0].reason.contains("schema"), "{welcome:?}");
    }
}

#[tokio::test]
async fn what_is_beside_the_text_has_bounds() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let mut host = RawHost::welcomed(&server, "h1", vec![typed()]).await;
    model.asks("weather", json!({})).says("done");
    let _events = server.stream(named("r1", "go")).await;
    let call = host.take_call().await;
    let large = wire::FileContent {
        size_bytes: 0,
        source: Some(wire::file_content::Source::Data(vec![0; 3 * 1024 * 1024])),
        ..csv()
    };
    let bad = |change: &dyn Fn(&mut wire::CallResult)| {
        let mut result = result_of(&call, "ok");
        change(&mut result);
        result
    };
    let cases = [
        (bad(&|result| result.files = vec![large.clone()]), "call_result.output"),
        (bad(&|result| result.files = vec![csv(); 65]), "call_result.files"),
        (
            bad(&|result| result.files = vec![wire::FileContent { name: "../x".into(), ..csv() }]),
            "call_result.files.name",
        ),
        (
            bad(&|result| result.files = vec![wire::FileContent { name: "..".into(), ..csv() }]),
            "call_result.files.name",
        ),
        (
            bad(&|result| result.files = vec![wire::FileContent { size_bytes: 5, ..csv() }]),
            "call_result.files.size_bytes",
        ),
        (
            bad(&|result| result.files = vec![wire::FileContent { source: None, ..csv() }]),
            "call_result.files.data",
        ),
        (bad(&|result| result.links = vec![more(); 65]), "call_result.links"),
        (
            bad(&|result| result.links = vec![wire::Link { url: "javascript:x".into(), ..more() }]),
            "call_result.links.url",
        ),
    ];
    for (result, field) in cases {
        let outcome = Some(wire::complete_call_request::Outcome::Result(result));
        let request = wire::CompleteCallRequest { outcome };
        assert_invalid(soon(server.tool_host().complete_call(request)).await, &[field]);
    }
}
