//! Engines that tell each other of their runs over real connections.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use agentloop_core::cluster::shard::{OwnerNo, SHARDS, ShardNo};
use agentloop_core::id::{RunId, SessionId, TenantId};
use agentloop_core::time::Timestamp;
use async_trait::async_trait;
use futures_util::{Stream, StreamExt as _};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;

use super::*;
use crate::auth::Authentication;
use crate::cluster::locate::{Locate, LocateError};
use crate::cluster::{Ownership, Peer};
use crate::engine::error::EngineError;
use crate::engine::{EngineParts, WatchChange, WatchItem};
use crate::grpc::edge::forward::layer::{ForwardLayer, ForwardParts};
use crate::grpc::edge::forward::route::local::LocalServices;
use crate::grpc::edge::forward::wire::links::Links;
use crate::grpc::edge::peer::PeerListener;
use crate::ids::CountingIds;
use crate::lifecycle::Tasks;
use crate::model::ProviderRegistry;
use crate::store::sqlite::SqliteStore;
use crate::store::{RunFilter, Store};
use crate::tool::{RemoteTools, RemoteToolsOptions};

/// Long enough for a slow machine, short enough to fail.
const PATIENCE: Duration = Duration::from_secs(30);

/// A replica: its engine, its port for others, and what it knows of the owners.
struct Node {
    engine: Engine,
    peer: Peer,
    ownership: watch::Sender<Ownership>,
    tasks: Tasks,
}

/// Nobody looks for runs here.
struct NoRuns;

#[async_trait]
impl Locate for NoRuns {
    async fn shard_of_run(&self, _: &TenantId, _: &RunId) -> Result<Option<ShardNo>, LocateError> {
        Ok(None)
    }

    async fn session_created_at(
        &self,
        _: &TenantId,
        _: &SessionId,
    ) -> Result<Option<Timestamp>, LocateError> {
        Ok(None)
    }
}

impl Node {
    async fn start(number: u64, store: &Arc<dyn Store>) -> Self {
        let node = Self::without_port(number, store);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        node.with_port(listener, true)
    }

    fn without_port(number: u64, store: &Arc<dyn Store>) -> Self {
        let tasks = Tasks::new();
        let tools =
            RemoteTools::new(RemoteToolsOptions::default(), agentloop_core::time::Timestamp(0), Vec::new());
        let models = Arc::new(ProviderRegistry::default());
        let parts = EngineParts { tasks: tasks.clone(), ..EngineParts::default() };
        let engine = parts.start(store.clone(), models, tools);
        let ownership = watch::Sender::new(Ownership::unknown(OwnerNo(number)));
        let peer = Peer { number: OwnerNo(number), address: String::new() };
        let node = Self { engine, peer, ownership, tasks };
        let following = follow_run_changes(
            node.engine.clone(),
            node.ownership.subscribe(),
            Links::new(None),
            node.tasks.soft().clone(),
        );
        drop(node.tasks.spawn("run changes", following));
        node
    }

    /// Opens its port for replicas. An earlier version knows nothing of changes.
    fn with_port(mut self, listener: TcpListener, tells: bool) -> Self {
        self.peer.address = listener.local_addr().unwrap().to_string();
        let local = LocalServices::none();
        local.open(Routes::default(), None);
        let forward = ForwardLayer::new(ForwardParts {
            ownerships: self.ownership.subscribe(),
            links: Links::new(None),
            local,
            locate: Arc::new(NoRuns),
            ids: Arc::new(CountingIds::default()),
            message_bytes_max: PAGE_BYTES_MAX,
            stop: CancellationToken::new(),
            tasks: self.tasks.clone(),
            runs_stopped: CancellationToken::new(),
        });
        let mut port = PeerListener::new(forward, Authentication::NotRequired);
        if tells {
            port = port.with_run_changes(self.engine.clone());
        }
        drop(self.tasks.spawn("port", async move {
            port.serve(listener, None, std::future::pending()).await.unwrap();
        }));
        self
    }

    /// Shows these replicas to it, as a beat does.
    fn sees(&self, peers: &[&Self]) {
        self.sees_owned(peers, None);
    }

    /// The same, with an owner of all shards.
    fn sees_owned(&self, peers: &[&Self], owner: Option<&Self>) {
        let peers: BTreeMap<OwnerNo, Peer> =
            peers.iter().map(|node| (node.peer.number, node.peer.clone())).collect();
        let owners = vec![owner.map(|node| node.peer.number); usize::from(SHARDS)].into();
        self.ownership.send_replace(Ownership::new(self.peer.number, true, owners, Arc::new(peers)));
    }

    fn watch(&self) -> List {
        List(Box::pin(self.engine.watch_runs(&TenantId::local(), RunFilter::default(), "")))
    }
}

/// The items of a watched list, taken one by one.
struct List(Pin<Box<dyn Stream<Item = Result<WatchItem, EngineError>> + Send>>);

impl List {
    /// The next change, in short.
    async fn next(&mut self) -> String {
        let next = tokio::time::timeout(PATIENCE, self.0.next()).await.expect("a change comes");
        match next.expect("the list goes on").expect("the list goes on").change {
            WatchChange::Reset { .. } => "reset".to_owned(),
            WatchChange::Run { row, .. } => format!("{} {}", row.run, row.last_seq.0),
            WatchChange::Removed { run, .. } => format!("{run} -"),
            WatchChange::Synced { .. } => "synced".to_owned(),
        }
    }

    async fn begins(&mut self) {
        assert_eq!([self.next().await, self.next().await], ["reset", "synced"]);
    }
}

async fn store() -> Arc<dyn Store> {
    Arc::new(SqliteStore::in_memory().await.unwrap())
}

#[tokio::test]
async fn a_list_has_the_changes_of_all_replicas_once() {
    let store = store().await;
    let (a, b) = (Node::start(1, &store).await, Node::start(2, &store).await);
    a.sees(&[&b]);
    b.sees(&[&a]);
    let (mut at_a, mut at_b) = (a.watch(), b.watch());
    at_a.begins().await;
    at_b.begins().await;
    a.engine.tell_change("of-a", 1);
    assert_eq!([at_a.next().await, at_b.next().await], ["of-a 1", "of-a 1"]);
    b.engine.tell_change("of-b", 1);
    assert_eq!([at_a.next().await, at_b.next().await], ["of-b 1", "of-b 1"]);
    a.engine.tell_change("of-a", 2);
    assert_eq!([at_a.next().await, at_b.next().await], ["of-a 2", "of-a 2"], "nothing came twice");
}

#[tokio::test]
async fn many_changes_arrive_in_their_order() {
    let store = store().await;
    let (a, b) = (Node::start(1, &store).await, Node::start(2, &store).await);
    b.sees(&[&a]);
    let mut list = b.watch();
    list.begins().await;
    for run in 0..500 {
        a.engine.tell_change(&format!("r{run}"), 1);
    }
    for run in 0..500 {
        assert_eq!(list.next().await, format!("r{run} 1"));
    }
}

/// As JSON they have six times their bytes.
fn escaped_labels(bytes: usize) -> BTreeMap<String, String> {
    (0..LABELS_MAX).map(|at| (format!("{at:02}"), "\u{1}".repeat(bytes - 2))).collect()
}

#[tokio::test]
async fn changes_that_do_not_fit_into_one_message_arrive_in_several() {
    let store = store().await;
    let (a, b) = (Node::start(1, &store).await, Node::start(2, &store).await);
    b.sees(&[&a]);
    let mut list = b.watch();
    list.begins().await;
    // Nobody can read between these.
    for run in 0..32 {
        a.engine.tell_labelled_change(&format!("r{run}"), 1, escaped_labels(1_024));
    }
    for run in 0..32 {
        assert_eq!(list.next().await, format!("r{run} 1"));
    }
}

#[tokio::test]
async fn the_largest_changes_fit_into_pages() {
    let node = Node::without_port(1, &store().await);
    let mut tap = node.engine.tap_run_changes().unwrap();
    let labels = escaped_labels(SHORT_TEXT_BYTES_MAX);
    for run in 0..PAGE_CHANGES_MAX {
        node.engine.tell_labelled_change(&format!("r{run}"), 1, labels.clone());
    }
    // Larger than any that a caller can make.
    node.engine.tell_labelled_change("r32", 1, escaped_labels(3 * SHORT_TEXT_BYTES_MAX));
    node.engine.tell_change("r33", 1);
    let mut changes: VecDeque<_> = tap.next(usize::MAX).await.unwrap().into();
    let (mut sizes, mut told) = (Vec::new(), Vec::new());
    while !changes.is_empty() {
        let page = page(&mut changes).unwrap();
        sizes.push(page.len());
        told.extend(read(&page).unwrap().0);
    }
    assert!(sizes.iter().all(|bytes| *bytes <= PAGE_BYTES_MAX), "{sizes:?}");
    assert!(sizes.len() > PAGE_CHANGES_MAX / 4, "{sizes:?}");
    let runs: Vec<String> = told.iter().map(RunChange::run).collect();
    let all: Vec<String> = (0..34).filter(|run| *run != 32).map(|run| format!("r{run}")).collect();
    assert_eq!(runs, all);
}

#[tokio::test]
async fn a_list_begins_again_when_a_replica_joins_or_is_gone() {
    let store = store().await;
    let (a, b) = (Node::start(1, &store).await, Node::start(2, &store).await);
    b.sees(&[]);
    let mut list = b.watch();
    list.begins().await;
    b.sees(&[&a]);
    list.begins().await;
    a.engine.tell_change("of-a", 1);
    assert_eq!(list.next().await, "of-a 1");
    b.sees(&[]);
    list.begins().await;
    b.engine.tell_change("of-b", 1);
    assert_eq!(list.next().await, "of-b 1");
}

/// A replica that others take for dead may write until its fence has ended, and tells nobody.
#[tokio::test]
async fn a_list_begins_once_more_when_the_shards_of_a_lost_replica_are_free() {
    let store = store().await;
    let (a, b) = (Node::start(1, &store).await, Node::start(2, &store).await);
    b.sees_owned(&[&a], Some(&a));
    let mut list = b.watch();
    list.begins().await;
    b.sees_owned(&[], Some(&a));
    list.begins().await;
    b.sees_owned(&[], None);
    list.begins().await;
    b.sees_owned(&[], Some(&b));
    b.engine.tell_change("of-b", 1);
    assert_eq!(list.next().await, "of-b 1", "it has begun for the last time");
}

#[tokio::test]
async fn a_list_begins_again_when_a_stream_that_was_too_slow_is_made_anew() {
    let store = store().await;
    let (a, b) = (Node::start(1, &store).await, Node::start(2, &store).await);
    b.sees(&[&a]);
    let mut list = b.watch();
    list.begins().await;
    // Nobody can read between these.
    for run in 0..2_000 {
        a.engine.tell_change(&format!("r{run}"), 1);
    }
    let mut seen = 0;
    loop {
        let next = list.next().await;
        if next == "reset" {
            break;
        }
        assert_eq!(next, format!("r{seen} 1"));
        seen += 1;
    }
    assert!(seen <= 1_024, "{seen}");
    assert_eq!(list.next().await, "synced");
    a.engine.tell_change("of-a", 1);
    assert_eq!(list.next().await, "of-a 1");
}

#[tokio::test]
async fn a_replica_of_an_earlier_version_or_one_that_stops_keeps_no_list_from_its_begin() {
    let store = store().await;
    let (old, stopping) = (Node::without_port(1, &store), Node::start(2, &store).await);
    let old = old.with_port(TcpListener::bind("127.0.0.1:0").await.unwrap(), false);
    stopping.tasks.soft().cancel();
    let b = Node::start(3, &store).await;
    b.sees(&[&old, &stopping]);
    let mut list = b.watch();
    list.begins().await;
    b.engine.tell_change("of-b", 1);
    assert_eq!(list.next().await, "of-b 1");
}

#[tokio::test]
async fn changes_that_this_version_cannot_read_are_passed_over() {
    let node = Node::without_port(1, &store().await);
    let mut tap = node.engine.tap_run_changes().unwrap();
    node.engine.tell_change("a", 1);
    node.engine.tell_change("b", 1);
    let changes = tap.next(PAGE_CHANGES_MAX).await.unwrap();
    let page = page(&mut changes.clone().into()).unwrap();
    let mut json: serde_json::Value = serde_json::from_slice(&page).unwrap();
    json[0]["row"]["summary"]["status"] = "of a later version".into();
    let (changes_read, unreadable) = read(&serde_json::to_vec(&json).unwrap()).unwrap();
    assert_eq!((changes_read, unreadable), (vec![RunChange::clone(&changes[1])], 1));
    assert!(read(b"[{").is_err());
}
