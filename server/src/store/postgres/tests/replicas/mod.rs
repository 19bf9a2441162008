//! Several replicas over one database. Each server of a test has a runtime of its own, which a test can end like a process.

mod fences;
mod ghosts;
mod restart;
mod silence;
mod statements;
mod takeovers;

use std::time::Duration;

use agentloop_core::cluster::shard::{SHARDS, ShardNo, Term};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

use super::*;
use crate::cluster::{Ownership, Peer, ShardOwner};

/// Bound on every wait: much longer than what is waited for takes.
const BOUND: Duration = Duration::from_secs(60);
/// A lease that is over soon.
const SHORT: Duration = Duration::from_secs(1);
/// A lease that no test waits for.
const LONG: Duration = Duration::from_secs(10);

/// A server of a cluster.
struct Server {
    options: PostgresOptions,
    address: String,
    replica: Arc<Replica>,
    runtime: Option<Runtime>,
}

impl Server {
    async fn join(options: &PostgresOptions, address: &str, lease: Duration) -> Result<Self, OpenError> {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let me = ReplicaOptions { address: address.to_owned(), lease, configuration_digest: "c".to_owned() };
        let joining = options.clone();
        let joined = runtime.spawn(async move { Replica::join(&joining, me).await }).await.unwrap();
        let mut server = Self {
            options: options.clone(),
            address: address.to_owned(),
            replica: match joined {
                Ok(replica) => Arc::new(replica),
                Err(error) => {
                    runtime.shutdown_background();
                    return Err(error);
                }
            },
            runtime: None,
        };
        server.runtime = Some(runtime);
        Ok(server)
    }

    async fn start(schema: &Schema, address: &str, lease: Duration) -> Self {
        Self::join(&schema.options, address, lease).await.unwrap()
    }

    fn peer(&self) -> Peer {
        Peer { number: self.replica.number(), address: self.address.clone() }
    }

    /// Opens the store, and takes shards from now on.
    async fn open_and_keep(&self) -> Arc<PostgresStore> {
        let (number, scope, options) =
            (self.replica.number(), self.replica.scope().clone(), self.options.clone());
        let runtime = self.runtime.as_ref().unwrap();
        let opened = runtime.spawn(async move { PostgresStore::open_replica(&options, number, scope).await });
        let store = Arc::new(opened.await.unwrap().unwrap());
        self.replica.ready();
        store
    }

    /// Opens the store, takes shards from now on, and gives those away that are too many.
    async fn open(&self) -> Arc<PostgresStore> {
        let store = self.open_and_keep().await;
        let runtime = self.runtime.as_ref().unwrap();
        let (replica, shedding) = (Arc::downgrade(&self.replica), Arc::downgrade(&store));
        let mut shards = self.replica.shards();
        runtime.spawn(async move {
            while let Ok(now) = shards.wait_for(|now| !now.shedding.is_empty()).await.map(|now| now.clone()) {
                let (Some(replica), Some(store)) = (replica.upgrade(), shedding.upgrade()) else { return };
                let leaving: Vec<_> = now.shedding.iter().copied().collect();
                if store.forget_shards(&leaving).await.is_ok() {
                    replica.given_away(leaving);
                }
                let gone = shards.wait_for(|later| later.shedding != now.shedding).await.is_err();
                if gone {
                    return;
                }
            }
        });
        store
    }

    /// Opens the store, and waits until the server owns every shard.
    async fn own(&self) -> Arc<PostgresStore> {
        let store = self.open().await;
        self.wait_for_shards(SHARDS).await;
        store
    }

    /// Waits until the server owns so many shards, and its lease is valid.
    async fn wait_for_shards(&self, shards: u16) {
        let count = usize::from(shards);
        self.wait_for(|ownership| ownership.is_valid() && ownership.own().count() == count).await;
    }

    async fn wait_for(&self, is_it: impl FnMut(&Ownership) -> bool) {
        wait_for(&mut self.replica.ownerships(), is_it).await;
    }

    /// The highest term of its shards.
    fn term(&self) -> u64 {
        self.replica.shards().borrow().owned.values().map(|term| term.0).max().unwrap_or_default()
    }

    /// Ends the server without a word to anybody.
    fn kill(mut self) {
        self.runtime.take().unwrap().shutdown_background();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn wait_for<T: std::fmt::Debug>(values: &mut watch::Receiver<T>, is_it: impl FnMut(&T) -> bool) {
    let waited = tokio::time::timeout(BOUND, values.wait_for(is_it)).await.map(|found| found.is_ok());
    assert_eq!(waited.ok(), Some(true), "it is {:?}", values.borrow());
}

/// The owners of shards, each once.
fn owners_of(ownership: &Ownership) -> Vec<ShardOwner> {
    let mut owners = Vec::new();
    for holder in (0..SHARDS).map(|shard| ownership.owner(ShardNo(shard))) {
        if holder != ShardOwner::Nobody && !owners.contains(&holder) {
            owners.push(holder);
        }
    }
    owners
}

/// Checks again and again until it is so.
pub(super) async fn until(mut is_so: impl AsyncFnMut() -> bool) {
    let checks = async {
        while !is_so().await {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(BOUND, checks).await.expect("in time");
}

/// The one number that a query returns.
async fn number(db: &mut PgConnection, sql: &'static str) -> i64 {
    use sqlx::Row as _;
    sqlx::query(sql).fetch_one(db).await.unwrap().get(0)
}

/// Each database counts its replicas from 1, so their numbers may be the same.
#[tokio::test]
async fn replicas_of_one_database_have_a_name_in_common_and_those_of_two_have_not() {
    let (Some(one), Some(other)) = (Schema::new().await, Schema::new().await) else { return };
    let (first, second) = (Server::start(&one, "a:1", LONG).await, Server::start(&one, "b:1", LONG).await);
    let stranger = Server::start(&other, "a:1", LONG).await;
    assert_eq!(first.replica.number(), stranger.replica.number());
    assert_eq!(first.replica.cluster(), second.replica.cluster());
    assert_ne!(first.replica.cluster(), stranger.replica.cluster());
}
