//! Several replicas over one PostgreSQL database: callers and hosts at replicas that do not own the run's session, and an owner
//! that is killed, frozen, or told to stop. Left out without a database, in one line.

mod certificates;
mod clocks;
mod cuts;
mod leaving;
mod listed;
mod shared;

use std::path::PathBuf;

use agentloop_client::v1::decision::Decision;
use agentloop_client::v1::run_event::Event;
use agentloop_client::v1::{Approve, ReplicaState, RunStatus, ToolStatus};
use agentloop_client::{Backoff, Client};
use agentloop_tests::credentials::SecurityFiles;
use agentloop_tests::owners::{Owners, moved, sessions_of};
use agentloop_tests::postgres;
use serde_json::json;

use crate::support::eventually;
use crate::support::follow::{Follower, outcome};
use crate::support::host::{Host, of_principal};
use crate::support::model::Model;
use crate::support::server::{FENCED, Server, Setting, input};

/// The session of most tests.
const SESSION: &str = "s-1";

/// Three replicas with equal parts of all sessions, the owner of [`SESSION`] first.
struct Replicas {
    servers: Vec<Server>,
    owners: Owners,
    /// The address of their database.
    url: String,
}

impl Replicas {
    /// Starts them over a new schema; `None` where there is no database.
    async fn start(model: &Model) -> Option<Replicas> {
        let mut replicas = Replicas::of_programs(model, [None, None, None], "").await?;
        let owner = replicas.owners.place(&replicas.servers, SESSION).await;
        replicas.servers.swap(0, owner);
        Some(replicas)
    }

    /// The same in the order of their programs, with more of a configuration; `None`: the one that was built with the tests.
    async fn of_programs(model: &Model, programs: [Option<PathBuf>; 3], more: &str) -> Option<Replicas> {
        let Some(url) = postgres::url() else {
            println!("not tested: replicas, because AGENTLOOP_TEST_POSTGRES names no database");
            return None;
        };
        let url = postgres::in_new_schema(url);
        let store = Some(format!("url = \"{url}\""));
        let more = format!("[cluster]\nlisten = \"127.0.0.1:0\"\n{more}");
        let setting = Setting { store, more, grace_period: "10s", ..model.setting() };
        let settings = programs.map(|program| Setting { program, ..setting.clone() });
        Some(Replicas::of_settings(&settings, url).await)
    }

    /// Replicas with these settings over the database at this address, once each has an equal part.
    async fn of_settings(settings: &[Setting], url: String) -> Replicas {
        let mut servers = Vec::new();
        for setting in settings {
            servers.push(Server::start(setting).await);
        }
        let mut owners = Owners::of(&url).await;
        in_time("equal parts", owners.shared_by(servers.len())).await;
        for server in &servers {
            server.ready().await;
        }
        Replicas { servers, owners, url }
    }

    /// Starts a host that dials the one at this place. Runs at each replica are offered its tools from then on.
    async fn host(&self, place: usize, id: &str) -> Host {
        Host::start(&self.servers[place], id).await
    }

    fn owner(&mut self) -> &mut Server {
        &mut self.servers[0]
    }

    /// One that does not own the session.
    fn other(&self) -> &Server {
        &self.servers[1]
    }
}

/// Waits for something that must not take long.
async fn in_time<T>(what: &str, waits: impl Future<Output = T>) -> T {
    let waited = tokio::time::timeout(std::time::Duration::from_secs(60), waits).await;
    waited.unwrap_or_else(|_| panic!("waited too long for {what}"))
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
    let client = impatient(replicas.other());
    let mut run = Follower::with(client, input("r-1", SESSION, "Say hello")).await;
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
    let host = replicas.host(2, "h-1").await;
    let client = impatient(replicas.other());
    let mut run = Follower::with(client, input("r-1", SESSION, "Wait")).await;
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
async fn a_call_has_its_own_deadline_after_its_owner_is_killed() {
    /// Seconds from the takeover that calls of a host that has gone have at least.
    const GRACE: i64 = 30;
    let model = Model::start().await;
    let Some(mut replicas) = Replicas::start(&model).await else { return };
    let host = replicas.host(2, "h-1").await;
    let client = impatient(replicas.other());
    let mut run = Follower::with(client, input("r-1", SESSION, "Wait")).await;
    model.answers("slow_at_most_8_s", json!({ "seconds": 120.0 }), "Gave up.");
    host.does("slow-start").await;

    replicas.owner().kill().await;

    let result = run.result().await;
    assert_eq!(outcome(&result).0, ToolStatus::TimedOut);
    assert_eq!(run.answer().await, "Gave up.");
    host.does("slow-cancelled").await;
    let at = |wanted: fn(&Event) -> bool| {
        let event = run.seen.iter().find(|event| event.event.as_ref().is_some_and(wanted));
        event.and_then(|event| event.at).expect("it has happened").seconds
    };
    let took = at(|event| matches!(event, Event::ToolCallResult(_)))
        - at(|event| matches!(event, Event::ToolCallOffered(_)));
    assert!((8..GRACE).contains(&took), "{took} s");
}

#[tokio::test]
async fn the_owner_stands_still_and_finds_its_place_taken() {
    let mut model = Model::start().await;
    let Some(mut replicas) = Replicas::start(&model).await else { return };
    let client = impatient(replicas.other());
    let mut run = Follower::with(client, input("r-1", SESSION, "Say hello")).await;
    let cut = model.call().await;

    replicas.owner().signal("STOP").await;

    let again = model.call().await;
    assert_eq!(again.request["messages"], cut.request["messages"]);
    moved(&mut replicas.owners, &replicas.servers, SESSION, 0).await;
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
    let client = impatient(replicas.other());
    let sessions = sessions_of(&mut replicas.owners, &replicas.servers, 0, RUNS).await;
    let mut runs = Vec::new();
    let mut calls = Vec::new();
    for (number, session) in sessions.iter().enumerate() {
        let input = input(&format!("r-{number}"), session, "Say hello");
        runs.push(Follower::with(client.clone(), input).await);
        calls.push(model.call().await);
    }

    replicas.owner().signal("STOP").await;
    moved(&mut replicas.owners, &replicas.servers, &sessions[0], 0).await;
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
    let host = replicas.host(2, "h-1").await;
    model.answers("send_email", json!({ "to": "bob" }), "Sent.");
    let client = replicas.other().client();
    let waits = client.run(input("r-1", SESSION, "Mail bob")).await.expect("it asks");
    assert_eq!(waits.status(), RunStatus::AwaitingHuman, "{waits:?}");
    let question = replicas.other().question("r-1").await;

    let (code, said) = replicas.owner().terminate().await;

    assert_eq!(code, 0, "{said}");
    let mut run = Follower::with(impatient(replicas.other()), input("r-1", SESSION, "Mail bob")).await;
    run.decide(&question, Decision::Approve(Approve {})).await;
    assert_eq!(run.answer().await, "Sent.");
    assert_eq!(host.did("send_email").len(), 1);
}

#[tokio::test]
async fn a_replica_is_killed_and_the_runs_of_others_do_not_notice() {
    let mut model = Model::start().await;
    let Some(mut replicas) = Replicas::start(&model).await else { return };
    let client = impatient(replicas.other());
    let mut run = Follower::with(client.clone(), input("r-1", SESSION, "Say hello")).await;
    let call = model.call().await;

    replicas.servers[2].kill().await;

    call.say("Hello.").await;
    assert_eq!(run.answer().await, "Hello.");
    eventually("the dead one to be fenced", || async {
        let rows = client.list_replicas().await.expect("listed");
        rows.iter().any(|row| row.state() == ReplicaState::Fenced).then_some(())
    })
    .await;
    assert_eq!(replicas.owners.place(&replicas.servers, SESSION).await, 0);
    replicas.servers.truncate(2);
    in_time("equal parts", replicas.owners.shared_by(2)).await;
}

/// Nothing listens at the address that it gives the others.
#[tokio::test]
async fn a_replica_with_a_wrong_address_is_shown_as_one_that_cannot_be_called() {
    let model = Model::start().await;
    let Some(replicas) = Replicas::of_programs(&model, [None, None, None], "").await else { return };
    let (store, wrong) = (Some(format!("url = \"{}\"", replicas.url)), "127.0.0.1:1");
    let more = format!("[cluster]\nlisten = \"127.0.0.1:0\"\nadvertise = \"{wrong}\"\n");
    let mut unreached = Server::start(&Setting { store, more, ..model.setting() }).await;
    let client = impatient(&replicas.servers[0]);
    eventually("the wrong address", || async {
        let rows = client.list_replicas().await.expect("listed");
        let problems: Vec<_> = rows.iter().filter(|row| !row.problem.is_empty()).collect();
        assert!(problems.iter().all(|row| row.address == wrong), "{problems:?}");
        problems.first().map(|row| assert!(row.problem.contains("refused"), "{row:?}"))
    })
    .await;
    let rows = impatient(&unreached).list_replicas().await.expect("listed");
    let not_called: Vec<_> = rows.iter().filter(|row| !row.problem.is_empty()).collect();
    assert!(not_called.iter().all(|row| row.address == wrong), "it calls all others: {not_called:?}");
    assert_eq!(not_called.len(), 1, "it does not find itself there");
    unreached.line_with("does not reach itself").await;
}

/// Another principal's host comes under the id of one that is away.
#[tokio::test]
async fn a_host_keeps_its_id_when_the_replica_with_the_hosts_is_killed() {
    let (model, files) = (Model::start().await, SecurityFiles::new());
    let [ada, eve] = ["ada", "eve"].map(|name| files.token(name, "local", &["host"]));
    let olga = files.token("olga", "local", &["operator"]);
    let Some(mut replicas) = Replicas::of_programs(&model, [None, None, None], &files.auth()).await else {
        return;
    };
    let hub = replicas.owners.hub(&replicas.servers).await.expect("one of them");
    let left = usize::from(hub == 0);
    let olga = replicas.servers[left].client_of(Some(&olga));
    let is_there = || eventually("the host", || async { olga.list_hosts().await.ok()?.first().map(drop) });
    let serving = of_principal(&replicas.servers[left], "h-1", &ada);
    is_there().await;

    serving.abort();
    replicas.servers[hub].kill().await;

    let refused = of_principal(&replicas.servers[left], "h-1", &eve);
    let refused = in_time("the refusal", refused).await.expect("it ends").expect_err("the id is another's");
    assert!(refused.to_string().contains("another principal"), "{refused}");
    let serving = of_principal(&replicas.servers[left], "h-1", &ada);
    is_there().await;
    serving.abort();
}
