//! The hits of a search, their order and scores, and the entries that `recall` gives, do not depend on what another tenant
//! says.

use agentloop_client::{Client, v1 as wire};
use agentloop_tests::credentials::SecurityFiles;
use agentloop_tests::input::in_session;
use agentloop_tests::model::{Answer, Model};
use agentloop_tests::server::TestServer;
use agentloop_tests::soon;

use super::compare::plain;

/// Each in a session of its own.
const FACTS: [&str; 9] = [
    "My dog is called Argos.",
    "The dog of my neighbour is called Argos too, and he is very old.",
    "My cat is not called anything.",
    "What is the weather in my town?",
    "The name of the town is Ithaca.",
    "A dog, a cat and a horse: my dog is the oldest.",
    "Is Ithaca an island?",
    "My horse is called Bucephalus.",
    "Nothing is new.",
];
const QUERIES: [&str; 4] =
    ["What is my dog called?", "Argos", "Ithaca or Argos", "the name of the cat and the horse"];

/// Searches and runs of a tenant.
async fn say(c: &Client, session: &str, text: &str, recalls: bool) {
    let names = wire::Names { names: vec!["recall".to_owned()] };
    let input = wire::RunInput {
        context_sources: recalls.then_some(names),
        ..in_session(session, &format!("run-{session}"), text)
    };
    soon(c.run(input)).await.expect("it runs");
}

/// The hits and memories of the tenant `one`, on a server where the tenant `other` says these texts before and after.
async fn found(others: &[String]) -> Vec<String> {
    let model = Model::start().await;
    model.answers(|_| Answer::Says("Well.".to_owned()));
    let files = SecurityFiles::new();
    let [one, other] = ["one", "other"].map(|tenant| files.token("ada", tenant, &["operator"]));
    let server = TestServer::with(&model, &files.auth()).await;
    let (one, other) = (server.as_caller(&one), server.as_caller(&other));
    let (before, after) = others.split_at(others.len() / 2);
    for (at, text) in before.iter().enumerate() {
        say(&other, &format!("s{at}"), text, false).await;
    }
    for (at, text) in FACTS.iter().enumerate() {
        say(&one, &format!("s{at}"), text, false).await;
    }
    for (at, text) in after.iter().enumerate() {
        say(&other, &format!("t{at}"), text, false).await;
    }
    let mut seen = Vec::new();
    for (at, query) in QUERIES.iter().enumerate() {
        let search = wire::SearchEntriesRequest { query: (*query).to_owned(), ..Default::default() };
        let hits = soon(one.search_entries(search)).await.expect("it is searched");
        assert!(!hits.is_empty(), "{query}");
        seen.extend(hits.iter().map(|hit| plain(&format!("{hit:?}"))));
        say(&one, &format!("recalling-{at}"), query, true).await;
        let request = model.last_request();
        let given = plain(&request.to_string());
        assert!(given.contains("<context source=") && given.contains("User: "), "{given}");
        seen.push(given);
    }
    seen
}

#[tokio::test]
async fn what_is_found_and_recalled_does_not_follow_what_another_tenant_says() {
    let alone = found(&[]).await;
    // Words that are rare for one are common for the other, and the reverse.
    let others: Vec<String> = (0..24).map(|at| format!("Argos, Argos, dog and Ithaca {at}")).collect();
    assert_eq!(found(&others).await, alone);
}
