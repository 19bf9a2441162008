//! A link over a socket, between two replicas.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;

use agentloop_core::cluster::shard::{OwnerNo, SHARDS};
use agentloop_core::host::frame::{HostFrame, ResultVerdict, ServerFrame};
use agentloop_core::id::{RunId, TenantId};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::service::Routes;
use tonic::transport::Server;
use tower::Layer;

use super::*;
use crate::cluster::{Ownership, Ownerships};
use crate::tool::tests::harness::{FakeEngine, Harness, Heard, NOW, call_id, call_ref, hello, offer, origin};
use crate::tool::{
    CallUpdate, RemoteTools, RemoteToolsOptions, RunOwner, RunOwners, Seek, SinkUnavailable, StoredCatalogue,
    ToolRows, Tools as _,
};

/// Replica 2 owns all runs.
struct TheOther(OwnerNo);

#[async_trait]
impl RunOwners for TheOther {
    async fn owner_of(&self, _tenant: &TenantId, _run: &RunId) -> RunOwner {
        if self.0 == OwnerNo(2) { RunOwner::Here } else { RunOwner::Peer(OwnerNo(2)) }
    }
}

/// A store without tools.
struct NoRows;

#[async_trait]
impl ToolRows for NoRows {
    async fn read(&self) -> Result<StoredCatalogue, SinkUnavailable> {
        Ok(StoredCatalogue::default())
    }
}

/// Dials the address of the peer without TLS.
struct PlainDialer;

#[async_trait]
impl LinkDialer for PlainDialer {
    async fn dial(&self, peer: &Peer, frames: LinkFrames) -> Result<LinkInbound, String> {
        let link = Links::new(None).to(peer, &Ownership::unknown(peer.number));
        open((*link.map_err(|bad| bad.to_string())?).clone(), frames).await
    }
}

/// The port for replicas, with nothing but the link.
#[derive(Clone)]
struct LinkPort(ToolLinkService);

impl<S> Layer<S> for LinkPort {
    type Service = Self;

    fn layer(&self, _no_services: S) -> Self {
        self.clone()
    }
}

impl Service<http::Request<Body>> for LinkPort {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _cx: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Infallible>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let link = self.0.clone();
        Box::pin(async move { Ok(link.serve(request).await) })
    }
}

/// Serves these links on the port of the listener.
fn serve(listener: TcpListener, link: ToolLinkService) {
    let serving = Server::builder().layer(LinkPort(link)).add_routes(Routes::default());
    tokio::spawn(serving.serve_with_incoming(TcpListenerStream::new(listener)));
}

/// Replica 1 is the hub, at this address.
fn ownerships(me: OwnerNo, address: SocketAddr) -> Ownerships {
    let owners = vec![Some(OwnerNo(1)); usize::from(SHARDS)].into();
    let hub = Peer { number: OwnerNo(1), address: address.to_string() };
    // Nobody dials the other one.
    let other = Peer { number: OwnerNo(2), address: String::new() };
    let peers = BTreeMap::from([if me == OwnerNo(1) { (OwnerNo(2), other) } else { (OwnerNo(1), hub) }]);
    let (sender, receiver) = watch::channel(Ownership::new(me, true, owners, Arc::new(peers)));
    // The replica follows it as long as the test runs.
    std::mem::forget(sender);
    receiver
}

fn replica(me: OwnerNo, address: SocketAddr) -> (Arc<ClusterTools>, Arc<FakeEngine>) {
    let own = RemoteTools::new(RemoteToolsOptions::default(), NOW, Vec::new());
    let tools = ClusterTools::new(me, own, Arc::new(TheOther(me)), Arc::new(NoRows), ENCODE_REQUEST);
    let engine = Arc::new(FakeEngine::default());
    tokio::spawn(tools.clone().drive(engine.clone()));
    tokio::spawn(tools.clone().keep_linked(ownerships(me, address), Arc::new(PlainDialer)));
    (tools, engine)
}

#[tokio::test]
async fn a_call_goes_over_a_socket_and_its_result_comes_back() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (hub, hubs_engine) = replica(OwnerNo(1), address);
    // The other replica dials before the hub serves.
    let (other, engine) = replica(OwnerNo(2), address);
    while !hub.is_hub() {
        tokio::task::yield_now().await;
    }
    serve(listener, ToolLinkService::new(hub.clone(), Tasks::new()));
    let hosts = Harness { tools: hub.own().clone(), engine: hubs_engine };
    let mut host = hosts.dial();
    host.say(HostFrame::Hello(hello("h", &["weather"])));
    host.welcome().await;
    assert_eq!(other.seek(&origin(), &call_id("r/1.0"), "weather", None), Seek::Queued);
    let granted = engine.update("r/1.0", |update| matches!(update, CallUpdate::Granted { .. })).await;
    let CallUpdate::Granted { host: granted, .. } = granted else { panic!("{granted:?}") };
    let mut offered = offer("r/1.0", 1, &granted, "weather");
    offered.arguments = format!(r#"{{"city":"{}"}}"#, "x".repeat(1_000_000));
    other.offer(&origin(), &call_id("r/1.0"), offered.clone());
    assert_eq!(host.take().await.arguments, offered.arguments, "a large frame goes through");
    host.send_result("r/1.0", 1);
    let ack = ServerFrame::ResultAck { call: call_ref("r/1.0", 1), verdict: ResultVerdict::Recorded };
    assert_eq!(host.frame().await, ack);
    assert!(matches!(engine.all().last(), Some(Heard::Finished(..))));
    // The link ends from the hub's side, and the other replica learns it.
    hub.close();
    while other.is_connected() {
        tokio::task::yield_now().await;
    }
}
