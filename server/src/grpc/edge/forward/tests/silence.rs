//! Owners that stand still: their connections stay open, and nothing comes over them.

use agentloop_proto::v1::tools_client::ToolsClient;
use tokio::io::copy_bidirectional;
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::*;
use crate::grpc::edge::forward::route::routing::SEARCH_WAIT;
use crate::grpc::edge::forward::wire::connection::{PING_EVERY, PING_WAIT};

/// The RPCs of this page, in the order in which they are started.
const PATHS: [&str; 3] =
    ["/agentloop.v1.AgentLoop/GetRun", "/agentloop.v1.Tools/ListHosts", "/agentloop.v1.Tools/ListTools"];

/// An owner whose machine can be made to stand still.
struct Freezable {
    owner: Owner,
    /// The owner, at the address of the way to it.
    peer: Peer,
    frozen: watch::Sender<bool>,
}

impl Freezable {
    async fn start(number: u64) -> Self {
        let owner = Owner::start(number).await;
        let (listener, address) = loopback().await;
        let (frozen, watched) = watch::channel(false);
        let to = owner.peer.address.clone();
        drop(owner.tasks.spawn("way", async move {
            let mut ways = tokio::task::JoinSet::new();
            while let Ok((near, _)) = listener.accept().await {
                ways.spawn(pass_until_frozen(near, to.clone(), watched.clone()));
            }
        }));
        Self { peer: Peer { number: OwnerNo(number), address }, owner, frozen }
    }

    fn owns(&self) -> Ownership {
        owned_by_peer(&self.peer)
    }

    /// From here on connections are taken, and nothing comes over any of them.
    fn freeze(&self) {
        self.frozen.send_replace(true);
    }
}

/// Passes bytes on. A way that is frozen keeps its connections.
async fn pass_until_frozen(mut near: TcpStream, to: String, mut frozen: watch::Receiver<bool>) {
    let mut far = TcpStream::connect(to).await.unwrap();
    let is_frozen = async {
        let _unfrozen = frozen.wait_for(|frozen| *frozen).await.is_err();
    };
    tokio::select! {
        biased;
        () = is_frozen => std::future::pending().await,
        _ = copy_bidirectional(&mut near, &mut far) => {}
    }
}

/// Starts each of the RPCs, to which somebody has to respond.
fn start_calls(replica: &Replica) -> Vec<tokio::task::JoinHandle<Option<Result<(), Status>>>> {
    let (mut runs, mut tools) = (replica.client(), ToolsClient::new(replica.channel.clone()));
    let mut hosts = tools.clone();
    let tasks = &replica.tasks;
    vec![
        tasks.spawn_contained("run", async move {
            runs.get_run(wire::GetRunRequest { run_id: "r".to_owned() }).await.map(drop)
        }),
        tasks.spawn_contained("tools", async move {
            tools.list_tools(wire::ListToolsRequest::default()).await.map(drop)
        }),
        tasks.spawn_contained("hosts", async move {
            hosts.list_hosts(wire::ListHostsRequest::default()).await.map(drop)
        }),
    ]
}

/// The RPCs as the owner sees them, in any order.
async fn all_seen(owner: &mut Owner) -> Vec<Seen> {
    let mut seen = Vec::new();
    for _ in PATHS {
        seen.push(owner.sees().await);
    }
    let mut paths: Vec<&str> = seen.iter().map(|seen| seen.path.as_str()).collect();
    paths.sort_unstable();
    assert_eq!(paths, PATHS);
    seen
}

/// Responds to an RPC with an empty message, which is one of each RPC.
fn respond_empty(seen: Seen) {
    seen.responds(&());
}

#[tokio::test]
async fn calls_at_an_owner_that_stands_still_go_on_at_the_next_one() {
    let (mut first, mut second) = (Freezable::start(1).await, Owner::start(2).await);
    let replica = Replica::start(first.owns()).await;
    let rpcs = start_calls(&replica);
    let mut cut = all_seen(&mut first.owner).await;
    // All but the end of one of them has come.
    cut.pop().unwrap().sends([frame(&())]);
    first.freeze();
    replica.ownership.send_replace(owned_by(&second));
    all_seen(&mut second).await.into_iter().for_each(respond_empty);
    for rpc in rpcs {
        soon(rpc).await.unwrap().unwrap().unwrap();
    }
}

/// Nobody takes the place of this one: it beats, but the way to it is cut without a word.
#[tokio::test]
async fn calls_at_an_owner_that_stands_still_and_stays_the_owner_end() {
    let mut owner = Freezable::start(1).await;
    let replica = Replica::start(owner.owns()).await;
    let rpcs = start_calls(&replica);
    let _cut = all_seen(&mut owner.owner).await;
    let began = Instant::now();
    owner.freeze();
    for rpc in rpcs {
        let refused = soon(rpc).await.unwrap().unwrap().unwrap_err();
        assert_eq!((refused.code(), reason(&refused).as_str()), (Code::Unavailable, "OWNER_UNAVAILABLE"));
        assert!(refused.message().starts_with("replica 1, which has to do"), "{refused:?}");
    }
    // The last attempt begins before the search is over, and is noticed to be in vain as every other one.
    let (waited, last) = (began.elapsed(), (PING_EVERY + PING_WAIT) * 2);
    assert!(waited >= SEARCH_WAIT - last && waited < SEARCH_WAIT + last, "{waited:?}");
}
