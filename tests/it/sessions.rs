//! Sessions: the entries that runs leave, and the history that the next run reads.

use agentloop_client::v1 as wire;
use agentloop_tests::errors::{assert_refused, metadata};
use agentloop_tests::events::{Events, durable, text};
use agentloop_tests::host::Host;
use agentloop_tests::input::in_session;
use agentloop_tests::model::Model;
use agentloop_tests::raw_host::{RawHost, declared, result_of};
use agentloop_tests::server::TestServer;
use agentloop_tests::soon;
use serde_json::{Value, json};
use tonic::Code;
use tonic::transport::Endpoint;
use wire::agent_loop_client::AgentLoopClient;
use wire::connect_request::Frame;
use wire::part::Content;
use wire::run_event::Event;
use wire::{Role, RunStatus};

async fn get(server: &TestServer, session: &str) -> Result<wire::Session, tonic::Status> {
    let request = wire::GetSessionRequest { session_id: session.to_owned() };
    Ok(soon(server.sessions().get_session(request)).await?.into_inner().session.expect("a session"))
}

async fn delete(server: &TestServer, session: &str) -> Result<bool, tonic::Status> {
    let request = wire::DeleteSessionRequest { session_id: session.to_owned() };
    Ok(soon(server.sessions().delete_session(request)).await?.into_inner().existed)
}

/// Roles and texts of a request to the model.
fn read(request: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let messages = request["messages"].as_array().expect("messages");
    messages.iter().map(|message| (text(&message["role"]), text(&message["content"]))).collect()
}

fn said(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(role, text)| ((*role).to_owned(), (*text).to_owned())).collect()
}

#[tokio::test]
async fn are_made_shown_and_listed_the_last_touched_first() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let mut made = Vec::new();
    for at in 0..5 {
        let request = wire::CreateSessionRequest {
            session_id: Some(format!("s{at}")),
            title: format!("number {at}"),
            labels: [("at".to_owned(), at.to_string())].into(),
        };
        let session = soon(server.sessions().create_session(request)).await.expect("created");
        made.push(session.into_inner().session.expect("a session"));
    }
    assert_eq!(get(&server, "s3").await.expect("there"), made[3]);
    assert_eq!(
        (made[3].title.as_str(), made[3].entry_count, made[3].live_run_id.as_str()),
        ("number 3", 0, "")
    );
    model.says("hello");
    server.run(in_session("s2", "r1", "hi")).await;
    let (mut listed, mut token) = (Vec::new(), String::new());
    for page in [2, 2, 1] {
        let request = wire::ListSessionsRequest { page_size: 2, page_token: token, filter: None };
        let found = soon(server.sessions().list_sessions(request)).await.expect("listed").into_inner();
        assert_eq!(found.sessions.len(), page);
        listed.extend(found.sessions.into_iter().map(|session| session.session_id));
        token = found.next_page_token;
    }
    assert_eq!((listed[0].as_str(), token.as_str()), ("s2", ""));
    listed.sort();
    assert_eq!(listed, ["s0", "s1", "s2", "s3", "s4"]);
    let anonymous = soon(server.sessions().create_session(wire::CreateSessionRequest::default())).await;
    let anonymous = anonymous.expect("created").into_inner().session.expect("a session");
    assert!(!anonymous.session_id.is_empty());
}

#[tokio::test]
async fn carry_the_conversation_from_run_to_run_and_over_a_restart() {
    let model = Model::start().await;
    let mut server = TestServer::start(&model).await;
    let host = Host::start(&server).await;
    model.asks("weather", json!({ "city": "Rome" })).says("It is sunny.");
    server.run(in_session("s1", "r1", "How is Rome?")).await;
    drop(host);
    let mut wanted = said(&[
        ("user", "How is Rome?"),
        ("assistant", ""),
        ("tool", "sunny in Rome"),
        ("assistant", "It is sunny."),
    ]);
    for at in 2..5 {
        let (question, answer) = (format!("question {at}"), format!("answer {at}"));
        wanted.extend(said(&[("user", &question)]));
        model.says(&answer);
        server.run(in_session("s1", &format!("r{at}"), &question)).await;
        assert_eq!(read(&model.last_request()), wanted);
        wanted.extend(said(&[("assistant", &answer)]));
        server.restart().await;
    }
    assert_eq!(get(&server, "s1").await.expect("there").entry_count, wanted.len() as u64);
}

#[tokio::test]
async fn take_several_messages_and_a_system_prompt() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    model.says("hello");
    let message = |role: Role, text: &str| {
        let content = Some(wire::part::Content::Text(text.to_owned()));
        wire::Message { role: role.into(), parts: vec![wire::Part { content }] }
    };
    let input = wire::RunInput {
        input_messages: vec![message(Role::System, "Be brief."), message(Role::User, "First.")],
        system_prompt_override: Some("You are a pirate.".to_owned()),
        ..in_session("s1", "r1", "Second.")
    };
    server.run(input).await;
    let wanted = said(&[
        ("system", "You are a pirate."),
        ("system", "Be brief."),
        ("user", "First."),
        ("user", "Second."),
    ]);
    assert_eq!(read(&model.last_request()), wanted);
}

#[tokio::test]
async fn entries_are_read_in_order_page_by_page() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    for at in 0..4 {
        model.says(&format!("answer {at}"));
        server.run(in_session("s1", &format!("r{at}"), &format!("question {at}"))).await;
    }
    let (mut entries, mut after_entry_no) = (Vec::new(), 0);
    for (page, more_follow) in [(3, true), (3, true), (2, false)] {
        let request = wire::ListEntriesRequest { session_id: "s1".to_owned(), after_entry_no, page_size: 3 };
        let found = soon(server.sessions().list_entries(request)).await.expect("listed").into_inner();
        assert_eq!((found.entries.len(), found.more), (page, more_follow));
        after_entry_no = found.entries.last().expect("entries").entry_no;
        entries.extend(found.entries);
    }
    let numbers: Vec<_> = entries.iter().map(|entry| entry.entry_no).collect();
    assert_eq!(numbers, (1..=8).collect::<Vec<_>>());
    let last = entries[7].message.clone().expect("a message");
    assert_eq!((last.role(), text(&last).as_str()), (Role::Assistant, "answer 3"));
    assert_eq!(entries[6].run_id, "r3");
    let request = wire::ListEntriesRequest { session_id: "s1".to_owned(), after_entry_no: 8, page_size: 3 };
    let none = soon(server.sessions().list_entries(request)).await.expect("listed").into_inner();
    assert_eq!(none, wire::ListEntriesResponse { entries: Vec::new(), more: false });
}

#[tokio::test]
async fn a_busy_one_takes_no_other_run_and_is_not_deleted() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let mut speech = model.speaks();
    let events = server.stream(in_session("s1", "r1", "hi")).await;
    speech.asked().await;
    assert_eq!(get(&server, "s1").await.expect("there").live_run_id, "r1");
    let busy = server.try_run(in_session("s1", "r2", "me too")).await;
    let refused = assert_refused(busy, Code::FailedPrecondition, "SESSION_BUSY");
    assert_eq!(metadata(&refused, "run_id"), "r1");
    let refused = assert_refused(delete(&server, "s1").await, Code::FailedPrecondition, "SESSION_BUSY");
    assert_eq!(metadata(&refused, "run_id"), "r1");
    let request = wire::GetRunRequest { run_id: "r2".to_owned() };
    let none = soon(server.agent_loop().get_run(request)).await;
    assert_refused(none, Code::NotFound, "RUN_NOT_FOUND");
    speech.end();
    events.rest().await;
    assert_eq!(server.entries("s1").await.len(), 2, "nothing of the refused run is left");
    model.says("now");
    assert_eq!(server.run(in_session("s1", "r2", "me too")).await.status(), RunStatus::Completed);
    assert_eq!(get(&server, "s1").await.expect("there").live_run_id, "");
}

#[tokio::test]
async fn deleted_they_take_their_runs_with_them() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    model.says("hello");
    server.run(in_session("s1", "r1", "hi")).await;
    assert!(delete(&server, "s1").await.expect("deleted"));
    assert_refused(get(&server, "s1").await, Code::NotFound, "SESSION_NOT_FOUND");
    let request = wire::GetRunRequest { run_id: "r1".to_owned() };
    assert_refused(soon(server.agent_loop().get_run(request)).await, Code::NotFound, "RUN_NOT_FOUND");
    model.says("a new beginning");
    server.run(in_session("s1", "r1", "hi")).await;
    assert_eq!(read(&model.last_request()), said(&[("user", "hi")]), "nothing of the old one is read");
}

#[tokio::test]
async fn of_a_deleted_one_nothing_is_heard_by_the_ids_of_its_runs() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let long = "so it was ".repeat(30_000);
    model.says(&long);
    // It takes little at a time and does not read on, so that most of it waits for it on the server.
    let endpoint = Endpoint::from_shared(server.url().to_owned()).expect("a good address");
    let narrow = endpoint.initial_stream_window_size(65_535).initial_connection_window_size(65_535);
    let mut caller = AgentLoopClient::new(soon(narrow.connect()).await.expect("the server listens"));
    let on_disconnect = wire::DisconnectPolicy::Cancel.into();
    let input = wire::RunInput { on_disconnect, ..in_session("s1", "r1", &long) };
    let request = wire::RunStreamRequest { input: Some(input), after_seq: 0 };
    let mut old = Events::of_run(soon(caller.run_stream(request)).await.expect("the call succeeds"));
    old.wait_for_name("run_started").await;
    server.subscribe("r1", 0).await.rest().await;
    assert!(delete(&server, "s1").await.expect("deleted"));
    let request = wire::SubscribeRequest { run_id: "r1".to_owned(), ..wire::SubscribeRequest::default() };
    let none = soon(server.agent_loop().subscribe(request)).await;
    assert_refused(none, Code::NotFound, "RUN_NOT_FOUND");
    let mut speech = model.speaks();
    let mut new = server.stream(in_session("s2", "r1", "hi")).await;
    speech.asked().await;
    speech.say("a new ");
    new.wait_for_speech().await;
    // A caller that wanted the old one to end with its connection has no say in this one.
    drop((old, caller));
    assert_eq!(server.get_run("r1").await.session_id, "s2");
    speech.say("beginning");
    speech.end();
    let new = new.rest().await;
    assert!(new.iter().all(|event| event.session_id == "s2"), "{new:?}");
    let Some(Event::RunFinished(finished)) = &new[new.len() - 1].event else { panic!("{new:?}") };
    assert_eq!(finished.status(), RunStatus::Completed);
    assert_eq!(durable(&new), server.subscribe("r1", 0).await.rest().await);
}

/// Tools and titles of the calls in a session's entries, which are read in pages of this size.
async fn calls(server: &TestServer, session: &str, page_size: u32) -> Vec<(String, String)> {
    let (mut calls, mut after_entry_no) = (Vec::new(), 0);
    loop {
        let request = wire::ListEntriesRequest { session_id: session.to_owned(), after_entry_no, page_size };
        let page = soon(server.sessions().list_entries(request)).await.expect("listed").into_inner();
        let messages = page.entries.iter().filter_map(|entry| entry.message.as_ref());
        calls.extend(messages.flat_map(|message| &message.parts).filter_map(|part| match &part.content {
            Some(Content::ToolCall(call)) => Some((call.name.clone(), call.title.clone())),
            _ => None,
        }));
        match page.entries.last() {
            Some(last) if page.more => after_entry_no = last.entry_no,
            _ => return calls,
        }
    }
}

#[tokio::test]
async fn entries_have_the_titles_of_their_calls() {
    let model = Model::start().await;
    let mut server = TestServer::start(&model).await;
    let weather = wire::ToolDeclaration {
        title: "Weather in {city}".to_owned(),
        ..declared("forecast", wire::EffectClass::ReadOnly)
    };
    let tools = vec![weather, declared("plain", wire::EffectClass::ReadOnly)];
    let mut host = RawHost::welcomed(&server, "h1", tools).await;
    let (forecast, plain) = (("forecast", "Weather in Rome"), ("plain", ""));
    model.asks("forecast", json!({ "city": "Rome" })).asks("plain", json!({})).says("It is sunny.");
    let mut events = server.stream(in_session("s1", "r1", "How is Rome?")).await;
    for answered in 0..2 {
        let call = host.take_call().await;
        assert_eq!(
            calls(&server, "s1", 500).await,
            said(&[forecast, plain][..=answered]),
            "it has no result"
        );
        host.send(Frame::CallResult(result_of(&call, "sunny")));
    }
    events.wait_for_name("run_finished").await;
    model.asks("forecast", json!({ "city": "Oslo" })).says("It rains.");
    let mut events = server.stream(in_session("s1", "r2", "And Oslo?")).await;
    let call = host.take_call().await;
    host.send(Frame::CallResult(result_of(&call, "rain")));
    events.wait_for_name("run_finished").await;
    server.restart().await;

    let all = said(&[forecast, plain, ("forecast", "Weather in Oslo")]);
    for page_size in [1, 2, 3, 500] {
        assert_eq!(calls(&server, "s1", page_size).await, all, "{page_size} a page");
    }
    let request = wire::ExportSessionRequest { session_id: "s1".to_owned() };
    let mut lines = soon(server.sessions().export_session(request)).await.expect("exported").into_inner();
    let mut exported = String::new();
    while let Some(line) = soon(lines.message()).await.expect("a line") {
        exported += &line.json_line;
    }
    assert_eq!(exported.matches(r#""title":"Weather in "#).count(), 2, "{exported}");

    // The fork ends with a call that has no result there.
    let fork = wire::ForkSessionRequest {
        session_id: "s1".to_owned(),
        at_entry_no: 2,
        new_session_id: Some("fork".to_owned()),
    };
    soon(server.sessions().fork_session(fork)).await.expect("forked");
    assert_eq!(calls(&server, "fork", 500).await, said(&[forecast]));
    assert!(delete(&server, "s1").await.expect("deleted"));
    assert_eq!(calls(&server, "fork", 500).await, said(&[("forecast", "")]), "its journal is gone");
}
