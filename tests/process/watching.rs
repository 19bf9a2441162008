//! `SubscribeSession` and `WatchRuns` of a server that is killed again and again.

use std::collections::BTreeMap;
use std::time::Duration;

use agentloop_client::v1::run_event::Event;
use agentloop_client::v1::subscribe_session_response::Item;
use agentloop_client::v1::watch_runs_response::Change;
use agentloop_client::v1::{
    CreateSessionRequest, ListEntriesRequest, RunFilter, RunStatus, SubscribeSessionRequest,
};
use agentloop_client::{RunWatch, SessionStream};

use crate::support::follow::Follower;
use crate::support::model::Model;
use crate::support::server::{Server, input};

/// Reads a session's stream, and checks that each durable event comes once and in order.
struct Told {
    stream: SessionStream,
    seqs: BTreeMap<String, u64>,
    /// Numbers of the entries that events brought.
    entries: Vec<u64>,
}

impl Told {
    async fn until_finished(&mut self, run: &str) {
        loop {
            let item = self.stream.next().await.expect("the session is there").expect("it comes back");
            let Item::Event(event) = item else { continue };
            if event.seq > 0 {
                let last = self.seqs.insert(event.run_id.clone(), event.seq).unwrap_or_default();
                assert_eq!(event.seq, last + 1, "each event once and in order: {event:?}");
            }
            match event.event {
                Some(Event::InputMessage(message)) => self.entries.push(message.entry_no),
                Some(Event::AssistantMessage(message)) => self.entries.push(message.entry_no),
                Some(Event::RunFinished(_)) if event.run_id == run => return,
                _ => {}
            }
        }
    }
}

#[tokio::test]
async fn a_session_is_told_whole_over_kills() {
    let mut model = Model::start().await;
    let mut server = Server::start(&model.setting()).await;
    let client = server.client();
    let request = CreateSessionRequest { session_id: Some("s-1".to_owned()), ..Default::default() };
    client.create_session(request).await.expect("created");
    let request = SubscribeSessionRequest { session_id: "s-1".to_owned(), ..Default::default() };
    let stream = client.subscribe_session(request).await.expect("subscribed");
    let mut told = Told { stream, seqs: BTreeMap::new(), entries: Vec::new() };
    for number in 1..=4 {
        let run = format!("r-{number}");
        let mut follower = Follower::start(&server, input(&run, "s-1", "Say hello")).await;
        model.call().await.begin("Good mor").await;
        server.kill().await;
        server.start_again().await;
        model.call().await.say("Hello.").await;
        if number % 2 == 0 {
            // The run ends, and the server is killed, before the reader looks.
            assert_eq!(follower.answer().await, "Hello.");
            server.kill().await;
            server.start_again().await;
        }
        told.until_finished(&run).await;
        let run = client.get_run(&run).await.expect("it is there");
        assert_eq!(told.seqs[&run.run_id], run.last_seq);
    }
    let request = ListEntriesRequest { session_id: "s-1".to_owned(), ..Default::default() };
    let entries = client.list_entries(request).await.expect("listed").entries;
    assert_eq!(told.entries, entries.iter().map(|entry| entry.entry_no).collect::<Vec<_>>());
}

/// Applies changes to a map until it has this many runs, and the last one has this status. A snapshot has the newest run first.
async fn until(
    watch: &mut RunWatch,
    runs: &mut BTreeMap<String, RunStatus>,
    count: usize,
    status: RunStatus,
) {
    let last = format!("r-{count}");
    while runs.len() != count || runs.get(&last) != Some(&status) {
        let change = tokio::time::timeout(Duration::from_secs(60), watch.next()).await;
        match change.expect("in time").expect("it comes back") {
            Change::Reset(_) => runs.clear(),
            Change::Run(run) => drop(runs.insert(run.run_id.clone(), run.status())),
            Change::Removed(removed) => drop(runs.remove(&removed.run_id)),
            Change::Synced(_) => {}
        }
    }
}

#[tokio::test]
async fn a_watched_list_is_right_over_kills() {
    let mut model = Model::start().await;
    let mut server = Server::start(&model.setting()).await;
    let client = server.client();
    let mut watch = client.watch_runs(RunFilter::default()).await.expect("watched");
    let mut runs = BTreeMap::new();
    for number in 1..=3 {
        let run = format!("r-{number}");
        let _follower = Follower::start(&server, input(&run, &format!("s-{number}"), "Say hello")).await;
        model.call().await.begin("Good mor").await;
        until(&mut watch, &mut runs, number, RunStatus::ModelRunning).await;
        server.kill().await;
        server.start_again().await;
        model.call().await.say("Hello.").await;
        until(&mut watch, &mut runs, number, RunStatus::Completed).await;
    }
}
