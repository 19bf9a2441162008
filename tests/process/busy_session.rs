//! A session with a queue, whose server is killed.

use agentloop_client::v1::run_event::Event;
use agentloop_client::v1::{BusySessionPolicy, RunInput};
use serde_json::Value;

use crate::support::follow::{Follower, text};
use crate::support::model::Model;
use crate::support::server::{Server, input};

fn busy(policy: BusySessionPolicy, run: &str, prompt: &str) -> RunInput {
    RunInput { on_busy_session: policy.into(), ..input(run, "s-1", prompt) }
}

fn last(request: &Value) -> &Value {
    &request["messages"].as_array().and_then(|messages| messages.last()).expect("a message")["content"]
}

#[tokio::test]
async fn steered_messages_and_queued_runs_survive_a_kill() {
    let mut model = Model::start().await;
    let mut server = Server::start(&model.setting()).await;
    let mut first = Follower::start(&server, input("r-1", "s-1", "one")).await;
    let cut = model.call().await;
    let mut second = Follower::start(&server, busy(BusySessionPolicy::Enqueue, "r-2", "two")).await;
    let mut steered = Follower::start(&server, busy(BusySessionPolicy::Steer, "more", "and more")).await;
    let held = |event: &Event| matches!(event, Event::InputMessage(held) if held.entry_no == 0).then_some(());
    second.until("its place in the queue", held).await;
    steered.until("its message", held).await;
    assert_eq!(steered.run_id(), "r-1");

    server.kill().await;
    drop(cut);
    server.start_again().await;

    let again = model.call().await;
    assert_eq!(last(&again.request), "and more", "the next call is a new one, and reads what was said");
    again.say("First.").await;
    let next = model.call().await;
    assert_eq!(last(&next.request), "two");
    next.say("Second.").await;
    assert_eq!(first.answer().await, "First.");
    assert_eq!(steered.answer().await, "First.");
    assert_eq!(second.answer().await, "Second.");
    let said = second.entries().await.into_iter().map(|entry| text(&entry.message.expect("a message")));
    assert_eq!(said.collect::<Vec<_>>(), ["one", "and more", "First.", "two", "Second."]);
}
