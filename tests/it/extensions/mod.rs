//! Extensions on hosts: which declarations are accepted, the questions of runs, and failures.

mod library;
mod planner;
mod prepare;
mod tools;

use agentloop_client::v1 as wire;
use agentloop_tests::events::{Events, text};
use agentloop_tests::input::prompt;
use agentloop_tests::model::Model;
use agentloop_tests::raw_host::{Offer, RawHost, declared, hello, hook, source};
use agentloop_tests::server::TestServer;
use agentloop_tests::soon;
use serde_json::Value;
use wire::HookPoint::PreRun;
use wire::connect_request::Frame;
use wire::connect_response::Frame as ServerFrame;
use wire::extension_response::Response;
use wire::run_event::Event;

/// A prompt for a run with these hooks and context sources.
fn extended(hooks: &[&str], sources: &[&str]) -> wire::RunInput {
    let names = |names: &[&str]| wire::Names { names: names.iter().map(|name| (*name).to_owned()).collect() };
    wire::RunInput {
        hooks: Some(names(hooks)),
        context_sources: Some(names(sources)),
        ..prompt("which city?")
    }
}

fn noted(note: &str) -> Response {
    Response::Hook(wire::HookVerdict { annotation: note.to_owned(), ..Default::default() })
}

fn vetoed(why: &str) -> Response {
    Response::Hook(wire::HookVerdict { veto: Some(why.to_owned()), ..Default::default() })
}

/// Every event of a run to its end.
async fn all(mut events: Events) -> Vec<wire::RunEvent> {
    events.wait_for_name("run_finished").await;
    events.seen
}

/// The `ExtensionApplied` events of a run: name, outcome, error.
fn applied(events: &[wire::RunEvent]) -> Vec<(String, String, String)> {
    let applied = |event: &wire::RunEvent| match &event.event {
        Some(Event::ExtensionApplied(applied)) => {
            assert!(applied.duration.is_some());
            Some((applied.name.clone(), applied.outcome.clone(), applied.error.clone()))
        }
        _ => None,
    };
    events.iter().filter_map(applied).collect()
}

fn told(name: &str, outcome: &str, error: &str) -> (String, String, String) {
    (name.to_owned(), outcome.to_owned(), error.to_owned())
}

/// The messages of a request to the model: role and text.
fn read(request: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let message = |message: &Value| (text(&message["role"]), text(&message["content"]));
    request["messages"].as_array().into_iter().flatten().map(message).collect()
}

async fn hosts(server: &TestServer) -> Vec<wire::Host> {
    soon(server.tools().list_hosts(wire::ListHostsRequest::default()))
        .await
        .expect("listed")
        .into_inner()
        .hosts
}

#[tokio::test]
async fn are_taken_with_a_verdict_each_and_listed_with_their_host() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let mut host = RawHost::open(&server).await;
    let nameless = Offer::Planner(wire::PlannerDeclaration::default());
    let pointless = hook("pointless", &[], false);
    let tool = Offer::Tool(declared("same", wire::EffectClass::ReadOnly));
    let offered = vec![
        hook("same", &[PreRun], true),
        tool,
        hook("same", &[PreRun], false),
        nameless,
        pointless,
        source("memory", 900),
    ];
    let capability = |offer| wire::Capability { capability: Some(offer) };
    let capabilities = offered.into_iter().map(capability).collect();
    host.send(Frame::Hello(wire::Hello { capabilities, ..hello("h", Vec::new()) }));
    let ServerFrame::Welcome(welcome) = host.wait_for(|_| true).await else { panic!("welcome comes first") };
    let accepted: Vec<bool> = welcome.capabilities.iter().map(|verdict| verdict.accepted).collect();
    assert_eq!(accepted, [true, true, false, false, false, true], "{:?}", welcome.capabilities);
    assert_eq!(welcome.capabilities[2].reason, "declared twice");
    let [listed] = &hosts(&server).await[..] else { panic!("one host") };
    assert_eq!(listed.tools, ["same"]);
    assert_eq!(listed.extensions, ["hook same", "context source memory"]);

    let mut other = RawHost::open(&server).await;
    let capabilities = vec![capability(hook("same", &[PreRun], false)), capability(source("memory", 900))];
    other.send(Frame::Hello(wire::Hello { capabilities, ..hello("other", Vec::new()) }));
    let ServerFrame::Welcome(welcome) = other.wait_for(|_| true).await else { panic!("welcome comes first") };
    let accepted: Vec<bool> = welcome.capabilities.iter().map(|verdict| verdict.accepted).collect();
    assert_eq!(accepted, [false, true], "{:?}", welcome.capabilities);
    host.send(Frame::UpdateTools(wire::UpdateTools { capabilities: Vec::new() }));
    host.wait_for(|frame| matches!(frame, ServerFrame::ToolsUpdated(_))).await;
    let listed = hosts(&server).await;
    assert_eq!(listed.iter().map(|host| host.extensions.len()).collect::<Vec<_>>(), [0, 1]);
}
