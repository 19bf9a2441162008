//! Replicas whose clocks are an hour apart. Left out, in one line, where there is no database or no C compiler.

use agentloop_client::v1::decision::Decision;
use agentloop_client::v1::{Approve, ReplicaState, RunInput, RunStatus, ToolStatus};
use agentloop_tests::owners::sessions_of;
use agentloop_tests::process::built;
use agentloop_tests::process::moved_clock::off_by;
use serde_json::json;

use super::{Replicas, in_time};
use crate::support::follow::{Follower, outcome};
use crate::support::model::Model;
use crate::support::server::input;

fn asks_for(number: usize, session: &str, seconds: u32) -> RunInput {
    let run = format!("r-{number}");
    RunInput { approval_timeout_seconds: Some(seconds), ..input(&run, session, "Mail bob") }
}

/// Reads a run to its end. The times of its events never fall, whoever wrote them.
async fn ended(mut run: Follower) -> Follower {
    assert_eq!(run.answer().await, "Done.");
    let times: Vec<_> = run.seen.iter().map(|event| event.at.map(|at| (at.seconds, at.nanos))).collect();
    assert!(times.is_sorted() && times.iter().all(Option::is_some), "{times:?}");
    run
}

#[tokio::test]
async fn an_hour_apart_no_wait_gets_longer_and_nobody_is_fenced_for_it() {
    let (model, folder) = (Model::start().await, tempfile::tempdir().expect("a directory"));
    let moved = |seconds| off_by(folder.path(), &built("agentloop"), seconds);
    let Some((ahead, behind)) = moved(3_600).zip(moved(-3_600)) else {
        println!("left out: replicas whose clocks differ, because there is no C compiler (cc)");
        return;
    };
    let programs = [Some(ahead), None, Some(behind)];
    let Some(mut replicas) = Replicas::of_programs(&model, programs, "").await else { return };
    let host = replicas.host(2, "h-1").await;
    model.answers("send_email", json!({ "to": "bob" }), "Done.");
    let client = replicas.other().client();

    // The owner is ahead, and the next one is right, or behind.
    let sessions = sessions_of(&mut replicas.owners, &replicas.servers, 0, 4).await;
    let asks_for = |number: usize, seconds| asks_for(number, &sessions[number - 1], seconds);
    for (number, seconds) in [(1, 4), (2, 7_200)] {
        let waits = client.run(asks_for(number, seconds)).await.expect("it asks");
        assert_eq!(waits.status(), RunStatus::AwaitingHuman, "{waits:?}");
    }
    let before = client.list_replicas().await.expect("listed");
    assert!(before.iter().all(|row| row.state() != ReplicaState::Fenced), "{before:?}");
    replicas.owner().kill().await;

    // Not in an hour: the question is measured by the time of its run.
    let denied = ended(Follower::with(client.clone(), asks_for(1, 4)).await).await;
    assert_eq!(outcome(&denied.result_seen()).0, ToolStatus::Denied);
    let question = replicas.other().question("r-2").await;
    let asked = Follower::with(client.clone(), asks_for(2, 7_200)).await;
    asked.decide(&question, Decision::Approve(Approve {})).await;
    let approved = ended(asked).await;
    assert_eq!(outcome(&approved.result_seen()).0, ToolStatus::Succeeded);
    assert_eq!(host.did("send_email").len(), 1);

    // The one that is ahead says so, and becomes the owner again: a question falls due an hour early by its clock.
    let mut ahead = replicas.servers[0].another();
    ahead.line_with("is ahead of the database's").await;
    ahead.line_with("agentloop listens on").await;
    for (number, seconds) in [(3, 1_800), (4, 10_800)] {
        let waits = client.run(asks_for(number, seconds)).await.expect("it asks");
        assert_eq!(waits.status(), RunStatus::AwaitingHuman, "{waits:?}");
    }
    replicas.servers[1].kill().await;
    replicas.servers[2].kill().await;
    in_time("one owner of all", replicas.owners.shared_by(1)).await;
    let client = replicas.servers[0].client();
    let early = ended(Follower::with(client.clone(), asks_for(3, 1_800)).await).await;
    assert_eq!(outcome(&early.result_seen()).0, ToolStatus::Denied);
    assert_eq!(client.get_run("r-4").await.expect("it is read").status(), RunStatus::AwaitingHuman);
}
