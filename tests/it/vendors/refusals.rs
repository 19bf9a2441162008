//! A vendor that refuses the state of earlier answers, for reasons of its own: it is asked once more without any.

use agentloop_client::v1 as wire;
use agentloop_tests::host::Host;
use agentloop_tests::input::in_session;
use agentloop_tests::server::TestServer;
use agentloop_tests::vendor::{Format, Vendor};
use wire::{RunErrorCode, RunStatus};

use super::{Kind, World, assert_has, assert_lacks, completes, for_each_kind, weather, world};

for_each_kind!(
    of_this_run_is_left_out,
    of_an_earlier_run_is_left_out,
    again_fails_the_run,
    without_any_state_fails_the_run,
);

async fn of_this_run_is_left_out(kind: Kind) {
    let World { vendor, server, host: _host } = world(kind).await;
    vendor.thinks_and_asks("weather", weather("Rome")).refuses_state().says("It is sunny.");
    completes(&server, "r1").await;
    let requests = vendor.requests();
    assert_eq!(requests.len(), 3, "once more, and not oftener");
    assert_has(&requests[1], &vendor.states());
    assert_lacks(&requests[2], &vendor.states());
}

async fn of_an_earlier_run_is_left_out(kind: Kind) {
    let World { vendor, server, host: _host } = world(kind).await;
    vendor.thinks_and_asks("weather", weather("Rome")).says("It is sunny.");
    completes(&server, "r1").await;
    vendor.refuses_state().thinks_and_asks("weather", weather("Oslo")).says("There, too.");
    let given = vendor.states();
    completes(&server, "r2").await;
    let requests = vendor.requests();
    assert_eq!(requests.len(), 5);
    assert_lacks(&requests[3], &given);
}

async fn again_fails_the_run(kind: Kind) {
    let World { vendor, server, host: _host } = world(kind).await;
    vendor.thinks_and_asks("weather", weather("Rome")).refuses_state().refuses_state();
    let result = server.run(in_session("s1", "r1", "weather?")).await;
    assert_eq!(result.status(), RunStatus::Failed);
    assert_eq!(result.last_error.expect("why").code(), RunErrorCode::ModelBadRequest);
    assert_eq!(vendor.requests().len(), 3, "no third try");
    vendor.says("Better.");
    completes(&server, "r2").await;
}

/// There is nothing to leave out, so asking again would be no use.
async fn without_any_state_fails_the_run(kind: Kind) {
    let World { vendor, server, host: _host } = world(kind).await;
    vendor.refuses_state();
    let result = server.run(in_session("s1", "r1", "weather?")).await;
    assert_eq!(result.status(), RunStatus::Failed);
    assert_eq!(vendor.requests().len(), 1);
}

#[tokio::test]
async fn of_tools_at_the_wrong_api_says_what_to_configure() {
    let vendor = Vendor::start("a").await;
    let kind = Kind { format: Format::Chat, model: "gpt-6.1-sol", other_model: "gpt-6-astra", keys: "" };
    let server = TestServer::asking(&[kind.provider("a", &vendor)], "a/gpt-6.1-sol", "").await;
    let _host = Host::with(&server, "h1", |tool| tool == "weather").await;
    vendor.expects_refusal();
    let result = server.run(in_session("s1", "r1", "weather?")).await;
    let error = result.last_error.clone().expect("why");
    assert_eq!((result.status(), error.http_status), (RunStatus::Failed, 400));
    assert!(error.message.contains(r#"kind = "openai-responses""#), "{}", error.message);
    assert_eq!(vendor.refusals()[0].param.as_deref(), Some("reasoning_effort"));
}
