//! A server that was killed between two writes that belong together: what the database then holds is written here by
//! hand, as the server would have.

use std::sync::Arc;

use agentloop_client::v1 as wire;
use agentloop_core::agent::RunSpec;
use agentloop_core::id::{EntryNo, RunId, Seq, SessionId, TenantId};
use agentloop_core::message::{Message, Role, Usage};
use agentloop_core::run::input::{Input, Start};
use agentloop_core::run::machine::Machine;
use agentloop_core::run::status::RunStatus as Status;
use agentloop_core::time::Timestamp;
use agentloop_core::tool::Digest;
use agentloop_server::store::{Append, CreateRun, JournalStore, RunSummary};
use agentloop_tests::host::Host;
use agentloop_tests::input::in_session;
use agentloop_tests::model::Model;
use agentloop_tests::server::TestServer;
use serde_json::json;
use wire::RunStatus;

use super::{end, said};

/// Queues a run in session `s1`.
async fn queue(store: &dyn JournalStore, run: &str, text: &str, interrupts: bool) {
    let (run, session) = (RunId::parse(run).expect("an id"), SessionId::parse("s1").expect("an id"));
    let spec = RunSpec { agent: "default".into(), model: "fake/m".into(), ..RunSpec::default() };
    let start = Start {
        run: run.clone(),
        session: session.clone(),
        last_entry: EntryNo(0),
        spec: Arc::new(spec),
        seed: 7,
        traceparent: None,
        caller_groups: Vec::new(),
        not_offered: Default::default(),
        messages: vec![Arc::new(Message::text(Role::User, text))],
        queued: true,
    };
    let mut machine = Machine::new(run.clone());
    let step = machine.handle(Input::Start(Box::new(start)), Timestamp(1)).expect("a start is taken");
    let create = CreateRun {
        request_digest: Digest::of(&[text.as_bytes()]),
        create_session: false,
        made_ids: false,
        is_blind: false,
        agent: "default".to_owned(),
        model: "fake/m".to_owned(),
        labels: Default::default(),
        preview: String::new(),
        created_by: None,
        interrupts,
    };
    let summary = RunSummary {
        status: Status::Queued,
        wake_at: None,
        at_hosts: false,
        error: None,
        usage: Usage::default(),
        iterations: 0,
        tool_calls: 0,
        calls: Default::default(),
    };
    let append = Append {
        tenant: TenantId::local(),
        run,
        session,
        epoch: store.epoch(),
        after: Seq(0),
        records: step.records,
        summary,
        jobs: Vec::new(),
        create: Some(create),
        enter: None,
    };
    store.append(append).await.expect("queued");
}

#[tokio::test]
async fn after_the_end_of_a_run_the_next_still_enters() {
    let model = Model::start().await;
    let mut server = TestServer::start(&model).await;
    model.says("first");
    server.run(in_session("s1", "r1", "one")).await;
    server.stop().await;
    let queued = async |store: &dyn JournalStore| {
        queue(store, "r2", "two", false).await;
        queue(store, "r3", "three", false).await;
    };
    server.stored().opened(queued).await;
    model.says("second").says("third");
    server.restart().await;
    server.subscribe("r3", 0).await.rest().await;
    assert_eq!(said(&server).await, ["one", "first", "two", "second", "three", "third"]);
}

#[tokio::test]
async fn before_the_live_run_was_interrupted_it_still_is() {
    let model = Model::start().await;
    let mut server = TestServer::start(&model).await;
    let host = Host::start(&server).await;
    model.asks("mail", json!({ "to": "bob" }));
    let first = server.run(in_session("s1", "r1", "one")).await;
    assert_eq!(first.status(), RunStatus::AwaitingHuman);
    drop(host);
    server.stop().await;
    let queued = async |store: &dyn JournalStore| {
        queue(store, "r2", "two", false).await;
        queue(store, "r3", "three", true).await;
    };
    server.stored().opened(queued).await;
    model.says("third").says("second");
    server.restart().await;
    server.subscribe("r2", 0).await.rest().await;
    let ended = end(&server.subscribe("r1", 0).await.rest().await);
    assert!(ended.message.contains("interrupted by run r3"), "{}", ended.message);
    let said = said(&server).await;
    assert_eq!(said[said.len() - 4..], ["three", "third", "two", "second"]);
}
