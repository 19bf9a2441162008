//! One session with several models, in turn: each gets what is its own, and nothing of another's.

use agentloop_client::v1 as wire;
use agentloop_tests::host::Host;
use agentloop_tests::input::in_session;
use agentloop_tests::server::TestServer;
use agentloop_tests::vendor::Vendor;

use super::{
    CHAT, DEEPSEEK, GEMINI, Kind, MESSAGES, RESPONSES, assert_has, assert_lacks, completes_with,
    for_each_kind, weather,
};

for_each_kind!(to_another_model_and_back, to_another_account_and_back);

async fn asks(server: &TestServer, vendor: &Vendor, run: &str, model: &str) {
    vendor.thinks_and_asks("weather", weather(run)).thinks_and_says("It is sunny.");
    let input =
        wire::RunInput { model: Some(model.to_owned()), ..in_session("s1", run, &format!("{run} asks")) };
    completes_with(server, input).await;
}

/// Runs with one vendor, with another, and with the first again.
async fn there_and_back(first: Kind, second: Kind) {
    let (a, b) = (Vendor::start("a").await, Vendor::start("b").await);
    let (one, two) = (format!("a/{}", first.model), format!("b/{}", second.model));
    let providers = [first.provider("a", &a), second.provider("b", &b)];
    let server = TestServer::asking(&providers, &one, "").await;
    let _host = Host::with(&server, "h1", |tool| tool == "weather").await;
    asks(&server, &a, "r1", &one).await;
    let own = a.states();
    asks(&server, &b, "r2", &two).await;
    for asked in b.requests() {
        assert_lacks(&asked, &a.secrets());
    }
    asks(&server, &a, "r3", &one).await;
    assert_has(&a.last_request(), &own);
    for asked in a.requests() {
        assert_lacks(&asked, &b.secrets());
    }
}

#[tokio::test]
async fn from_every_vendor_to_every_other_and_back() {
    let kinds = [CHAT, RESPONSES, MESSAGES, GEMINI, DEEPSEEK];
    for (at, first) in kinds.into_iter().enumerate() {
        for (_, second) in kinds.into_iter().enumerate().filter(|(other, _)| *other != at) {
            println!("{} of {:?} to {} of {:?}", first.model, first.format, second.model, second.format);
            Box::pin(there_and_back(first, second)).await;
        }
    }
}

/// The same API with another key: what one account signed is worth nothing at the other.
async fn to_another_account_and_back(kind: Kind) {
    there_and_back(kind, kind).await;
}

async fn to_another_model_and_back(kind: Kind) {
    let vendor = Vendor::start("a").await;
    let (one, two) = (format!("a/{}", kind.model), format!("a/{}", kind.other_model));
    let server = TestServer::asking(&[kind.provider("a", &vendor)], &one, "").await;
    let _host = Host::with(&server, "h1", |tool| tool == "weather").await;
    asks(&server, &vendor, "r1", &one).await;
    let own = vendor.states();
    asks(&server, &vendor, "r2", &two).await;
    let of_the_other = vendor.states().split_off(own.len());
    asks(&server, &vendor, "r3", &one).await;
    let last = vendor.last_request();
    assert_eq!(last.model, kind.model);
    assert_has(&last, &own);
    assert_lacks(&last, &of_the_other);
}
