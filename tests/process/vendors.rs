//! The server killed in the middle of a round with vendors that check what they are sent, and what it logs meanwhile.

use agentloop_client::v1::decision::Decision;
use agentloop_client::v1::{Approve, RunInput};
use agentloop_tests::vendor::{Format, Vendor};
use serde_json::json;

use crate::support::follow::Follower;
use crate::support::host::Host;
use crate::support::server::{Server, Setting, input};

#[tokio::test]
async fn of_chat_completions() {
    killed_within_a_round(Format::Chat, "gemini-3.8-flash").await;
}

#[tokio::test]
async fn of_responses() {
    killed_within_a_round(Format::Responses, "gpt-6.1-sol").await;
}

#[tokio::test]
async fn of_messages() {
    killed_within_a_round(Format::Messages, "claude-opus-5-5").await;
}

#[tokio::test]
async fn of_generate_content() {
    killed_within_a_round(Format::Gemini, "gemini-3.8-flash").await;
}

/// The vendor itself fails the test where its state does not come back as it was.
async fn killed_within_a_round(format: Format, model: &str) {
    let vendor = Vendor::start("a").await;
    let provider = format!("kind = \"{}\"\nbase_url = \"{}\"\n", format.kind(), vendor.base_url(format));
    let mut server = Server::start(&Setting { provider, log_level: "debug", ..Setting::default() }).await;
    let host = Host::start(&server, "h-1").await;
    let asks = |run: &str| RunInput {
        model: Some(format!("test/{model}")),
        ..input(run, "s-1", "mail it, my dear")
    };
    vendor.thinks_and_asks("slow", json!({ "seconds": 0.01 }));
    let mail = ("send_email", json!({ "to": "a@example.com" }));
    vendor.thinks_and_asks_all(&[("slow", json!({ "seconds": 0.02 })), mail]).thinks_and_says("It is sent.");
    let mut run = Follower::start(&server, asks("r-1")).await;
    let question = run.question().await;

    let mut logged = server.take().killed().await;
    server.start_again().await;

    run.decide(&question, Decision::Approve(Approve {})).await;
    assert_eq!(run.answer().await, "It is sent.");
    assert_eq!(host.did("send_email").len(), 1);
    vendor.refuses_state().says("Yes, it is.");
    let mut next = Follower::start(&server, asks("r-2")).await;
    assert_eq!(next.answer().await, "Yes, it is.");
    let requests = vendor.requests();
    assert_eq!(requests.len(), 5);
    for state in &vendor.states()[..2] {
        assert!(requests[2].contains(state), "{state} is missing in {:#}", requests[2].body);
    }
    let (code, said) = server.terminate().await;
    assert_eq!(code, 0);
    logged += &said;
    assert!(logged.contains("r-1"), "it logs what it does: {logged}");
    for place in
        ["PLANNING process=IDLE iteration=1/10 retry=0/3", "EXECUTING process=STREAMING iteration=2/10"]
    {
        assert!(logged.contains(place), "{place} is missing in {logged}");
    }
    for secret in
        vendor.secrets().iter().map(String::as_str).chain(["my dear", "It is sent", "I think about"])
    {
        assert!(!logged.contains(secret), "{secret} is in {logged}");
    }
}
