//! Replicas in one process, joined by links that a test can cut.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use agentloop_core::cluster::shard::{OwnerNo, SHARDS};
use agentloop_core::host::CallUpdate;
use agentloop_core::host::frame::{CallRequest, CallResult, HostFrame, ResultVerdict, ServerFrame};
use agentloop_core::id::{Epoch, HostId, InstanceId, RunId, TenantId, ToolKey};
use async_trait::async_trait;
use futures_util::StreamExt as _;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::super::{ClusterTools, LinkDialer, LinkFrames, LinkInbound, RunOwner, RunOwners};
use crate::cluster::{Ownership, Peer};
use crate::extension::remote::ExtensionRequest;
use crate::tool::tests::harness::{
    FakeEngine, FakeHost, Harness, Heard, NOW, call_id, call_ref, hello, offer, origin, tenant,
};
use crate::tool::{
    CallOrigin, RemoteTools, RemoteToolsOptions, Seek, SinkUnavailable, StoredCatalogue, StoredTool,
    ToolRows, Tools as _,
};

/// All replicas of a test, and the links between them.
#[derive(Default)]
pub(super) struct Net {
    replicas: Mutex<BTreeMap<OwnerNo, Arc<ClusterTools>>>,
    /// The number of the owner of all runs.
    pub(super) owner: Mutex<Option<OwnerNo>>,
    cut: Mutex<CancellationToken>,
    is_down: AtomicBool,
    /// Lookups of the owner of a run.
    pub(super) looked_up: AtomicUsize,
    /// Links that were opened.
    pub(super) dialed: AtomicUsize,
    /// The tools in the database of all replicas.
    pub(super) database: Mutex<BTreeMap<ToolKey, StoredTool>>,
    /// The replicas that have saved tools, with the names.
    pub(super) saves: Mutex<Vec<(OwnerNo, String)>>,
    /// True while the database does not respond.
    pub(super) is_database_down: AtomicBool,
}

/// One replica as it sees the owners of runs.
struct OwnersAt {
    net: Arc<Net>,
    me: OwnerNo,
}

#[async_trait]
impl RunOwners for OwnersAt {
    async fn owner_of(&self, _tenant: &TenantId, _run: &RunId) -> RunOwner {
        self.net.looked_up.fetch_add(1, Ordering::SeqCst);
        match *self.net.owner.lock() {
            None => RunOwner::Nobody,
            Some(me) if me == self.me => RunOwner::Here,
            Some(peer) => RunOwner::Peer(peer),
        }
    }
}

/// The tools in the database, which the replicas share.
struct Database(Arc<Net>);

#[async_trait]
impl ToolRows for Database {
    async fn read(&self) -> Result<StoredCatalogue, SinkUnavailable> {
        if self.0.is_database_down.load(Ordering::SeqCst) {
            return Err(SinkUnavailable);
        }
        let tools = self.0.database.lock().values().cloned().collect();
        Ok(StoredCatalogue { tools, ..StoredCatalogue::default() })
    }
}

/// Dials over the net.
struct Dialer(Arc<Net>);

#[async_trait]
impl LinkDialer for Dialer {
    async fn dial(&self, peer: &Peer, frames: LinkFrames) -> Result<LinkInbound, String> {
        if self.0.is_down.load(Ordering::SeqCst) {
            return Err("the net is down".to_owned());
        }
        let replica = self.0.replicas.lock().get(&peer.number).cloned();
        let (end, back) = replica.ok_or("no such replica")?.accept();
        let cut = self.0.cut.lock().clone();
        self.0.dialed.fetch_add(1, Ordering::SeqCst);
        tokio::spawn(end.run(frames.take_until(cut.clone().cancelled_owned())));
        Ok(back.take_until(cut.cancelled_owned()).boxed())
    }
}

impl Net {
    /// Replicas with these numbers. The first is the hub, the last owns all runs.
    pub(super) fn of<const N: usize>(numbers: [u64; N]) -> (Arc<Self>, [Replica; N]) {
        let (net, made) = Self::without_hub(numbers);
        net.hub(&made, numbers[0]);
        (net, made)
    }

    /// The same, and no replica knows of any hub yet.
    pub(super) fn without_hub<const N: usize>(numbers: [u64; N]) -> (Arc<Self>, [Replica; N]) {
        let net = Arc::new(Self::default());
        let made = numbers.map(|number| Replica::new(&net, OwnerNo(number)));
        net.own(numbers[N - 1]);
        (net, made)
    }

    /// A hub with a host, and another replica with a link to it.
    pub(super) async fn with_host() -> (Arc<Self>, [Replica; 2], FakeHost) {
        let (net, replicas) = Self::of([1, 2]);
        let host = replicas[0].host("h", &["weather"]).await;
        replicas[1].ready().await;
        (net, replicas, host)
    }

    /// Saves a tool, as the store does.
    pub(super) fn save(&self, row: &StoredTool) {
        let key = ToolKey::new(row.tenant.clone(), row.declaration.name.clone());
        self.database.lock().insert(key, row.clone());
    }

    /// The row of a tool in the database.
    pub(super) fn saved(&self, name: &str) -> Option<StoredTool> {
        let key = ToolKey::new(tenant(), name.to_owned());
        self.database.lock().get(&key).cloned()
    }

    /// This replica owns all runs from now on; 0 is nobody.
    pub(super) fn own(&self, number: u64) {
        *self.owner.lock() = (number > 0).then_some(OwnerNo(number));
    }

    /// All of these replicas learn that this one is the hub; 0 is nobody.
    pub(super) fn hub(&self, replicas: &[Replica], number: u64) {
        for replica in replicas {
            replica.learn_hub(replicas, number);
        }
    }

    /// Breaks all links. What was on its way is lost. They may be made anew at once.
    pub(super) fn cut(&self) {
        let cut = std::mem::take(&mut *self.cut.lock());
        cut.cancel();
    }

    /// Breaks all links, and none are made before [`Self::up`].
    pub(super) fn down(&self) {
        self.is_down.store(true, Ordering::SeqCst);
        self.cut();
    }

    pub(super) fn up(&self) {
        self.is_down.store(false, Ordering::SeqCst);
    }
}

/// Saves the tools of a replica, as its task does.
async fn save_tools(number: OwnerNo, own: Arc<RemoteTools>, net: Arc<Net>) {
    loop {
        let unsaved = own.unsaved().await;
        for row in &unsaved.rows {
            net.save(row);
            net.saves.lock().push((number, row.declaration.name.clone()));
        }
    }
}

pub(super) struct Replica {
    pub(super) number: OwnerNo,
    pub(super) tools: Arc<ClusterTools>,
    pub(super) engine: Arc<FakeEngine>,
    ownerships: watch::Sender<Ownership>,
}

impl Replica {
    fn new(net: &Arc<Net>, number: OwnerNo) -> Self {
        let own = RemoteTools::new(RemoteToolsOptions::default(), NOW, Vec::new());
        let owners = Arc::new(OwnersAt { net: net.clone(), me: number });
        let rows = Arc::new(Database(net.clone()));
        let encode = |request: &ExtensionRequest| request.name.clone().into_bytes();
        let tools = ClusterTools::new(number, own.clone(), owners, rows, encode);
        tokio::spawn(save_tools(number, own, net.clone()));
        net.replicas.lock().insert(number, tools.clone());
        let engine = Arc::new(FakeEngine::default());
        tokio::spawn(tools.clone().drive(engine.clone()));
        let (ownerships, known) = watch::channel(Ownership::unknown(number));
        tokio::spawn(tools.clone().keep_linked(known, Arc::new(Dialer(net.clone()))));
        Self { number, tools, engine, ownerships }
    }

    pub(super) fn learn_hub(&self, replicas: &[Self], hub: u64) {
        let owners = vec![(hub > 0).then_some(OwnerNo(hub)); usize::from(SHARDS)].into();
        let peer = |replica: &Self| {
            let address = format!("replica-{}", replica.number);
            (replica.number, Peer { number: replica.number, address })
        };
        let peers = replicas.iter().filter(|replica| replica.number != self.number).map(peer);
        let peers = Arc::new(peers.collect());
        self.ownerships.send_replace(Ownership::new(self.number, true, owners, peers));
    }

    /// Waits until it is the hub, or has a link to it.
    pub(super) async fn ready(&self) {
        while !self.tools.is_connected() {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    }

    /// Waits until it has no connection to a hub.
    pub(super) async fn lost(&self) {
        while self.tools.is_connected() {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    }

    /// The own hosts of this replica, with its engine.
    pub(super) fn hosts(&self) -> Harness {
        Harness { tools: self.tools.own().clone(), engine: self.engine.clone() }
    }

    /// Connects a host that names its process, with credit for eight calls.
    pub(super) async fn host(&self, name: &str, tools: &[&str]) -> FakeHost {
        self.host_with(name, tools, |_| {}).await
    }

    pub(super) async fn host_with(
        &self,
        name: &str,
        tools: &[&str],
        change: impl FnOnce(&mut agentloop_core::host::frame::Hello),
    ) -> FakeHost {
        self.ready().await;
        tokio::task::yield_now().await;
        let mut host = self.hosts().dial();
        let mut said = hello(name, tools);
        said.instance = Some(InstanceId::parse(format!("{name}-process")).unwrap());
        change(&mut said);
        host.say(HostFrame::Hello(said));
        host.welcome().await;
        host
    }

    /// Seeks a host for a call, which is granted by an update unless this replica is the hub.
    pub(super) async fn seek(&self, call: &str) -> HostId {
        let before = self.count(call, is_granted);
        match self.tools.seek(&origin(), &call_id(call), "weather", None) {
            Seek::Granted { host, .. } => host,
            Seek::Queued => self.granted(call, before + 1).await,
            Seek::Denied(why) => panic!("{why}"),
        }
    }

    /// Waits until room was granted to the call this many times.
    pub(super) async fn granted(&self, call: &str, times: usize) -> HostId {
        match self.nth(call, times, is_granted).await {
            CallUpdate::Granted { host, .. } => host,
            other => panic!("{other:?}"),
        }
    }

    /// Offers an attempt to this host. Its process is named like in [`Self::host`].
    pub(super) fn offer(&self, call: &str, attempt: u32, host: &HostId) {
        let mut offered = offer(call, attempt, host, "weather");
        offered.instance = Some(InstanceId::parse(format!("{host}-process")).unwrap());
        self.tools.offer(&origin(), &call_id(call), offered);
    }

    /// Seeks a host for the first attempt of a call, and offers it.
    pub(super) async fn give(&self, call: &str) {
        let host = self.seek(call).await;
        self.offer(call, 1, &host);
    }

    /// Gives a call to this host, which accepts it.
    pub(super) async fn give_to(&self, host: &mut FakeHost, call: &str) -> CallRequest {
        self.give(call).await;
        let request = host.take().await;
        self.nth(call, 1, is_accepted).await;
        request
    }

    /// Updates of this kind that the engine has heard.
    pub(super) fn count(&self, call: &str, fits: impl Fn(&CallUpdate) -> bool) -> usize {
        self.heard_of(call, fits).len()
    }

    fn heard_of(&self, call: &str, fits: impl Fn(&CallUpdate) -> bool) -> Vec<CallUpdate> {
        let id = call_id(call);
        let of_call = self.engine.all().into_iter().filter_map(|heard| match heard {
            Heard::Update(of, update) if of == id && fits(&update) => Some(update),
            Heard::Update(..) | Heard::Finished(..) => None,
        });
        of_call.collect()
    }

    /// Waits for the nth update of this kind.
    pub(super) async fn nth(&self, call: &str, n: usize, fits: impl Fn(&CallUpdate) -> bool) -> CallUpdate {
        loop {
            if let Some(update) = self.heard_of(call, &fits).get(n - 1) {
                return update.clone();
            }
            self.engine.heard(self.engine.all().len() + 1).await;
        }
    }

    /// Waits until the engine has got results this many times.
    pub(super) async fn finished(&self, times: usize) -> usize {
        let finished =
            |all: &[Heard]| all.iter().filter(|heard| matches!(heard, Heard::Finished(..))).count();
        loop {
            let all = self.engine.all();
            if finished(&all) >= times {
                return finished(&all);
            }
            self.engine.heard(all.len() + 1).await;
        }
    }
}

pub(super) fn is_granted(update: &CallUpdate) -> bool {
    matches!(update, CallUpdate::Granted { .. })
}

pub(super) fn is_accepted(update: &CallUpdate) -> bool {
    matches!(update, CallUpdate::Accepted { .. })
}

pub(super) fn is_lost(update: &CallUpdate) -> bool {
    matches!(update, CallUpdate::Lost { .. })
}

/// The origin of calls of a task that made this claim of its run.
pub(super) fn origin_at(epoch: u64) -> CallOrigin {
    CallOrigin { epoch: Epoch(epoch), ..origin() }
}

/// The result that [`crate::tool::tests::harness::result_frame`] sends.
pub(super) fn result_of(frame: HostFrame) -> Box<CallResult> {
    match frame {
        HostFrame::Result(result) => result,
        other => panic!("{other:?}"),
    }
}

/// The acknowledgement of the first attempt's result.
pub(super) fn ack(call: &str, verdict: ResultVerdict) -> ServerFrame {
    ServerFrame::ResultAck { call: call_ref(call, 1), verdict }
}

/// The host is sent nothing about calls while this passes.
pub(super) async fn hears_nothing(host: &mut FakeHost) {
    let next = tokio::time::timeout(Duration::from_secs(2), host.next()).await;
    assert!(next.is_err(), "{next:?}");
}
