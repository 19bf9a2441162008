//! Starting a run in a session that has a live one: enqueue, interrupt or steer.

mod cut;
mod interrupt;
mod queue;
mod steer;

use agentloop_client::v1 as wire;
use agentloop_tests::input::in_session;
use agentloop_tests::server::TestServer;
use agentloop_tests::soon;
use wire::BusySessionPolicy;
use wire::run_event::Event;

fn enqueued(run: &str, text: &str) -> wire::RunInput {
    busy(BusySessionPolicy::Enqueue, run, text)
}

fn interrupting(run: &str, text: &str) -> wire::RunInput {
    busy(BusySessionPolicy::Interrupt, run, text)
}

fn steering(run: &str, text: &str) -> wire::RunInput {
    busy(BusySessionPolicy::Steer, run, text)
}

/// A run in session `s1`, with a policy for when it is busy.
fn busy(policy: BusySessionPolicy, run: &str, text: &str) -> wire::RunInput {
    wire::RunInput { on_busy_session: policy.into(), ..in_session("s1", run, text) }
}

/// The texts of session `s1`.
async fn said(server: &TestServer) -> Vec<String> {
    let message = |entry: wire::Entry| agentloop_tests::events::text(&entry.message.expect("a message"));
    server.entries("s1").await.into_iter().map(message).collect()
}

/// The contents of a request to the model.
fn read(request: &serde_json::Value) -> Vec<String> {
    let messages = request["messages"].as_array().expect("messages");
    messages.iter().map(|message| message["content"].as_str().unwrap_or_default().to_owned()).collect()
}

async fn delete(server: &TestServer) -> Result<bool, tonic::Status> {
    let request = wire::DeleteSessionRequest { session_id: "s1".to_owned() };
    Ok(soon(server.sessions().delete_session(request)).await?.into_inner().existed)
}

/// The error code of an ended run.
fn end(events: &[wire::RunEvent]) -> wire::RunError {
    let Some(Event::RunFinished(finished)) = events.last().and_then(|event| event.event.clone()) else {
        panic!("not over: {events:?}")
    };
    finished.error.expect("why")
}
