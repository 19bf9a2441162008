//! The server killed after each event of a conversation.

use agentloop_client::v1::Approve;
use agentloop_client::v1::decision::Decision;
use agentloop_client::v1::run_event::Event;
use serde_json::json;

use crate::support::follow::Follower;
use crate::support::host::Host;
use crate::support::model::Model;
use crate::support::server::{Server, input};

/// More than a conversation has.
const EVENTS_MAX: u64 = 40;

#[tokio::test]
async fn killed_after_any_event_the_server_goes_on_and_does_nothing_twice() {
    let model = Model::start().await;
    let mut server = Server::start(&model.setting()).await;
    let host = Host::start(&server, "h-1").await;
    model.answers("send_email", json!({ "to": "a@example.com" }), "It is sent.");
    // One that is left alone: by its end the server has written down which tools there are.
    let mut run = Follower::start(&server, input("r-0", "s-0", "Mail it")).await;
    follow(&mut server, &mut run, 0).await;
    assert_eq!(run.answer().await, "It is sent.");
    for kill_after in 1..EVENTS_MAX {
        println!("killed after event {kill_after}");
        let (run_id, session_id) = (format!("r-{kill_after}"), format!("s-{kill_after}"));
        let mut run = Follower::start(&server, input(&run_id, &session_id, "Mail it")).await;
        let reached = follow(&mut server, &mut run, kill_after).await;
        assert_eq!(run.answer().await, "It is sent.");
        assert_eq!(run.entries().await.len(), 4);
        assert_eq!(host.did("send_email").len() as u64, kill_after + 1, "one mail for each run");
        if !reached {
            return;
        }
    }
    panic!("a conversation has fewer events than {EVENTS_MAX}");
}

/// Follows the run to its end, approves what is asked, and kills the server after one of the events. Whether that came.
async fn follow(server: &mut Server, run: &mut Follower, kill_after: u64) -> bool {
    let mut seq = 1;
    while let Some(event) = run.event(seq).await {
        if seq == kill_after {
            server.kill().await;
            server.start_again().await;
        }
        match event {
            Event::HumanRequested(asked) => {
                let question = asked.request.expect("a question");
                run.decide(&question, Decision::Approve(Approve {})).await;
            }
            Event::RunFinished(_) => break,
            _ => {}
        }
        seq += 1;
    }
    seq >= kill_after
}
