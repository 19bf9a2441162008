//! `WatchRuns`: a list of runs that stays live.

use std::collections::BTreeMap;

use agentloop_client::v1 as wire;
use agentloop_tests::errors::assert_invalid;
use agentloop_tests::host::Host;
use agentloop_tests::input::{in_session, named};
use agentloop_tests::model::Model;
use agentloop_tests::server::TestServer;
use agentloop_tests::soon;
use serde_json::json;
use tonic::Streaming;
use wire::RunStatus;
use wire::watch_runs_response::Change;

/// A reader as clients write it: a map of runs, to which each change is applied.
struct Watch {
    stream: Streaming<wire::WatchRunsResponse>,
    runs: BTreeMap<String, wire::Run>,
    resets: u32,
    token: String,
}

impl Watch {
    async fn begin(server: &TestServer, filter: &wire::RunFilter) -> Self {
        let mut watch = Self::resume(server, filter, String::new()).await;
        watch.until_synced().await;
        watch
    }

    async fn resume(server: &TestServer, filter: &wire::RunFilter, resume_token: String) -> Self {
        let request = wire::WatchRunsRequest { filter: Some(filter.clone()), resume_token };
        let stream = soon(server.agent_loop().watch_runs(request)).await.expect("watched").into_inner();
        Self { stream, runs: BTreeMap::new(), resets: 0, token: String::new() }
    }

    async fn change(&mut self) -> Change {
        let message = soon(self.stream.message()).await.expect("it goes on").expect("it never ends");
        assert!(!message.resume_token.is_empty());
        self.token = message.resume_token;
        let change = message.change.expect("a change");
        match &change {
            Change::Reset(_) => {
                self.runs.clear();
                self.resets += 1;
            }
            Change::Run(run) => {
                let known = self.runs.get(&run.run_id).map_or(0, |known| known.last_seq);
                if run.last_seq >= known {
                    self.runs.insert(run.run_id.clone(), run.clone());
                }
            }
            Change::Removed(removed) => drop(self.runs.remove(&removed.run_id)),
            Change::Synced(_) => {}
        }
        change
    }

    async fn until_synced(&mut self) -> u64 {
        loop {
            if let Change::Synced(synced) = self.change().await {
                return synced.runs;
            }
        }
    }

    async fn until(&mut self, what: impl Fn(&BTreeMap<String, wire::Run>) -> bool) {
        while !what(&self.runs) {
            self.change().await;
        }
    }

    /// Reads until a run has this status.
    async fn until_status(&mut self, run: &str, status: RunStatus) -> wire::Run {
        self.until(|runs| runs.get(run).is_some_and(|run| run.status() == status)).await;
        self.runs[run].clone()
    }

    fn names(&self) -> Vec<&str> {
        self.runs.keys().map(String::as_str).collect()
    }
}

fn with_status(statuses: &[RunStatus]) -> wire::RunFilter {
    let statuses = statuses.iter().map(|status| i32::from(*status)).collect();
    wire::RunFilter { statuses, ..Default::default() }
}

#[tokio::test]
async fn a_list_begins_with_a_snapshot_and_stays_live() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let _host = Host::start(&server).await;
    model.says("hello");
    server.run(named("r1", "hi there")).await;
    let mut watch = Watch::resume(&server, &wire::RunFilter::default(), String::new()).await;
    let reset = watch.change().await;
    assert!(matches!(reset, Change::Reset(_)), "{reset:?}");
    assert_eq!(watch.until_synced().await, 1);
    assert_eq!((watch.names(), watch.runs["r1"].preview.as_str()), (vec!["r1"], "hi there"));
    assert_eq!(watch.runs["r1"].status(), RunStatus::Completed);

    model.asks("mail", json!({ "to": "bob" }));
    let labels = [("team".to_owned(), "blue".to_owned())].into();
    let parked = server.run(wire::RunInput { labels, ..named("r2", "write a mail") }).await;
    let run = watch.until_status("r2", RunStatus::AwaitingHuman).await;
    assert_eq!((run.preview.as_str(), run.labels["team"].as_str()), ("write a mail", "blue"));
    assert_eq!((run.agent.as_str(), run.model.as_str(), run.tool_calls), ("default", "fake/m", 1));
    let waiting = run.waiting_on.expect("it waits");
    assert!(waiting.what.contains(&parked.pending[0].request_id), "{waiting:?}");
    let shown = server.get_run("r2").await;
    assert_eq!(
        (run.last_seq, run.created_at, run.updated_at),
        (shown.last_seq, shown.created_at, shown.updated_at)
    );
    server.abort("r2").await;
    let run = watch.until_status("r2", RunStatus::Aborted).await;
    assert_eq!((run.waiting_on, run.last_error.is_some()), (None, true));
    assert_eq!(watch.resets, 1);
}

#[tokio::test]
async fn a_run_leaves_the_list_when_it_does_not_match_any_more() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let _host = Host::start(&server).await;
    let filter = with_status(&[RunStatus::AwaitingHuman]);
    let mut watch = Watch::begin(&server, &filter).await;
    model.says("nothing to ask");
    server.run(named("r1", "hi")).await;
    model.asks("mail", json!({ "to": "bob" }));
    server.run(in_session("s2", "r2", "a mail")).await;
    // The changes of `r1` are not told at all.
    let first = watch.change().await;
    assert!(matches!(&first, Change::Run(run) if run.run_id == "r2"), "{first:?}");
    // A snapshot says what it can of the wait.
    let other = Watch::begin(&server, &filter).await;
    let waiting = other.runs["r2"].waiting_on.clone().expect("it waits");
    assert_eq!((waiting.kind(), waiting.since), (wire::WaitKind::Human, other.runs["r2"].updated_at));
    server.abort("r2").await;
    watch.until(BTreeMap::is_empty).await;

    let all = wire::RunFilter { session_id: "s2".to_owned(), ..Default::default() };
    let mut of_session = Watch::begin(&server, &all).await;
    assert_eq!(of_session.names(), ["r2"]);
    let request = wire::DeleteSessionRequest { session_id: "s2".to_owned() };
    soon(server.sessions().delete_session(request)).await.expect("deleted");
    let removed = wire::RunRemoved { run_id: "r2".to_owned(), deleted: true };
    assert_eq!(of_session.change().await, Change::Removed(removed));
}

#[tokio::test]
async fn a_token_goes_on_without_a_snapshot_where_the_server_can() {
    let model = Model::start().await;
    let mut server = TestServer::start(&model).await;
    let any = wire::RunFilter::default();
    model.says("one");
    server.run(named("r1", "hi")).await;
    let watch = Watch::begin(&server, &any).await;
    let (token, known) = (watch.token.clone(), watch.runs.clone());
    drop(watch);
    model.says("two");
    server.run(named("r2", "hi")).await;
    let mut again = Watch::resume(&server, &any, token.clone()).await;
    again.runs = known;
    assert_eq!(again.until_synced().await, 0);
    again.until_status("r2", RunStatus::Completed).await;
    assert_eq!((again.names(), again.resets), (vec!["r1", "r2"], 0));
    let last = again.token.clone();
    drop(again);

    for (filter, token) in
        [(with_status(&[RunStatus::Completed]), last.clone()), (any.clone(), "nonsense".to_owned())]
    {
        let mut other = Watch::resume(&server, &filter, token).await;
        other.until_synced().await;
        assert_eq!((other.names(), other.resets), (vec!["r1", "r2"], 1));
    }
    server.restart().await;
    let mut after = Watch::resume(&server, &any, last).await;
    assert_eq!(after.until_synced().await, 2);
    assert_eq!((after.names(), after.resets), (vec!["r1", "r2"], 1));
}

#[tokio::test]
async fn a_snapshot_that_broke_off_begins_again() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    for run in ["r1", "r2"] {
        model.says("hello");
        server.run(named(run, "hi")).await;
    }
    let any = wire::RunFilter::default();
    let mut watch = Watch::resume(&server, &any, String::new()).await;
    watch.change().await;
    watch.change().await;
    let token = watch.token.clone();
    drop(watch);
    let mut again = Watch::resume(&server, &any, token).await;
    assert_eq!((again.until_synced().await, again.resets), (2, 1));
}

#[tokio::test]
async fn a_filter_is_checked_before_the_watch_begins() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let filter = wire::RunFilter { text: "x".repeat(257), ..with_status(&[RunStatus::Unspecified]) };
    let request = wire::WatchRunsRequest { filter: Some(filter), resume_token: String::new() };
    let refused = soon(server.agent_loop().watch_runs(request)).await.map(|_| ());
    assert_invalid(refused, &["filter.statuses[0]", "filter.text"]);
}
