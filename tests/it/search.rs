//! `SearchEntries` finds the messages of a tenant's sessions by their words.

use agentloop_client::v1 as wire;
use agentloop_tests::errors::assert_invalid;
use agentloop_tests::input::in_session;
use agentloop_tests::model::Model;
use agentloop_tests::server::TestServer;
use agentloop_tests::soon;

fn query(text: &str) -> wire::SearchEntriesRequest {
    wire::SearchEntriesRequest { query: text.to_owned(), ..Default::default() }
}

async fn search(
    server: &TestServer,
    request: wire::SearchEntriesRequest,
) -> Result<Vec<wire::EntryHit>, tonic::Status> {
    Ok(soon(server.sessions().search_entries(request)).await?.into_inner().hits)
}

/// The hits of a search: session and entry.
async fn places(server: &TestServer, request: wire::SearchEntriesRequest) -> Vec<(String, u64)> {
    let hits = search(server, request).await.expect("the call succeeds");
    hits.into_iter().map(|hit| (hit.session_id, hit.entry_no)).collect()
}

fn place(session: &str, entry: u64) -> (String, u64) {
    (session.to_owned(), entry)
}

/// A server with two conversations behind it.
async fn talked() -> (Model, TestServer) {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    model.says("A fine name: Odysseus had a dog of that name.");
    server.run(in_session("s1", "r1", "My dog is called Argos.")).await;
    model.says("Noted: your cat.");
    server.run(in_session("s2", "r2", "And my cat is Felix.")).await;
    (model, server)
}

#[tokio::test]
async fn words_lead_to_the_entries_that_have_them() {
    let (_model, mut server) = talked().await;
    let hits = search(&server, query("ARGOS?")).await.expect("the call succeeds");
    let [hit] = hits.as_slice() else { panic!("{hits:?}") };
    assert_eq!((hit.session_id.as_str(), hit.entry_no, hit.run_id.as_str()), ("s1", 1, "r1"));
    assert_eq!((hit.role(), hit.snippet.as_str()), (wire::Role::User, "My dog is called Argos."));
    let entries = server.entries("s1").await;
    assert_eq!(hit.at, entries[0].at);

    server.restart().await;
    assert_eq!(places(&server, query("Odysseus")).await, [place("s1", 2)]);
    let mut mine = places(&server, query("my")).await;
    mine.sort();
    assert_eq!(mine, [place("s1", 1), place("s2", 1)]);
    let only = wire::SearchEntriesRequest { session_id: "s2".to_owned(), ..query("my") };
    assert_eq!(places(&server, only).await, [place("s2", 1)]);
    let others = wire::SearchEntriesRequest { except_session_id: "s2".to_owned(), ..query("my") };
    assert_eq!(places(&server, others).await, [place("s1", 1)]);
    let one = wire::SearchEntriesRequest { limit: 1, ..query("my") };
    assert_eq!(places(&server, one).await.len(), 1);
    assert_eq!(places(&server, query("unheard \"OR* -(")).await, []);
}

#[tokio::test]
async fn deleted_messages_are_not_found() {
    let (_model, server) = talked().await;
    let request = wire::DeleteSessionRequest { session_id: "s1".to_owned() };
    soon(server.sessions().delete_session(request)).await.expect("deleted");
    assert_eq!(places(&server, query("Argos")).await, []);
    assert_eq!(places(&server, query("Felix")).await, [place("s2", 1)]);
}

#[tokio::test]
async fn a_bad_search_is_refused_field_by_field() {
    let (_model, server) = talked().await;
    for (request, field) in [
        (query(" "), "query"),
        (query(&"a ".repeat(4_000)), "query"),
        (wire::SearchEntriesRequest { session_id: "no/id".to_owned(), ..query("a") }, "session_id"),
        (
            wire::SearchEntriesRequest { except_session_id: "no/id".to_owned(), ..query("a") },
            "except_session_id",
        ),
        (wire::SearchEntriesRequest { limit: 101, ..query("a") }, "limit"),
    ] {
        assert_invalid(search(&server, request).await, &[field]);
    }
}
