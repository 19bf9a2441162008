//! A call that must not run twice waits for a human, while its host and the server are killed.

use agentloop_client::v1::run_event::Event;
use agentloop_client::v1::submit_input_request::Input;
use agentloop_client::v1::{SubmitInputRequest, ToolStatus};
use serde_json::json;

use crate::support::follow::{Follower, outcome};
use crate::support::host::Host;
use crate::support::model::Model;
use crate::support::server::{Server, Setting, input};

#[tokio::test]
async fn at_another_host_after_everything_was_killed() {
    let mut model = Model::start().await;
    let mut server = Server::start(&Setting { grace_period: "100ms", ..model.setting() }).await;
    let first = Host::start(&server, "h-1").await;
    let mut run = Follower::start(&server, input("r-1", "s-1", "Order one")).await;
    model.call().await.use_tool("order", json!({})).await;
    let asked = run.question().await;
    let ordered_once = first.did("ordering").len();
    first.process.kill().await;
    server.kill().await;
    server.start_again().await;
    assert_eq!(server.question("r-1").await.request_id, asked.request_id);

    let second = Host::start(&server, "h-2").await;
    let request = SubmitInputRequest {
        request_id: asked.request_id.clone(),
        input: Some(Input::Text("the red one".to_owned())),
        answered_by: "a test".to_owned(),
    };
    server.client().submit_input(request).await.expect("answered");
    let result = run.result().await;
    assert_eq!(outcome(&result), (ToolStatus::Succeeded, "ordered the red one"));
    assert_eq!((result.host_id.as_str(), result.attempt), ("h-2", 2));
    assert_eq!((ordered_once, second.did("ordering").len()), (1, 0), "it was not ordered again");
    assert_eq!(second.did("ordered").len(), 1);
    model.call().await.say("Done.").await;
    assert_eq!(run.answer().await, "Done.");
    assert_eq!(
        run.count(|event| matches!(event, Event::HumanRequested(_))),
        1,
        "nobody is asked about a doubt"
    );
}
