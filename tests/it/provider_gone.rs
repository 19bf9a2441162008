//! A provider that is renamed or removed in the configuration while runs need it.

use agentloop_client::v1 as wire;
use agentloop_tests::events::names;
use agentloop_tests::host::Host;
use agentloop_tests::input::named;
use agentloop_tests::model::Model;
use agentloop_tests::server::TestServer;
use serde_json::json;
use wire::decision::Decision;
use wire::{RunErrorCode, RunStatus};

#[tokio::test]
async fn a_run_is_paused_and_goes_on_when_the_provider_is_back() {
    let model = Model::start().await;
    let second = format!("[providers.second]\nkind = \"openai\"\nbase_url = \"{}\"", model.base_url());
    let mut server = TestServer::with(&model, &second).await;
    let _host = Host::start(&server).await;
    let input = || wire::RunInput { model: Some("second/m".to_owned()), ..named("r1", "write") };
    model.asks("mail", json!({ "to": "bob" }));
    let waits = server.run(input()).await;
    assert_eq!(waits.status(), RunStatus::AwaitingHuman);

    server.reconfigure("[providers.second]", "[providers.third]").await;
    let deny = Decision::Deny(wire::Deny { message: "no".to_owned() });
    server.decide(&waits.pending[0].request_id, deny).await.expect("the run takes the answer");
    let paused = server.run(input()).await;
    assert_eq!(paused.status(), RunStatus::Paused);
    let error = paused.last_error.expect("why");
    assert_eq!(error.code(), RunErrorCode::ModelNotConfigured);
    assert!(error.message.contains("second/m") && error.message.contains("third"), "{}", error.message);

    server.restart().await;
    assert_eq!(server.get_run("r1").await.status(), RunStatus::Paused, "it is still gone");

    model.says("done");
    server.reconfigure("[providers.third]", "[providers.second]").await;
    let events = server.subscribe("r1", 0).await.rest().await;
    let names = names(&events);
    assert_eq!(server.get_run("r1").await.status(), RunStatus::Completed, "{names:?}");
    assert_eq!(names.iter().filter(|name| **name == "run_resumed").count(), 1, "{names:?}");
    assert_eq!(model.faults(), [""; 0]);
}
