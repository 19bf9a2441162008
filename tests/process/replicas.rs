//! Several replicas over one PostgreSQL database: callers and hosts at replicas that stand by, and an owner that is killed,
//! frozen, or told to stop. Left out without a database, in one line.

mod clocks;

use std::path::PathBuf;

use agentloop_client::v1::decision::Decision;
use agentloop_client::v1::run_event::Event;
use agentloop_client::v1::{Approve, Replica, ReplicaState, RunStatus, ToolStatus};
use agentloop_client::{Backoff, Client};
use agentloop_tests::postgres;
use serde_json::json;

use crate::support::eventually;
use crate::support::follow::{Follower, outcome};
use crate::support::host::Host;
use crate::support::model::Model;
use crate::support::server::{FENCED, Server, Setting, input};

/// Three replicas, the owner first.
struct Replicas(Vec<Server>);

impl Replicas {
    /// Starts them over a new schema; `None` where there is no database.
    async fn start(model: &Model) -> Option<Replicas> {
        Replicas::of_programs(model, [None, None, None]).await
    }

    /// The same, with a program for each; `None`: the one that was built with the tests.
    async fn of_programs(model: &Model, programs: [Option<PathBuf>; 3]) -> Option<Replicas> {
        let Some(url) = postgres::url() else {
            println!("not tested: replicas, because AGENTLOOP_TEST_POSTGRES names no database");
            return None;
        };
        let store = Some(format!("url = \"{}\"", postgres::in_new_schema(url)));
        let more = "[cluster]\nlisten = \"127.0.0.1:0\"\n".to_owned();
        let setting = Setting { store, more, grace_period: "10s", ..model.setting() };
        let mut servers = Vec::new();
        for program in programs {
            servers.push(Server::start(&Setting { program, ..setting.clone() }).await);
            // The first one owns the database before the others come.
            let client = servers[0].client();
            eventually("an owner", || async { owner(&client).await }).await;
        }
        Some(Replicas(servers))
    }

    fn owner(&mut self) -> &mut Server {
        &mut self.0[0]
    }

    /// One that stands by.
    fn standby(&self) -> &Server {
        &self.0[1]
    }
}

/// The owner, as a replica tells it. An error is an answer too: nobody may own the database for a moment.
pub(crate) async fn owner(client: &Client) -> Option<Replica> {
    let replicas = client.list_replicas().await.ok()?;
    replicas.into_iter().find(|replica| replica.state() == ReplicaState::Owner)
}

/// A caller who does not try again: whatever the replicas do to each other is theirs to mend.
fn impatient(server: &Server) -> Client {
    let backoff = Backoff { max_retries: 0, ..Backoff::default() };
    server.client_builder().backoff(backoff).build().expect("a good address")
}

#[tokio::test]
async fn the_owner_is_killed_in_a_model_call() {
    let mut model = Model::start().await;
    let Some(mut replicas) = Replicas::start(&model).await else { return };
    let client = impatient(replicas.standby());
    let mut run = Follower::with(client, input("r-1", "s-1", "Say hello")).await;
    let mut cut = model.call().await;
    cut.begin("Good mor").await;
    run.until("a piece of the answer", |event| {
        matches!(event, Event::ModelDelta(_) | Event::PartialMessage(_)).then_some(())
    })
    .await;

    replicas.owner().kill().await;

    model.call().await.say("Hello.").await;
    assert_eq!(run.answer().await, "Hello.");
    assert_eq!(run.count(|event| matches!(event, Event::AssistantMessage(_))), 1);
    assert_eq!(run.entries().await.len(), 2);
    assert!(!model.was_called());
}

#[tokio::test]
async fn the_owner_is_killed_while_a_host_at_another_replica_has_a_call() {
    let model = Model::start().await;
    let Some(mut replicas) = Replicas::start(&model).await else { return };
    let host = Host::start(&replicas.0[2], "h-1").await;
    let client = impatient(replicas.standby());
    let mut run = Follower::with(client, input("r-1", "s-1", "Wait")).await;
    model.answers("slow", json!({ "seconds": 6.0 }), "Waited.");
    host.does("slow-start").await;

    replicas.owner().kill().await;

    let result = run.result().await;
    assert_eq!(outcome(&result), (ToolStatus::Succeeded, "slept"));
    assert_eq!(run.answer().await, "Waited.");
    assert_eq!(host.did("slow-start").len(), 1, "the call went on at its host");
    assert_eq!(host.did("slow-end").len(), 1);
}

#[tokio::test]
async fn the_owner_stands_still_and_finds_its_place_taken() {
    let mut model = Model::start().await;
    let Some(mut replicas) = Replicas::start(&model).await else { return };
    let client = impatient(replicas.standby());
    let before = owner(&client).await.expect("there is an owner").number;
    let mut run = Follower::with(client.clone(), input("r-1", "s-1", "Say hello")).await;
    let cut = model.call().await;

    replicas.owner().signal("STOP").await;

    let again = model.call().await;
    assert_eq!(again.request["messages"], cut.request["messages"]);
    let now = eventually("another owner", || async { owner(&client).await }).await;
    assert_ne!(now.number, before);
    // The frozen one may write nothing any more. It finds out at its next write or its next beat.
    cut.say("Too late.").await;
    replicas.owner().signal("CONT").await;
    let (code, said) = replicas.owner().take().ended().await;
    assert_eq!((code, errors(&said).len()), (FENCED, 1), "{said}");
    again.say("Hello.").await;
    assert_eq!(run.answer().await, "Hello.");
}

/// The errors in a log, but those about the readiness of a replica that has no owner.
fn errors(said: &str) -> Vec<&str> {
    said.lines().filter(|line| line.contains(" ERROR ") && !line.contains("not ready")).collect()
}

#[tokio::test]
async fn an_owner_that_finds_its_place_taken_says_so_once_for_all_of_its_runs() {
    const RUNS: usize = 12;
    let mut model = Model::start().await;
    let Some(mut replicas) = Replicas::start(&model).await else { return };
    let client = impatient(replicas.standby());
    let before = owner(&client).await.expect("there is an owner").number;
    let mut runs = Vec::new();
    let mut calls = Vec::new();
    for number in 0..RUNS {
        let input = input(&format!("r-{number}"), &format!("s-{number}"), "Say hello");
        runs.push(Follower::with(client.clone(), input).await);
        calls.push(model.call().await);
    }

    replicas.owner().signal("STOP").await;
    eventually("another owner", || async { owner(&client).await.filter(|now| now.number != before) }).await;
    replicas.owner().signal("CONT").await;

    let (code, said) = replicas.owner().take().ended().await;
    let errors = errors(&said);
    assert_eq!((code, errors.len()), (FENCED, 1), "{said}");
    assert!(errors[0].contains("takes its place") && errors[0].contains(&format!("runs={RUNS}")), "{said}");
    drop(calls);
    // The next owner makes the calls again, in an order of its own.
    for _ in 0..RUNS {
        model.call().await.say("Hello.").await;
    }
    for mut run in runs {
        assert_eq!(run.answer().await, "Hello.");
    }
}

#[tokio::test]
async fn the_owner_is_told_to_stop_while_a_question_waits() {
    let model = Model::start().await;
    let Some(mut replicas) = Replicas::start(&model).await else { return };
    let host = Host::start(&replicas.0[2], "h-1").await;
    model.answers("send_email", json!({ "to": "bob" }), "Sent.");
    let client = replicas.standby().client();
    let waits = client.run(input("r-1", "s-1", "Mail bob")).await.expect("it asks");
    assert_eq!(waits.status(), RunStatus::AwaitingHuman, "{waits:?}");
    let question = replicas.standby().question("r-1").await;

    let (code, said) = replicas.owner().terminate().await;

    assert_eq!(code, 0, "{said}");
    let mut run = Follower::with(impatient(replicas.standby()), input("r-1", "s-1", "Mail bob")).await;
    run.decide(&question, Decision::Approve(Approve {})).await;
    assert_eq!(run.answer().await, "Sent.");
    assert_eq!(host.did("send_email").len(), 1);
}

#[tokio::test]
async fn a_replica_that_stands_by_is_killed_and_nobody_else_notices() {
    let mut model = Model::start().await;
    let Some(mut replicas) = Replicas::start(&model).await else { return };
    let client = impatient(replicas.standby());
    let before = owner(&client).await.expect("there is an owner");
    let mut run = Follower::with(client.clone(), input("r-1", "s-1", "Say hello")).await;
    let call = model.call().await;

    replicas.0[2].kill().await;

    call.say("Hello.").await;
    assert_eq!(run.answer().await, "Hello.");
    eventually("the dead one to be fenced", || async {
        let rows = client.list_replicas().await.expect("listed");
        rows.iter().any(|row| row.state() == ReplicaState::Fenced).then_some(())
    })
    .await;
    assert_eq!(owner(&client).await.expect("an owner").number, before.number);
}
