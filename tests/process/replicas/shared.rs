//! Replicas that share the work: each owns a part of all sessions, and any of them serves any call, with the tool hosts of all.

use agentloop_client::v1::run_event::Event;
use agentloop_client::v1::{
    DisconnectPolicy, GetOrCreateSessionRequest, ListRunsRequest, RunInput, RunStatus, ToolStatus,
};
use agentloop_tests::owners::sessions_of;
use serde_json::json;
use tokio::task::JoinSet;

use super::{Replicas, impatient, in_time};
use crate::support::eventually;
use crate::support::follow::{Follower, outcome};
use crate::support::host::Host;
use crate::support::model::Model;
use crate::support::server::{Server, Setting, input};

/// Runs of each replica's sessions.
const OF_EACH: usize = 3;

/// A session of each of the replicas, as many times as are asked for: those of the first one first.
async fn sessions(replicas: &mut Replicas, of_each: usize) -> Vec<(usize, String)> {
    let mut all = Vec::new();
    for place in 0..replicas.servers.len() {
        let found = sessions_of(&mut replicas.owners, &replicas.servers, place, of_each).await;
        all.extend(found.into_iter().map(|session| (place, session)));
    }
    all
}

#[tokio::test]
async fn any_replica_serves_any_run_with_the_hosts_of_all() {
    let model = Model::start().await;
    let Some(mut replicas) = Replicas::start(&model).await else { return };
    let host = replicas.host(2, "h-1").await;
    model.answers("slow", json!({ "seconds": 0.05 }), "Done.");
    let mut runs = Vec::new();
    for (number, (place, session)) in sessions(&mut replicas, OF_EACH).await.into_iter().enumerate() {
        // Each call enters at another replica than the one that owns the run.
        let client = impatient(&replicas.servers[(place + 1 + number % 2) % 3]);
        runs.push(Follower::with(client, input(&format!("r-{number}"), &session, "Wait")).await);
    }
    for run in &mut runs {
        assert_eq!(outcome(&run.result().await), (ToolStatus::Succeeded, "slept"));
        assert_eq!(run.answer().await, "Done.");
        assert_eq!(run.count(|event| matches!(event, Event::AssistantMessage(_))), 2);
    }
    assert_eq!(host.did("slow-end").len(), runs.len(), "each call was made once");
    for server in &replicas.servers {
        let client = impatient(server);
        let listed = client.list_runs(ListRunsRequest::default()).await.expect("listed").runs;
        assert_eq!(listed.len(), runs.len());
        for run in &runs {
            let known = client.get_run(run.run_id()).await.expect("it is read");
            assert_eq!(known.status(), RunStatus::Completed);
            // Its id alone says nothing of its session.
            let by_id = RunInput { run_id: Some(run.run_id().to_owned()), ..Default::default() };
            let joined = client.run(by_id).await.expect("it is joined");
            assert_eq!((joined.run_id, joined.session_id), (known.run_id, known.session_id));
        }
        assert_eq!(client.list_hosts().await.expect("listed").len(), 1);
    }
}

#[tokio::test]
async fn a_session_without_a_name_is_made_wherever_the_call_comes_in() {
    let model = Model::start().await;
    let Some(mut replicas) = Replicas::start(&model).await else { return };
    let _host = replicas.host(0, "h-1").await;
    model.answers("slow", json!({ "seconds": 0.01 }), "Done.");
    let mut places = Vec::new();
    for server in &replicas.servers {
        let nameless = RunInput { session_id: None, ..input("x", "x", "Wait") };
        for number in 0..4 {
            let run_id = format!("r-{}-{number}", places.len());
            let asked = RunInput { run_id: Some(run_id), ..nameless.clone() };
            let run = impatient(server).run(asked.clone()).await.expect("it runs");
            assert_eq!(run.status(), RunStatus::Completed, "{run:?}");
            // The same call at another replica finds the run, wherever its session is.
            let again = impatient(&replicas.servers[0]).run(asked).await.expect("it is joined");
            assert_eq!((again.run_id, &again.session_id), (run.run_id, &run.session_id));
            places.push(run.session_id);
        }
    }
    let mut owned = [false; 3];
    for session in &places {
        owned[replicas.owners.place(&replicas.servers, session).await] = true;
    }
    assert_eq!(owned, [true; 3], "each replica makes sessions of its own");
}

#[tokio::test]
async fn the_session_of_a_user_is_made_once_wherever_the_calls_come_in() {
    let model = Model::start().await;
    let Some(replicas) = Replicas::start(&model).await else { return };
    for number in 0..6 {
        let user = format!("user-{number}");
        let mut sessions = Vec::new();
        for server in &replicas.servers {
            let asked = GetOrCreateSessionRequest { user: user.clone(), ..Default::default() };
            let found = impatient(server).get_or_create_session(asked).await.expect("it is answered");
            sessions.push((found.session.expect("it has a session").session_id, found.created));
        }
        let first = sessions[0].0.clone();
        assert_eq!(sessions, [(first.clone(), true), (first.clone(), false), (first, false)]);
    }
}

/// Every call is at a host whose stream is kept by the replica that is killed.
#[tokio::test]
async fn the_replica_that_keeps_the_hosts_is_killed_while_they_have_calls_of_every_owner() {
    let model = Model::start().await;
    let Some(mut replicas) = Replicas::start(&model).await else { return };
    let hub = replicas.owners.hub(&replicas.servers).await.expect("one keeps the hosts");
    let beside = (hub + 1) % 3;
    let host =
        Host::start_in(&replicas.servers[beside].file(""), &replicas.servers[beside].url(), "h-1", 16).await;
    let client = impatient(&replicas.servers[beside]);
    model.answers("slow", json!({ "seconds": 6.0 }), "Waited.");
    let mut runs = Vec::new();
    for (number, (_, session)) in sessions(&mut replicas, 2).await.into_iter().enumerate() {
        runs.push(Follower::with(client.clone(), input(&format!("r-{number}"), &session, "Wait")).await);
    }
    eventually("every call", || async { (host.did("slow-start").len() == runs.len()).then_some(()) }).await;

    replicas.servers[hub].kill().await;

    for run in &mut runs {
        assert_eq!(outcome(&run.result().await), (ToolStatus::Succeeded, "slept"));
        assert_eq!(run.answer().await, "Waited.");
    }
    assert_eq!(host.did("slow-start").len(), runs.len(), "each call went on at its host");
    assert_eq!(host.did("slow-end").len(), runs.len());
}

/// Starts one more replica over their database.
async fn join(replicas: &mut Replicas, model: &Model) {
    let setting = Setting {
        store: Some(format!("url = \"{}\"", replicas.url)),
        more: "[cluster]\nlisten = \"127.0.0.1:0\"\n".to_owned(),
        ..model.setting()
    };
    replicas.servers.push(Server::start(&setting).await);
}

/// A caller that waits with `Run` named neither the run nor its session, so only the replica that took the RPC knows where it is.
#[tokio::test]
async fn calls_that_wait_for_nameless_runs_are_answered_although_their_sessions_move() {
    const RUNS: usize = 9;
    let mut model = Model::start().await;
    let Some(mut replicas) = Replicas::start(&model).await else { return };
    let (code, said) = { replicas.servers.remove(2) }.terminate().await;
    assert_eq!(code, 0, "{said}");
    in_time("equal parts of two", replicas.owners.shared_by(2)).await;
    let (mut runs, mut calls) = (JoinSet::new(), Vec::new());
    for number in 0..RUNS {
        let client = impatient(&replicas.servers[number % 2]);
        let policy = if number < 3 { DisconnectPolicy::Cancel } else { DisconnectPolicy::Continue };
        let mut nameless = RunInput { run_id: None, session_id: None, ..input("x", "x", "Say hello") };
        nameless.on_disconnect = policy.into();
        if number % 3 == 1 {
            nameless.run_id = Some(format!("r-{number}"));
        }
        runs.spawn(async move { client.run(nameless).await.expect("it is answered") });
        calls.push(model.call().await);
    }

    join(&mut replicas, &model).await;
    in_time("equal parts of three", replicas.owners.shared_by(3)).await;

    for call in calls {
        call.say("Hello.").await;
    }
    let mut sessions = Vec::new();
    while sessions.len() < RUNS {
        tokio::select! {
            // A run that has moved asks the model again.
            call = model.call() => call.say("Hello.").await,
            ended = runs.join_next() => {
                let run = ended.expect("there are more").expect("it does not panic");
                assert_eq!(run.status(), RunStatus::Completed, "{run:?}");
                sessions.push(run.session_id);
            }
        }
    }
}

#[tokio::test]
async fn a_replica_that_joins_takes_its_part_of_runs_that_are_at_work() {
    let mut model = Model::start().await;
    let Some(mut replicas) = Replicas::start(&model).await else { return };
    let client = impatient(replicas.other());
    let gone = replicas.servers.remove(2);
    let (code, said) = { gone }.terminate().await;
    assert_eq!(code, 0, "{said}");
    in_time("equal parts of two", replicas.owners.shared_by(2)).await;
    let mut runs = Vec::new();
    let mut calls = Vec::new();
    for number in 0..6 {
        let session = format!("s-{number}");
        runs.push(Follower::with(client.clone(), input(&format!("r-{number}"), &session, "Say hello")).await);
        calls.push(model.call().await);
    }

    join(&mut replicas, &model).await;
    in_time("equal parts of three", replicas.owners.shared_by(3)).await;

    let mut moved = 0;
    for number in 0..6 {
        let place = replicas.owners.place(&replicas.servers, &format!("s-{number}")).await;
        moved += usize::from(place == 2);
    }
    // A run that has moved asks the model again.
    for call in calls {
        call.say("Hello.").await;
    }
    for _ in 0..moved {
        model.call().await.say("Hello.").await;
    }
    for run in &mut runs {
        assert_eq!(run.answer().await, "Hello.");
        assert_eq!(run.count(|event| matches!(event, Event::AssistantMessage(_))), 1);
    }
}
