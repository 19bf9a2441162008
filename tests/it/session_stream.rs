//! `SubscribeSession`: everything that happens in a session, whoever started it.

use std::collections::{BTreeMap, BTreeSet};

use agentloop_client::v1 as wire;
use agentloop_tests::errors::{assert_invalid, assert_refused};
use agentloop_tests::events::name;
use agentloop_tests::host::Host;
use agentloop_tests::input::in_session;
use agentloop_tests::model::Model;
use agentloop_tests::server::TestServer;
use agentloop_tests::soon;
use serde_json::json;
use tonic::{Code, Status, Streaming};
use wire::subscribe_session_response::Item;

/// A reader that checks what every subscription promises: each durable event once, those of a run in order.
struct Follower {
    stream: Streaming<wire::SubscribeSessionResponse>,
    /// The last event of each run.
    seqs: BTreeMap<String, u64>,
    token: String,
}

impl Follower {
    async fn begin(server: &TestServer) -> Self {
        Self::resume(server, String::new(), BTreeMap::new()).await
    }

    async fn resume(server: &TestServer, token: String, seqs: BTreeMap<String, u64>) -> Self {
        let stream = subscribe(server, &token).await.expect("subscribed");
        Self { stream, seqs, token }
    }

    async fn item(&mut self) -> Option<Item> {
        let message = soon(self.stream.message()).await.expect("it goes on")?;
        if !message.resume_token.is_empty() {
            self.token = message.resume_token;
        }
        let item = message.item.expect("an item");
        if let Item::Event(event) = &item
            && event.seq > 0
        {
            assert_eq!(event.session_id, "s1");
            let last = self.seqs.insert(event.run_id.clone(), event.seq).unwrap_or_default();
            assert_eq!(event.seq, last + 1, "each event once and in order: {event:?}");
        }
        Some(item)
    }

    /// Reads until the item is this one, and returns it with the durable events before it.
    async fn until<T>(&mut self, wanted: impl Fn(&Item) -> Option<T>) -> (T, Vec<(String, &'static str)>) {
        let mut events = Vec::new();
        loop {
            let item = self.item().await.expect("it goes on");
            if let Item::Event(event) = &item
                && event.seq > 0
            {
                events.push((event.run_id.clone(), name(event)));
            }
            if let Some(found) = wanted(&item) {
                return (found, events);
            }
        }
    }

    async fn until_synced(&mut self) -> (wire::SessionSynced, Vec<(String, &'static str)>) {
        self.until(|item| match item {
            Item::Synced(synced) => Some(synced.clone()),
            _ => None,
        })
        .await
    }

    async fn until_event(&mut self, run: &str, wanted: &str) -> Vec<(String, &'static str)> {
        let is_it = |item: &Item| match item {
            Item::Event(event) if event.run_id == run && name(event) == wanted => Some(()),
            _ => None,
        };
        self.until(is_it).await.1
    }
}

async fn subscribe(
    server: &TestServer,
    token: &str,
) -> Result<Streaming<wire::SubscribeSessionResponse>, Status> {
    let request = wire::SubscribeSessionRequest {
        session_id: "s1".to_owned(),
        resume_token: token.to_owned(),
        durable_only: false,
    };
    Ok(soon(server.sessions().subscribe_session(request)).await?.into_inner())
}

async fn entry_nos(server: &TestServer) -> Vec<u64> {
    server.entries("s1").await.iter().map(|entry| entry.entry_no).collect()
}

fn enqueued(run: &str) -> wire::RunInput {
    wire::RunInput {
        on_busy_session: wire::BusySessionPolicy::Enqueue.into(),
        ..in_session("s1", run, "and?")
    }
}

#[tokio::test]
async fn what_others_start_is_told_and_old_runs_are_not_repeated() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    model.says("one");
    server.run(in_session("s1", "r1", "hi")).await;
    let mut follower = Follower::begin(&server).await;
    let Some(Item::Session(session)) = follower.item().await else { panic!("the session comes first") };
    assert_eq!((session.session_id.as_str(), session.entry_count), ("s1", 2));
    let (synced, events) = follower.until_synced().await;
    assert_eq!((synced.last_entry_no, synced.open_run_ids.len(), events.len()), (2, 0, 0));

    for run in ["r2", "r3"] {
        model.says("more");
        server.run(in_session("s1", run, "and?")).await;
        let events = follower.until_event(run, "run_finished").await;
        assert!(events.iter().all(|(of, _)| of == run), "{events:?}");
        assert_eq!(events.first().map(|(_, name)| *name), Some("run_started"));
    }
    let last = server.get_run("r3").await.last_seq;
    assert_eq!(follower.seqs["r3"], last);
}

#[tokio::test]
async fn open_runs_are_told_from_their_first_event_and_queued_ones_after_them() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let _host = Host::start(&server).await;
    model.asks("mail", json!({ "to": "bob" }));
    let parked = server.run(in_session("s1", "r1", "a mail")).await;
    let _queued = server.stream(enqueued("r2")).await;
    let mut follower = Follower::begin(&server).await;
    let (synced, events) = follower.until_synced().await;
    assert_eq!(synced.open_run_ids, ["r1", "r2"]);
    assert_eq!(synced.last_entry_no, entry_nos(&server).await.len() as u64);
    assert_eq!(follower.seqs["r1"], parked.last_seq);
    assert!(events.contains(&("r1".to_owned(), "human_requested")), "{events:?}");
    assert!(events.contains(&("r2".to_owned(), "run_started")), "{events:?}");

    model.says("not sent").says("next");
    let approve = wire::decision::Decision::Deny(wire::Deny::default());
    server.decide(&parked.pending[0].request_id, approve).await.expect("decided");
    let events = follower.until_event("r2", "run_finished").await;
    let end = events.iter().position(|event| *event == ("r1".to_owned(), "run_finished")).expect("it ends");
    assert!(events[end + 1..].iter().all(|(run, _)| run == "r2"), "{events:?}");
}

#[tokio::test]
async fn a_token_continues_over_a_restart_without_loss_or_repetition() {
    let model = Model::start().await;
    let mut server = TestServer::start(&model).await;
    let _host = Host::start(&server).await;
    model.asks("mail", json!({ "to": "bob" }));
    let parked = server.run(in_session("s1", "r1", "a mail")).await;
    let mut follower = Follower::begin(&server).await;
    // In the middle of the open run's events.
    follower.until_event("r1", "assistant_message").await;
    let (token, seqs) = (follower.token.clone(), follower.seqs.clone());
    drop(follower);
    server.restart().await;
    model.says("done");
    server.abort("r1").await;
    server.run(in_session("s1", "r2", "more")).await;

    let mut again = Follower::resume(&server, token, seqs).await;
    let (synced, events) = again.until_synced().await;
    assert_eq!(synced.open_run_ids, [] as [&str; 0]);
    assert_eq!(synced.last_entry_no, entry_nos(&server).await.len() as u64);
    assert!(events.contains(&("r1".to_owned(), "human_requested")), "{events:?}");
    assert!(events.contains(&("r1".to_owned(), "run_finished")), "{events:?}");
    assert!(events.contains(&("r2".to_owned(), "run_finished")), "{events:?}");
    let ends = ["r1", "r2"].map(|run| again.seqs[run]);
    assert_eq!(ends, [server.get_run("r1").await.last_seq, server.get_run("r2").await.last_seq]);
    assert!(ends[0] > parked.last_seq);

    // Nothing is left to tell.
    let mut last = Follower::resume(&server, again.token.clone(), again.seqs.clone()).await;
    assert_eq!(last.until_synced().await.1, []);
}

/// A token that is given out on the way is one that the server takes, however many runs are still to be told.
#[tokio::test]
async fn however_many_runs_were_missed_each_event_comes_once() {
    const MISSED: usize = 140;
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    model.says("one");
    server.run(in_session("s1", "r", "hi")).await;
    let mut follower = Follower::begin(&server).await;
    follower.until_synced().await;
    let runs: Vec<String> = (0..MISSED).map(|n| format!("r{n}")).collect();
    for run in &runs {
        model.says("more");
        server.run(in_session("s1", run, "and?")).await;
    }
    let (mut token, mut seqs) = (follower.token, follower.seqs);
    for _ in 0..3 {
        let mut on_the_way = Follower::resume(&server, token, seqs).await;
        for _ in 0..100 {
            on_the_way.item().await.expect("it goes on");
        }
        (token, seqs) = (on_the_way.token, on_the_way.seqs);
        assert!(token.len() < 4_096, "a token names some runs: {token}");
    }
    let mut last = Follower::resume(&server, token, seqs).await;
    let (synced, _) = last.until_synced().await;
    assert_eq!(synced.last_entry_no, 2 * (MISSED as u64 + 1));
    for run in &runs {
        assert_eq!(last.seqs[run], server.get_run(run).await.last_seq, "{run}");
    }
    model.says("live");
    server.run(in_session("s1", "after", "and?")).await;
    last.until_event("after", "run_finished").await;
}

#[tokio::test]
async fn entries_up_to_the_sync_and_events_make_the_whole_conversation() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    model.says("one");
    server.run(in_session("s1", "r1", "hi")).await;
    let mut speech = model.speaks();
    let _live = server.stream(in_session("s1", "r2", "and?")).await;
    speech.asked().await;
    let mut follower = Follower::begin(&server).await;
    let (synced, _) = follower.until_synced().await;
    let upto = synced.last_entry_no;
    let mut known: BTreeSet<u64> = entry_nos(&server).await.into_iter().filter(|no| *no <= upto).collect();
    speech.say("two");
    speech.end();
    loop {
        let Some(Item::Event(event)) = follower.item().await else { continue };
        if let Some(wire::run_event::Event::AssistantMessage(message)) = &event.event {
            assert!(known.insert(message.entry_no), "it was no entry yet");
        }
        if name(&event) == "run_finished" {
            break;
        }
    }
    assert_eq!(known.into_iter().collect::<Vec<_>>(), entry_nos(&server).await);
}

#[tokio::test]
async fn a_deleted_session_ends_the_stream() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    assert_refused(subscribe(&server, "").await.map(|_| ()), Code::NotFound, "SESSION_NOT_FOUND");
    model.says("one");
    server.run(in_session("s1", "r1", "hi")).await;
    let mut follower = Follower::begin(&server).await;
    follower.until_synced().await;
    let token = follower.token.clone();
    let delete = || wire::DeleteSessionRequest { session_id: "s1".to_owned() };
    soon(server.sessions().delete_session(delete())).await.expect("deleted");
    assert_eq!(follower.item().await, Some(Item::Deleted(wire::SessionDeleted {})));
    assert_eq!(follower.item().await, None, "it ends with OK");
    assert_refused(subscribe(&server, &token).await.map(|_| ()), Code::NotFound, "SESSION_NOT_FOUND");
    for forged in ["nonsense", "1.0.0.r1~x", "1.0.18446744073709551615."] {
        assert_invalid(subscribe(&server, forged).await.map(|_| ()), &["resume_token"]);
    }
    // Another session has its id: the one of the token is gone.
    model.says("two");
    server.run(in_session("s1", "r1", "hi again")).await;
    let mut stale = Follower::resume(&server, token, BTreeMap::new()).await;
    assert_eq!(stale.item().await, Some(Item::Deleted(wire::SessionDeleted {})));
    assert_eq!(stale.item().await, None);
}

#[tokio::test]
async fn a_token_of_another_session_or_of_a_newer_database_is_refused() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let mut tokens = Vec::new();
    for session in ["s1", "s2"] {
        model.says("one");
        server.run(in_session(session, &format!("r-{session}"), "hi")).await;
        let request = wire::SubscribeSessionRequest { session_id: session.to_owned(), ..Default::default() };
        let mut stream =
            soon(server.sessions().subscribe_session(request)).await.expect("subscribed").into_inner();
        let first = soon(stream.message()).await.expect("it is open").expect("the session");
        tokens.push(first.resume_token);
    }
    assert_invalid(subscribe(&server, &tokens[1]).await.map(|_| ()), &["resume_token"]);
    // Runs may get numbers that the token calls known after the database is restored from a copy.
    let mut parts: Vec<&str> = tokens[0].split('.').collect();
    parts[3] = "999999999";
    assert_invalid(subscribe(&server, &parts.join(".")).await.map(|_| ()), &["resume_token"]);
    let mut good = Follower::resume(&server, tokens.swap_remove(0), BTreeMap::new()).await;
    assert_eq!(good.until_synced().await.0.last_entry_no, 2);
}

#[tokio::test]
async fn a_title_that_the_model_makes_is_told() {
    let model = Model::start().await;
    let server = TestServer::with(&model, "[agents.default.background]\ntitle = true\n").await;
    model.says("hello").says("A trip to Bergen");
    let request = wire::CreateSessionRequest { session_id: Some("s1".to_owned()), ..Default::default() };
    soon(server.sessions().create_session(request)).await.expect("created");
    let mut follower = Follower::begin(&server).await;
    follower.until_synced().await;
    server.run(in_session("s1", "r1", "hi")).await;
    let titled = |item: &Item| match item {
        Item::Session(session) if session.title == "A trip to Bergen" => Some(()),
        _ => None,
    };
    follower.until(titled).await;
}

#[tokio::test]
async fn without_transient_events_there_are_durable_ones_alone() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let request = wire::CreateSessionRequest { session_id: Some("s1".to_owned()), ..Default::default() };
    soon(server.sessions().create_session(request)).await.expect("created");
    let request = wire::SubscribeSessionRequest {
        session_id: "s1".to_owned(),
        durable_only: true,
        ..Default::default()
    };
    let stream = soon(server.sessions().subscribe_session(request)).await.expect("subscribed").into_inner();
    let mut follower = Follower { stream, seqs: BTreeMap::new(), token: String::new() };
    let mut speech = model.speaks();
    let _live = server.stream(in_session("s1", "r1", "hi")).await;
    speech.asked().await;
    speech.say("hel");
    speech.say("lo");
    speech.end();
    loop {
        let Some(Item::Event(event)) = follower.item().await else { continue };
        assert!(event.seq > 0, "{event:?}");
        if name(&event) == "run_finished" {
            return;
        }
    }
}
