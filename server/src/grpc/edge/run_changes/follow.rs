//! Follows the changes of runs at all other replicas while somebody watches a list of runs here.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use agentloop_core::cluster::shard::OwnerNo;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::codegen::http::{HeaderMap, HeaderValue};
use tonic::metadata::MetadataMap;
use tonic::{Request, Status, Streaming};

use crate::cluster::{Ownerships, Peer};
use crate::engine::{Engine, PeerFollowing};
use crate::grpc::edge::forward::wire::links::Links;
use crate::grpc::edge::forward::wire::metadata::REPLICA;
use crate::grpc::edge::run_changes::{PAGE_BYTES_MAX, PATH, read};
use crate::grpc::edge::tool_link::FrameCodec;

/// The first wait before a stream that broke is made again. Each further one is twice as long.
const AGAIN_AFTER: Duration = Duration::from_millis(200);
/// The longest of these waits. It is also the one after a refusal: the other replica stops, or is of an earlier version.
const AGAIN_AFTER_MOST: Duration = Duration::from_secs(4);
/// After a stream that lasted this long, the waits begin again with the first one.
const WAS_WELL: Duration = Duration::from_secs(10);

/// Brings the changes of runs at other replicas to those who watch here, until `stop`. While nobody watches, it only waits. Call
/// this before the first watch can begin, so that it begins once.
///
/// All watchers begin again where changes may have been missed. That is so after a stream was opened again, because its replica
/// may have changed runs in between. It is so after a replica is gone, because nobody sent its last changes. They begin once more
/// when its shards are free: until then it may have written something. A replica of an earlier version sends none. Of its runs,
/// watchers have only the rows of their snapshot.
pub fn follow_run_changes(
    engine: Engine,
    ownerships: Ownerships,
    links: Links,
    stop: CancellationToken,
) -> impl Future<Output = ()> + Send + 'static {
    let following = engine.peer_following();
    let until_stopped = async move {
        loop {
            following.begins().await;
            let undecided = Mutex::default();
            let follower = ChangeFollower {
                engine: &engine,
                ownerships: &ownerships,
                links: &links,
                following: &following,
                undecided,
            };
            tokio::select! {
                () = following.ends() => {}
                () = follower.run() => {}
            }
            following.set_unfollowed();
        }
    };
    async move {
        let _stopped = stop.run_until_cancelled(until_stopped).await;
    }
}

/// The streams while somebody watches.
struct ChangeFollower<'a> {
    engine: &'a Engine,
    ownerships: &'a Ownerships,
    links: &'a Links,
    following: &'a PeerFollowing,
    /// Replicas whose first stream was neither opened nor refused yet.
    undecided: Mutex<BTreeSet<OwnerNo>>,
}

impl ChangeFollower<'_> {
    /// Keeps one stream to each of the other replicas.
    async fn run(&self) {
        let mut ownerships = self.ownerships.clone();
        let mut known: BTreeMap<OwnerNo, (Peer, CancellationToken)> = BTreeMap::new();
        // Replicas that are gone, and whose shards are not free yet.
        let mut ending: BTreeSet<OwnerNo> = BTreeSet::new();
        let mut streams = FuturesUnordered::new();
        loop {
            let peers: Vec<Peer> = ownerships.borrow_and_update().peers().cloned().collect();
            let gone: Vec<OwnerNo> = known
                .iter()
                .filter(|(_, (peer, _))| !peers.contains(peer))
                .map(|(number, _)| *number)
                .collect();
            for number in &gone {
                if let Some((_, stop)) = known.remove(number) {
                    stop.cancel();
                }
                self.undecided.lock().remove(number);
            }
            // A fenced one may still write, and tell nobody, until its shards are free.
            let had_ended = ending.extract_if(.., |number| !ownerships.borrow().names(*number)).count();
            if !gone.is_empty() || had_ended > 0 {
                self.engine.reset_run_watchers();
            }
            ending.extend(gone.into_iter().filter(|number| ownerships.borrow().names(*number)));
            for peer in peers {
                if known.contains_key(&peer.number) {
                    continue;
                }
                let stop = CancellationToken::new();
                known.insert(peer.number, (peer.clone(), stop.clone()));
                self.undecided.lock().insert(peer.number);
                streams.push(async move { stop.run_until_cancelled(self.follow(&peer)).await });
            }
            self.decide(None);
            let changed = loop {
                tokio::select! {
                    changed = ownerships.changed() => break changed,
                    Some(_cancelled) = streams.next() => {}
                }
            };
            if changed.is_err() {
                // This replica stops: it learns nothing more of the others.
                return std::future::pending().await;
            }
        }
    }

    /// Keeps a stream to this replica.
    async fn follow(&self, peer: &Peer) {
        let mut wait = AGAIN_AFTER;
        loop {
            match self.open(peer).await {
                Ok(pages) => {
                    if self.following.is_followed() {
                        self.engine.reset_run_watchers();
                    }
                    self.decide(Some(peer));
                    let began = Instant::now();
                    let end = self.read_all(pages).await;
                    tracing::debug!(
                        replica = peer.number.0,
                        end,
                        "changes of runs at a replica are not told any more"
                    );
                    wait = if began.elapsed() < WAS_WELL { wait * 2 } else { AGAIN_AFTER };
                }
                Err(why) => {
                    self.decide(Some(peer));
                    tracing::debug!(
                        replica = peer.number.0,
                        why.text,
                        "a replica does not tell changes of runs"
                    );
                    wait = if why.is_refusal { AGAIN_AFTER_MOST } else { wait * 2 };
                }
            }
            wait = wait.min(AGAIN_AFTER_MOST);
            sleep(wait).await;
        }
    }

    async fn open(&self, peer: &Peer) -> Result<Streaming<Vec<u8>>, NoStream> {
        let broken = |text: String| NoStream { text, is_refusal: false };
        let ownership = self.ownerships.borrow().clone();
        let channel = self.links.to(peer, &ownership).map_err(|bad| broken(bad.to_string()))?;
        let mut grpc = tonic::client::Grpc::new((*channel).clone()).max_decoding_message_size(PAGE_BYTES_MAX);
        grpc.ready().await.map_err(|error| broken(error.to_string()))?;
        let headers = HeaderMap::from_iter([(REPLICA, HeaderValue::from(peer.number.0))]);
        let mut request = Request::new(Vec::new());
        *request.metadata_mut() = MetadataMap::from_headers(headers);
        let opened = grpc.server_streaming(request, PathAndQuery::from_static(PATH), FrameCodec).await;
        opened.map(tonic::Response::into_inner).map_err(NoStream::from)
    }

    /// Passes changes to those who watch here until the stream ends. Returns the reason of its end.
    async fn read_all(&self, mut pages: Streaming<Vec<u8>>) -> String {
        let mut has_warned = false;
        loop {
            let page = match pages.message().await {
                Ok(Some(page)) => page,
                Ok(None) => return "the replica ended it".to_owned(),
                Err(status) => return status.message().to_owned(),
            };
            let (changes, unreadable) = match read(&page) {
                Ok(read) => read,
                Err(error) => return error.to_string(),
            };
            if unreadable > 0 && !has_warned {
                has_warned = true;
                tracing::warn!(
                    "a replica of another version tells changes of runs that this version cannot read; lists of runs that are \
                     watched here show some runs as they were"
                );
            }
            changes.into_iter().for_each(|change| self.engine.peer_changed(change));
        }
    }

    /// Notes that the first stream to this replica was opened or refused. When that is known of all replicas, the watchers begin.
    fn decide(&self, peer: Option<&Peer>) {
        let mut undecided = self.undecided.lock();
        let was_there = peer.is_none_or(|peer| undecided.remove(&peer.number));
        if was_there && undecided.is_empty() && !self.following.is_followed() {
            self.following.set_followed();
        }
    }
}

/// The reason why there is no stream.
struct NoStream {
    text: String,
    /// True if the other replica has responded.
    is_refusal: bool,
}

impl From<Status> for NoStream {
    fn from(status: Status) -> Self {
        // A status that the transport made has its cause.
        let is_refusal = std::error::Error::source(&status).is_none();
        Self { text: status.message().to_owned(), is_refusal }
    }
}
