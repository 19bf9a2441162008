//! The health service: the process lives, and the server takes RPCs.

use std::sync::Arc;
use std::time::Duration;

use agentloop_core::cluster::shard::{SHARDS, ShardNo};
use agentloop_proto::v1::{
    agent_loop_server, blobs_server, server_server, sessions_server, tool_host_server, tools_server,
};
use tokio::sync::watch;
use tokio::time::Instant;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use crate::cluster::{Ownership, Ownerships};
use crate::engine::Engine;
use crate::lifecycle::Tasks;
use crate::store::Store;

/// The time between two checks that the store still responds.
const CHECK_EVERY: Duration = Duration::from_secs(5);
/// The same for a replica that lacks nothing. Each of its beats reads the database, and it notices at once when they
/// fail or a shard has no owner. So the check tells no more than that the store's own connections work.
const CHECK_REPLICA_EVERY: Duration = Duration::from_secs(60);
/// Time for which a replica may be without a valid lease, and a shard without an owner, before no more RPCs are to come. Those
/// that come meanwhile wait: another replica takes the place of one that is lost within this time, or the database is back.
const LACKING_MAX: Duration = Duration::from_secs(15);
/// Time after its start for which a replica may not know the tools of the hosts. It is ready all the same after it: the replica
/// that has the hosts may not be reached.
const TOOLS_WAIT: Duration = Duration::from_secs(10);
/// The health service that says only that the process lives, whatever the store's state.
const LIVENESS: &str = "liveness";
/// The health services that say if the server takes requests: it as a whole, and each of its services.
const READINESS: [&str; 7] = [
    "",
    agent_loop_server::SERVICE_NAME,
    blobs_server::SERVICE_NAME,
    server_server::SERVICE_NAME,
    sessions_server::SERVICE_NAME,
    tool_host_server::SERVICE_NAME,
    tools_server::SERVICE_NAME,
];

/// The parts on which readiness depends.
pub(in crate::app) struct Readiness {
    /// A server is ready while its store responds.
    store: Arc<dyn Store>,
    /// A replica also needs its lease, an owner of each shard, because RPCs may come for all of them, and the tools that it
    /// offers to its runs.
    replica: Option<ReplicaReadiness>,
    /// Its runs whose store failed are tried at once when the server is ready again.
    engine: Option<Engine>,
}

struct ReplicaReadiness {
    ownerships: Ownerships,
    lacks: Lacks,
    /// True once the tools of the hosts are known.
    tools_known: watch::Receiver<bool>,
    started: Instant,
}

/// The parts that a replica lacks, and since when.
struct Lacks {
    /// True as soon as it once had everything. Before, nothing may be lacking.
    has_begun: bool,
    lease_since: Option<Instant>,
    /// The shards without an owner.
    owners_since: Vec<Option<Instant>>,
}

impl Readiness {
    /// The readiness of a server without other replicas.
    pub(in crate::app) fn of_store(store: Arc<dyn Store>) -> Self {
        Self { store, replica: None, engine: None }
    }

    /// The same, which tells this engine when the store responds again.
    pub(in crate::app) fn telling(self, engine: Engine) -> Self {
        Self { engine: Some(engine), ..self }
    }

    /// The readiness of a replica.
    pub(in crate::app) fn of_replica(
        store: Arc<dyn Store>,
        ownerships: Ownerships,
        tools_known: watch::Receiver<bool>,
    ) -> Self {
        let (lacks, started) = (Lacks::new(), Instant::now());
        let replica = Some(ReplicaReadiness { ownerships, lacks, tools_known, started });
        Self { store, replica, engine: None }
    }

    /// The reason why the server takes no RPCs.
    async fn check(&mut self) -> Result<(), String> {
        if let Some(replica) = &mut self.replica {
            replica.check(Instant::now())?;
        }
        match tokio::time::timeout(CHECK_EVERY, self.store.check()).await {
            Ok(checked) => checked.map_err(|error| format!("the store does not respond: {error}")),
            Err(_) => Err(format!("the store has not responded for {CHECK_EVERY:?}")),
        }
    }

    /// The server takes RPCs again.
    fn is_back(&self) {
        if let Some(engine) = &self.engine {
            engine.store_is_back();
        }
    }

    fn check_every(&self, ready: bool) -> Duration {
        match &self.replica {
            Some(replica) if ready && replica.lacks.has_everything() => CHECK_REPLICA_EVERY,
            Some(_) | None => CHECK_EVERY,
        }
    }

    /// Resolves when it is time to check again. `ready`: the result of the last check.
    async fn due(&mut self, ready: bool) {
        let after = tokio::time::sleep(self.check_every(ready));
        match &mut self.replica {
            None => after.await,
            Some(ReplicaReadiness { ownerships, tools_known, .. }) => {
                // A sender that is gone tells nothing new: the process ends then.
                tokio::select! {
                    () = after => {}
                    Ok(()) = ownerships.changed() => {}
                    Ok(()) = tools_known.changed() => {}
                }
            }
        }
    }
}

impl ReplicaReadiness {
    fn check(&mut self, now: Instant) -> Result<(), String> {
        self.lacks.note(&self.ownerships.borrow_and_update(), now);
        self.lacks.check(now)?;
        if !*self.tools_known.borrow_and_update() && now.duration_since(self.started) < TOOLS_WAIT {
            return Err("the tools of the hosts are not known yet".to_owned());
        }
        Ok(())
    }
}

impl Lacks {
    fn new() -> Self {
        Self { has_begun: false, lease_since: None, owners_since: vec![None; usize::from(SHARDS)] }
    }

    /// Notes which parts are lacking now. A part that was lacking before keeps the time at which it was first missed.
    fn note(&mut self, ownership: &Ownership, now: Instant) {
        let since = |before: Option<Instant>, lacks: bool| lacks.then(|| before.unwrap_or(now));
        self.lease_since = since(self.lease_since, !ownership.is_valid());
        for (shard, before) in (0..SHARDS).zip(&mut self.owners_since) {
            *before = since(*before, !ownership.has_owner(ShardNo(shard)));
        }
        self.has_begun |= self.has_everything();
    }

    fn has_everything(&self) -> bool {
        self.lease_since.is_none() && self.owners_since.iter().all(Option::is_none)
    }

    fn check(&self, now: Instant) -> Result<(), String> {
        let is_late = |since: &Option<Instant>| {
            since.is_some_and(|since| !self.has_begun || now.duration_since(since) >= LACKING_MAX)
        };
        if is_late(&self.lease_since) {
            return Err("this replica has no valid lease".to_owned());
        }
        match self.owners_since.iter().filter(|since| is_late(since)).count() {
            0 => Ok(()),
            count => Err(format!("{count} of {SHARDS} shards have no owner")),
        }
    }
}

/// Keeps the health status up to date: serving while RPCs are taken and no shutdown has begun. The first check is done when
/// this returns: nobody is told that a server works which does not.
pub(super) async fn report(health: HealthReporter, mut readiness: Readiness, tasks: &Tasks) {
    health.set_service_status(LIVENESS, ServingStatus::Serving).await;
    let mut ready = check(&health, &mut readiness, None).await;
    let soft = tasks.soft().clone();
    drop(tasks.spawn("health", async move {
        while soft.run_until_cancelled(readiness.due(ready)).await.is_some() {
            ready = check(&health, &mut readiness, Some(ready)).await;
        }
        set_readiness(&health, ServingStatus::NotServing).await;
    }));
}

async fn set_readiness(health: &HealthReporter, status: ServingStatus) {
    for service in READINESS {
        health.set_service_status(service, status).await;
    }
}

/// Checks if RPCs are taken, and reports a change. Returns true if they are.
async fn check(health: &HealthReporter, readiness: &mut Readiness, before: Option<bool>) -> bool {
    let now = readiness.check().await;
    match (&now, before) {
        (Ok(()), Some(false)) => readiness.is_back(),
        (Err(why), None) => tracing::info!(%why, "not ready yet"),
        (Err(why), Some(true)) => tracing::error!(%why, "not ready"),
        (Err(_), Some(false)) | (Ok(()), None | Some(true)) => {}
    }
    if before != Some(now.is_ok()) {
        let status = if now.is_ok() { ServingStatus::Serving } else { ServingStatus::NotServing };
        set_readiness(health, status).await;
    }
    now.is_ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use agentloop_core::cluster::shard::OwnerNo;
    use tokio::sync::watch;
    use tokio::time::advance;

    use super::*;
    use crate::cluster::Peer;
    use crate::store::sqlite::SqliteStore;

    /// The first `mine` shards are this replica's, the next `others` the other one's, and the rest nobody's.
    fn ownership(is_valid: bool, mine: u16, others: u16) -> Ownership {
        let owners = (0..SHARDS).map(|shard| match shard {
            _ if shard < mine => Some(OwnerNo(1)),
            _ if shard < mine + others => Some(OwnerNo(2)),
            _ => None,
        });
        let peer = Peer { number: OwnerNo(2), address: "10.0.0.2:1".to_owned() };
        Ownership::new(OwnerNo(1), is_valid, owners.collect(), Arc::new(BTreeMap::from([(OwnerNo(2), peer)])))
    }

    async fn readiness(ownership: Ownership) -> (Readiness, watch::Sender<Ownership>, Arc<SqliteStore>) {
        let store = Arc::new(SqliteStore::in_memory().await.unwrap());
        let (sender, ownerships) = watch::channel(ownership);
        let tools_known = watch::Sender::new(true).subscribe();
        (Readiness::of_replica(store.clone(), ownerships, tools_known), sender, store)
    }

    #[tokio::test]
    async fn a_replica_is_ready_once_every_shard_has_an_owner() {
        let (mut readiness, sender, store) = readiness(Ownership::unknown(OwnerNo(1))).await;
        assert_eq!(readiness.check().await, Err("this replica has no valid lease".to_owned()));
        sender.send_replace(ownership(true, 0, SHARDS - 3));
        assert_eq!(readiness.check().await, Err("3 of 1024 shards have no owner".to_owned()));
        sender.send_replace(ownership(true, 0, SHARDS));
        assert_eq!(readiness.check().await, Ok(()), "it needs none of its own");
        store.close().await;
        assert!(readiness.check().await.unwrap_err().starts_with("the store does not respond"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_replica_waits_a_while_for_the_tools_of_the_hosts() {
        let (_sender, ownerships) = watch::channel(ownership(true, SHARDS, 0));
        let (known, tools_known) = watch::channel(false);
        let mut replica =
            ReplicaReadiness { ownerships, lacks: Lacks::new(), tools_known, started: Instant::now() };
        let mut after = async |wait| {
            advance(wait).await;
            replica.check(Instant::now())
        };
        let lacking = Err("the tools of the hosts are not known yet".to_owned());
        assert_eq!(after(TOOLS_WAIT - Duration::from_secs(1)).await, lacking);
        assert_eq!(after(Duration::from_secs(1)).await, Ok(()));
        known.send_replace(true);
        assert_eq!(after(Duration::ZERO).await, Ok(()));
    }

    #[tokio::test]
    async fn a_replica_is_ready_as_soon_as_it_knows_the_tools() {
        let store = Arc::new(SqliteStore::in_memory().await.unwrap());
        let (_sender, ownerships) = watch::channel(ownership(true, SHARDS, 0));
        let (known, tools_known) = watch::channel(false);
        let mut readiness = Readiness::of_replica(store, ownerships, tools_known);
        assert!(readiness.check().await.is_err());
        known.send_replace(true);
        readiness.due(false).await;
        assert_eq!(readiness.check().await, Ok(()));
    }

    /// The check of the store is left out: it works in a thread, which a paused clock does not wait for.
    #[tokio::test(start_paused = true)]
    async fn a_lease_and_owners_may_be_lacking_for_a_while() {
        let without_owners = ownership(true, 500, 500);
        for (lacking, problem) in [
            (ownership(false, 500, SHARDS - 500), "this replica has no valid lease"),
            (without_owners, "24 of 1024 shards have no owner"),
        ] {
            let mut lacks = Lacks::new();
            let mut now = |ownership: &Ownership| {
                lacks.note(ownership, Instant::now());
                lacks.check(Instant::now())
            };
            assert_eq!(now(&ownership(true, 500, SHARDS - 500)), Ok(()));
            advance(Duration::from_secs(60)).await;
            assert_eq!(now(&lacking), Ok(()));
            advance(LACKING_MAX - Duration::from_secs(1)).await;
            assert_eq!(now(&lacking), Ok(()));
            advance(Duration::from_secs(1)).await;
            assert_eq!(now(&lacking), Err(problem.to_owned()));
            assert_eq!(now(&ownership(true, 500, SHARDS - 500)), Ok(()));
            assert_eq!(now(&lacking), Ok(()), "the time begins anew");
        }
    }

    #[tokio::test]
    async fn a_replica_that_lacks_nothing_checks_the_store_seldom() {
        let (mut readiness, sender, _store) = readiness(ownership(true, SHARDS, 0)).await;
        readiness.check().await.unwrap();
        assert_eq!(readiness.check_every(true), CHECK_REPLICA_EVERY);
        assert_eq!(readiness.check_every(false), CHECK_EVERY, "it may be ready again soon");
        sender.send_replace(ownership(true, 0, SHARDS - 1));
        readiness.check().await.unwrap();
        assert_eq!(readiness.check_every(true), CHECK_EVERY, "the owner that is missing may not come");
    }
}
