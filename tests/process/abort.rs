//! Ending a run while something is under way.

use agentloop_client::v1::{RunStatus, ToolStatus};
use serde_json::json;

use crate::support::follow::{Follower, outcome};
use crate::support::host::Host;
use crate::support::model::Model;
use crate::support::server::{Server, input};

#[tokio::test]
async fn a_host_is_told_to_stop_and_the_session_goes_on() {
    let mut model = Model::start().await;
    let server = Server::start(&model.setting()).await;
    let host = Host::start(&server, "h-1").await;
    stops(&mut model, &server, &host, json!({ "seconds": 600.0 })).await;
}

#[tokio::test]
async fn the_examples_stop_too() {
    for language in ["python", "typescript", "go"] {
        let mut model = Model::start().await;
        let server = Server::start(&model.setting()).await;
        if let Some(host) = Host::example(&server, language).await {
            stops(&mut model, &server, &host, json!({ "seconds": 600.0, "label": "waiting" })).await;
        }
    }
}

async fn stops(model: &mut Model, server: &Server, host: &Host, arguments: serde_json::Value) {
    let mut run = Follower::start(server, input("r-1", "s-1", "Wait")).await;
    model.call().await.use_tool("slow", arguments).await;
    host.does("slow-start").await;

    let aborted = server.client().abort_run("r-1", "enough").await.expect("aborted");
    assert_eq!(aborted.status(), RunStatus::Aborted);
    let result = run.result().await;
    assert_eq!(outcome(&result).0, ToolStatus::Aborted);
    assert_eq!(run.finished().await.status(), RunStatus::Aborted);
    host.does("slow-cancelled").await;
    assert!(host.did("slow-end").is_empty());

    let mut next = Follower::start(server, input("r-2", "s-1", "And now?")).await;
    let call = model.call().await;
    assert!(call.last_message().contains("And now?"), "{}", call.last_message());
    call.say("Now I listen.").await;
    assert_eq!(next.answer().await, "Now I listen.");
}
