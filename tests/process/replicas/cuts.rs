//! Replicas that are cut from the database, from each other, or from a host. Left out without a database, in one line.

use agentloop_client::v1::run_event::Event;
use agentloop_client::v1::{RunStatus, ToolStatus};
use agentloop_tests::owners::{moved, sessions_of};
use agentloop_tests::postgres;
use agentloop_tests::process::links::Links;
use agentloop_tests::process::proxy::Proxy;
use serde_json::json;

use super::{Replicas, SESSION, impatient};
use crate::support::follow::{Follower, outcome};
use crate::support::host::Host;
use crate::support::model::Model;
use crate::support::server::{FENCED, Setting, input};

/// Three replicas, the owner of [`SESSION`] first, and the links of each.
async fn linked(model: &Model) -> Option<(Replicas, Vec<Links>)> {
    let Some(url) = postgres::url() else {
        println!("not tested: replicas that are cut, because AGENTLOOP_TEST_POSTGRES names no database");
        return None;
    };
    let url = postgres::in_new_schema(url);
    let setting = Setting { grace_period: "30s", ..model.setting() };
    let (mut links, mut settings) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let its = Links::start(&url).await;
        settings.push(its.setting(&setting, ""));
        links.push(its);
    }
    let mut replicas = Replicas::of_settings(&settings, url).await;
    let owner = replicas.owners.place(&replicas.servers, SESSION).await;
    replicas.servers.swap(0, owner);
    links.swap(0, owner);
    Some((replicas, links))
}

/// The run's answer so far is lost with its owner, which cannot know what the others do.
#[tokio::test]
async fn an_owner_whose_database_falls_silent_is_followed_by_another_and_writes_nothing_more() {
    let mut model = Model::start().await;
    let Some((mut replicas, links)) = linked(&model).await else { return };
    let client = impatient(replicas.other());
    let mut run = Follower::with(client, input("r-1", SESSION, "Say hello")).await;
    let cut = model.call().await;

    links[0].to_database.silence();

    let again = model.call().await;
    assert_eq!(again.request["messages"], cut.request["messages"]);
    moved(&mut replicas.owners, &replicas.servers, SESSION, 0).await;
    cut.say("Too late.").await;
    links[0].to_database.join();
    let (code, said) = replicas.owner().take().ended().await;
    assert_eq!(code, FENCED, "{said}");
    again.say("Hello.").await;
    assert_eq!(run.answer().await, "Hello.");
    assert_eq!(run.entries().await.len(), 2);
    assert!(!model.was_called());
}

#[tokio::test]
async fn an_owner_that_is_cut_from_its_database_for_a_moment_goes_on() {
    let mut model = Model::start().await;
    let Some((mut replicas, links)) = linked(&model).await else { return };
    let client = impatient(replicas.other());
    let mut run = Follower::with(client, input("r-1", SESSION, "Say hello")).await;
    let call = model.call().await;

    links[0].to_database.cut();
    links[0].to_database.join();

    call.say("Hello.").await;
    assert_eq!(run.answer().await, "Hello.");
    assert_eq!(replicas.owners.place(&replicas.servers, SESSION).await, 0);
    assert!(!model.was_called(), "nobody makes the call again");
}

/// The caller's replica hears nothing of the owner, which lives, and of whose place nobody else learns.
#[tokio::test]
async fn a_stream_from_an_owner_that_cannot_be_reached_goes_on_without_a_gap() {
    let mut model = Model::start().await;
    let Some((replicas, links)) = linked(&model).await else { return };
    let client = impatient(replicas.other());
    let mut run = Follower::with(client, input("r-1", SESSION, "Say hello")).await;
    let mut call = model.call().await;
    call.begin("Hel").await;
    run.until("a piece of the answer", |event| {
        matches!(event, Event::ModelDelta(_) | Event::PartialMessage(_)).then_some(())
    })
    .await;

    links[0].from_replicas.silence();
    call.say("lo.").await;
    let direct = replicas.servers[0].client();
    let ended = direct.run(input("r-1", SESSION, "Say hello")).await.expect("it joins the run");
    assert_eq!(ended.status(), RunStatus::Completed);
    links[0].from_replicas.join();

    assert_eq!(run.answer().await, "Hello.");
    let seqs: Vec<u64> = run.seen.iter().map(|event| event.seq).collect();
    assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>());
}

/// The host works at the replica with the hosts, the run at another one, and the link between them breaks in the call.
#[tokio::test]
async fn a_result_for_an_owner_that_cannot_be_reached_comes_once_the_link_is_whole() {
    let model = Model::start().await;
    let Some((mut replicas, links)) = linked(&model).await else { return };
    let hub = replicas.owners.hub(&replicas.servers).await.expect("one of them");
    let owner = (hub + 1) % replicas.servers.len();
    let session = sessions_of(&mut replicas.owners, &replicas.servers, owner, 1).await.remove(0);
    let host = replicas.host(hub, "h-1").await;
    let client = impatient(&replicas.servers[owner]);
    let mut run = Follower::with(client, input("r-1", &session, "Wait")).await;
    model.answers("slow", json!({ "seconds": 3.0 }), "Waited.");
    host.does("slow-start").await;

    for its in &links {
        its.from_replicas.cut();
    }
    host.does("slow-end").await;
    for its in &links {
        its.from_replicas.join();
    }

    let result = run.result().await;
    assert_eq!(outcome(&result), (ToolStatus::Succeeded, "slept"));
    assert_eq!(run.answer().await, "Waited.");
    assert_eq!(host.did("slow-start").len(), 1, "it is called once");
}

#[tokio::test]
async fn a_host_that_is_cut_from_its_replica_brings_its_result_when_it_is_back() {
    let model = Model::start().await;
    let Some((replicas, _links)) = linked(&model).await else { return };
    let link = Proxy::start(replicas.servers[2].address()).await;
    let host = Host::start_at(&replicas.servers[2], "h-1", &link.url()).await;
    let client = impatient(replicas.other());
    let mut run = Follower::with(client, input("r-1", SESSION, "Wait")).await;
    model.answers("slow", json!({ "seconds": 3.0 }), "Waited.");
    host.does("slow-start").await;

    link.silence();
    host.does("slow-end").await;
    link.join();

    let result = run.result().await;
    assert_eq!(outcome(&result), (ToolStatus::Succeeded, "slept"));
    assert_eq!(run.answer().await, "Waited.");
    assert_eq!(host.did("slow-start").len(), 1, "it is called once");
}
