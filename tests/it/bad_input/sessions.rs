//! Invalid requests to the service `Sessions`.

use agentloop_client::v1 as wire;
use agentloop_tests::errors::{assert_invalid, assert_refused};
use agentloop_tests::model::Model;
use agentloop_tests::server::TestServer;
use agentloop_tests::soon;
use tonic::Code;

use super::{BAD_PAGES, long, long_id};

#[tokio::test]
async fn creating() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let good = wire::CreateSessionRequest::default;
    let labels = (0..65).map(|at| (format!("l{at}"), String::new())).collect();
    for (request, fields) in [
        (wire::CreateSessionRequest { session_id: Some(String::new()), ..good() }, &["session_id"][..]),
        (wire::CreateSessionRequest { session_id: Some("a/b".to_owned()), ..good() }, &["session_id"]),
        (wire::CreateSessionRequest { title: long(), ..good() }, &["title"]),
        (wire::CreateSessionRequest { labels, ..good() }, &["labels"]),
        (
            wire::CreateSessionRequest { session_id: Some(long_id()), title: long(), ..good() },
            &["session_id", "title"],
        ),
    ] {
        assert_invalid(soon(server.sessions().create_session(request)).await, fields);
    }
    let sessions = soon(server.sessions().list_sessions(wire::ListSessionsRequest::default())).await;
    assert_eq!(sessions.expect("listed").into_inner().sessions, []);
}

#[tokio::test]
async fn changing() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let mut client = server.sessions();
    let request = wire::CreateSessionRequest { session_id: Some("s1".to_owned()), ..Default::default() };
    soon(client.create_session(request)).await.expect("created");
    let good = || wire::UpdateSessionRequest { session_id: "s1".to_owned(), ..Default::default() };
    let label = |key: &str, value: String| [(key.to_owned(), value)].into();
    let many = |count: u32| (0..count).map(|at| (at.to_string(), String::new())).collect();
    for (request, fields) in [
        (wire::UpdateSessionRequest { session_id: String::new(), ..good() }, &["session_id"][..]),
        (wire::UpdateSessionRequest { title: Some(long()), ..good() }, &["title"]),
        (wire::UpdateSessionRequest { set_labels: label("", String::new()), ..good() }, &["set_labels"]),
        (wire::UpdateSessionRequest { set_labels: label("k", long()), ..good() }, &["set_labels"]),
        (wire::UpdateSessionRequest { set_labels: many(65), ..good() }, &["set_labels"]),
        (wire::UpdateSessionRequest { remove_labels: vec![String::new()], ..good() }, &["remove_labels"]),
        (
            wire::UpdateSessionRequest { remove_labels: vec!["k".to_owned(); 65], ..good() },
            &["remove_labels"],
        ),
        (
            wire::UpdateSessionRequest {
                set_labels: label("k", String::new()),
                remove_labels: vec!["k".to_owned()],
                ..good()
            },
            &["remove_labels"],
        ),
    ] {
        assert_invalid(soon(client.update_session(request)).await, fields);
    }
    let full = wire::UpdateSessionRequest { set_labels: many(64), ..good() };
    soon(client.update_session(full)).await.expect("as many as there may be");
    let one_more = wire::UpdateSessionRequest { set_labels: label("k", String::new()), ..good() };
    assert_invalid(soon(client.update_session(one_more)).await, &["set_labels"]);

    let good = || wire::GetOrCreateSessionRequest { user: "ann".to_owned(), ..Default::default() };
    for (request, fields) in [
        (wire::GetOrCreateSessionRequest { user: String::new(), ..good() }, &["user"][..]),
        (wire::GetOrCreateSessionRequest { user: long(), project: long(), ..good() }, &["user", "project"]),
        (wire::GetOrCreateSessionRequest { title: long(), ..good() }, &["title"]),
        (wire::GetOrCreateSessionRequest { labels: many(63), ..good() }, &["labels"]),
        (wire::GetOrCreateSessionRequest { labels: label("user", String::new()), ..good() }, &["labels"]),
    ] {
        assert_invalid(soon(client.get_or_create_session(request)).await, fields);
    }
}

#[tokio::test]
async fn ids_of_sessions() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let mut client = server.sessions();
    for session_id in [String::new(), "a b".to_owned(), long_id()] {
        let request = wire::GetSessionRequest { session_id: session_id.clone() };
        assert_invalid(soon(client.get_session(request)).await, &["session_id"]);
        let request = wire::ListEntriesRequest { session_id: session_id.clone(), ..Default::default() };
        assert_invalid(soon(client.list_entries(request)).await, &["session_id"]);
        let request = wire::DeleteSessionRequest { session_id };
        assert_invalid(soon(client.delete_session(request)).await, &["session_id"]);
    }
    let session_id = || "nobody".to_owned();
    let got = soon(client.get_session(wire::GetSessionRequest { session_id: session_id() })).await;
    assert_refused(got, Code::NotFound, "SESSION_NOT_FOUND");
    let request = wire::ListEntriesRequest { session_id: session_id(), ..Default::default() };
    assert_refused(soon(client.list_entries(request)).await, Code::NotFound, "SESSION_NOT_FOUND");
}

#[tokio::test]
async fn lists() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let mut client = server.sessions();
    for (page_size, page_token, field) in BAD_PAGES {
        let request =
            wire::ListSessionsRequest { page_size, page_token: page_token.to_owned(), filter: None };
        assert_invalid(soon(client.list_sessions(request)).await, &[field]);
    }
    let filter = wire::SessionFilter {
        labels: [(String::new(), String::new())].into(),
        statuses: vec![99],
        text: "x".repeat(257),
        forked_from_session_id: "no id".to_owned(),
        ..Default::default()
    };
    let request = wire::ListSessionsRequest { filter: Some(filter), ..Default::default() };
    let fields = ["filter.labels", "filter.statuses[0]", "filter.text", "filter.forked_from_session_id"];
    assert_invalid(soon(client.list_sessions(request)).await, &fields);
    let request =
        wire::ListEntriesRequest { session_id: "s1".to_owned(), page_size: 501, ..Default::default() };
    assert_invalid(soon(client.list_entries(request)).await, &["page_size"]);
}
