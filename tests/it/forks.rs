//! Forks: a conversation continues from an earlier entry, and the original is unchanged.

use agentloop_client::v1 as wire;
use agentloop_tests::errors::{assert_invalid, assert_refused};
use agentloop_tests::events::text;
use agentloop_tests::host::Host;
use agentloop_tests::input::in_session;
use agentloop_tests::model::Model;
use agentloop_tests::server::TestServer;
use agentloop_tests::soon;
use serde_json::{Value, json};
use tonic::Code;

async fn fork(server: &TestServer, at: u64, new: &str) -> Result<wire::Session, tonic::Status> {
    let request = wire::ForkSessionRequest {
        session_id: "s1".to_owned(),
        at_entry_no: at,
        new_session_id: Some(new.to_owned()),
    };
    Ok(soon(server.sessions().fork_session(request)).await?.into_inner().session.expect("a session"))
}

async fn delete(server: &TestServer, session: &str) {
    let request = wire::DeleteSessionRequest { session_id: session.to_owned() };
    let deleted = soon(server.sessions().delete_session(request)).await.expect("deleted").into_inner();
    assert!(deleted.existed);
}

/// Texts of a request to the model.
fn read(request: &Value) -> Vec<String> {
    let messages = request["messages"].as_array().expect("messages");
    messages.iter().map(|message| message["content"].as_str().unwrap_or_default().to_owned()).collect()
}

async fn told(server: &TestServer, session: &str) -> Vec<String> {
    let entries = server.entries(session).await;
    entries.iter().map(|entry| text(entry.message.as_ref().expect("a message"))).collect()
}

/// A server whose session `s1` has two runs behind it.
async fn talked() -> (Model, TestServer) {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    for run in ["r1", "r2"] {
        model.says(&format!("{run} answers"));
        server.run(in_session("s1", run, &format!("{run} asks"))).await;
    }
    (model, server)
}

#[tokio::test]
async fn go_on_from_an_earlier_place_while_the_source_goes_its_own_way() {
    let (model, mut server) = talked().await;
    let made = fork(&server, 2, "f1").await.expect("forked");
    assert_eq!((made.entry_count, made.live_run_id.as_str()), (2, ""));
    assert_eq!((made.forked_from_session_id.as_str(), made.forked_at_entry_no), ("s1", 2));
    let asked = model.requests().len();

    model.says("another way");
    server.run(in_session("f1", "f-r1", "what else?")).await;
    assert_eq!(model.requests().len(), asked + 1, "nothing is asked again");
    assert_eq!(read(&model.last_request()), ["r1 asks", "r1 answers", "what else?"]);
    model.says("as ever");
    server.run(in_session("s1", "r3", "and on?")).await;
    assert_eq!(read(&model.last_request()), ["r1 asks", "r1 answers", "r2 asks", "r2 answers", "and on?"]);

    server.restart().await;
    assert_eq!(told(&server, "f1").await, ["r1 asks", "r1 answers", "what else?", "another way"]);
    let entries = server.entries("f1").await;
    assert_eq!((entries[0].run_id.as_str(), entries[2].run_id.as_str()), ("r1", "f-r1"));
    model.says("still here");
    server.run(in_session("f1", "f-r2", "are you?")).await;
    assert_eq!(
        read(&model.last_request()),
        ["r1 asks", "r1 answers", "what else?", "another way", "are you?"]
    );
}

#[tokio::test]
async fn of_a_running_session_tell_the_model_which_calls_have_no_result() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let host = Host::start(&server).await;
    model.asks_all(&[("hold", json!({ "x": "1" })), ("weather", json!({ "city": "Rome" }))]);
    let events = server.stream(in_session("s1", "r1", "look")).await;
    host.gate.began(1).await;
    let made = fork(&server, 2, "f1").await.expect("forked");
    assert_eq!(made.entry_count, 2);

    model.says("without them then");
    server.run(in_session("f1", "f-r1", "never mind")).await;
    let request = model.last_request();
    let roles: Vec<_> =
        request["messages"].as_array().expect("messages").iter().map(|m| &m["role"]).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "tool", "user"]);
    assert_eq!(read(&request)[2..4], ["error: not completed", "error: not completed"]);

    model.says("here they are");
    host.gate.open(1);
    events.rest().await;
    let entries = told(&server, "s1").await;
    assert_eq!(entries.last().expect("entries"), "here they are");
    assert_eq!(host.gate.count("hold"), 1, "nothing is executed again");
}

#[tokio::test]
async fn of_forks_and_their_sources_each_lives_without_the_other() {
    let (model, server) = talked().await;
    fork(&server, 2, "f1").await.expect("forked");
    delete(&server, "s1").await;
    let missing = soon(server.agent_loop().get_run(wire::GetRunRequest { run_id: "r1".to_owned() })).await;
    assert_refused(missing, Code::NotFound, "RUN_NOT_FOUND");
    let request = wire::GetSessionRequest { session_id: "f1".to_owned() };
    let left = soon(server.sessions().get_session(request)).await.expect("there").into_inner();
    assert_eq!(left.session.expect("a session").forked_from_session_id, "s1");
    model.says("still here");
    server.run(in_session("f1", "f-r1", "are you?")).await;
    assert_eq!(read(&model.last_request()), ["r1 asks", "r1 answers", "are you?"]);

    model.says("a new beginning");
    server.run(in_session("s1", "r1", "hi")).await;
    assert_eq!(read(&model.last_request()), ["hi"], "its ids are free again");
    fork(&server, 0, "f2").await.expect("forked");
    delete(&server, "f2").await;
    delete(&server, "f1").await;
    assert_eq!(told(&server, "s1").await, ["hi", "a new beginning"]);
}

#[tokio::test]
async fn are_made_once_per_id() {
    let (model, mut server) = talked().await;
    let made = fork(&server, 0, "f1").await.expect("forked");
    assert_eq!((made.entry_count, made.forked_at_entry_no), (4, 4));
    model.says("and on");
    server.run(in_session("s1", "r3", "and?")).await;
    server.restart().await;
    assert_eq!(fork(&server, 0, "f1").await.expect("confirmed"), made);
    for (at, new) in [(2, "f1"), (0, "s1")] {
        assert_refused(fork(&server, at, new).await, Code::AlreadyExists, "ID_REUSED");
    }
    let anonymous =
        wire::ForkSessionRequest { session_id: "s1".to_owned(), at_entry_no: 1, new_session_id: None };
    let anonymous = soon(server.sessions().fork_session(anonymous)).await.expect("forked").into_inner();
    let anonymous = anonymous.session.expect("a session");
    assert_eq!((anonymous.session_id.is_empty(), anonymous.entry_count), (false, 1));
}

#[tokio::test]
async fn are_refused_for_what_is_not_there() {
    let (_model, server) = talked().await;
    for at in [5, u64::MAX] {
        assert_invalid(fork(&server, at, "f1").await, &["at_entry_no"]);
    }
    let of = |source: &str, new: &str| wire::ForkSessionRequest {
        session_id: source.to_owned(),
        new_session_id: Some(new.to_owned()),
        at_entry_no: 0,
    };
    let mut client = server.sessions();
    let missing = soon(client.fork_session(of("nobody", "f1"))).await;
    assert_refused(missing, Code::NotFound, "SESSION_NOT_FOUND");
    assert_invalid(soon(client.fork_session(of("", "f1"))).await, &["session_id"]);
    assert_invalid(soon(client.fork_session(of("a b", ""))).await, &["session_id", "new_session_id"]);
    let sessions = soon(client.list_sessions(wire::ListSessionsRequest::default())).await.expect("listed");
    assert_eq!(sessions.into_inner().sessions.len(), 1);
}
