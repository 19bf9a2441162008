//! The health service: the process lives, and the server takes calls.

use std::sync::Arc;
use std::time::Duration;

use agentloop_proto::v1::{
    agent_loop_server, blobs_server, server_server, sessions_server, tool_host_server, tools_server,
};
use tokio::sync::watch;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use crate::app::store::OwnStore;
use crate::cluster::{Peer, Replicas, Standing, Standings};
use crate::lifecycle::Tasks;
use crate::store::Store;

/// The time between two checks that the store still answers.
const CHECK_EVERY: Duration = Duration::from_secs(5);
/// The same for a replica that owns the database. Each of its beats writes there, and it is no owner any more a lease after the last
/// one that was answered. So the check tells no more than that the store's own connections work.
const CHECK_OWNER_EVERY: Duration = Duration::from_secs(60);
/// A replica that stands by and has seen no sign of life from the owner for so long and two leases cannot reach the database: else
/// it would have taken its place. It would not learn of another owner.
const CUT_OFF_AFTER: Duration = Duration::from_secs(30);
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

/// What readiness depends on.
pub(super) enum Readiness {
    /// A server alone is ready while its store answers.
    Store(Arc<dyn Store>),
    /// This replica is the owner and its store answers, or it knows the owner.
    Replica {
        /// The part of this replica.
        standings: Standings,
        /// Its store, while it is the owner.
        store: watch::Receiver<Option<OwnStore>>,
        /// All of the replicas, as its beats have shown them.
        replicas: Arc<dyn Replicas>,
        /// Time without a beat after which an owner is taken for dead.
        lease: Duration,
    },
}

impl Readiness {
    /// The reason why the server takes no calls.
    async fn check(&self) -> Result<(), String> {
        let store = match self {
            Self::Store(store) => store.clone(),
            Self::Replica { standings, store, replicas, lease } => {
                let standing = standings.borrow().clone();
                let opened = store.borrow().clone();
                match (standing, opened) {
                    (Standing::Owner, Some(store)) => store.shared(),
                    (Standing::Owner, None) => {
                        return Err("this replica is taking the database over".to_owned());
                    }
                    (Standing::Standby { owner: Some(owner) }, _) => {
                        return stands_by(&**replicas, &owner, CUT_OFF_AFTER + *lease * 2);
                    }
                    (Standing::Standby { owner: None }, _) => {
                        return Err("no replica owns the database".to_owned());
                    }
                }
            }
        };
        match tokio::time::timeout(CHECK_EVERY, store.check()).await {
            Ok(checked) => checked.map_err(|error| format!("the store does not answer: {error}")),
            Err(_) => Err(format!("the store has not answered for {CHECK_EVERY:?}")),
        }
    }

    fn check_every(&self, ready: bool) -> Duration {
        match self {
            Self::Replica { standings, .. } if ready && matches!(*standings.borrow(), Standing::Owner) => {
                CHECK_OWNER_EVERY
            }
            Self::Replica { .. } | Self::Store(_) => CHECK_EVERY,
        }
    }

    /// Resolves when it is time to check again. `ready`: the answer of the last check.
    async fn due(&mut self, ready: bool) {
        let after = tokio::time::sleep(self.check_every(ready));
        match self {
            Self::Store(_) => after.await,
            Self::Replica { standings, store, .. } => {
                // A sender that is gone tells nothing new: the process ends then.
                tokio::select! {
                    () = after => {}
                    Ok(()) = standings.changed() => {}
                    Ok(()) = store.changed() => {}
                }
            }
        }
    }
}

/// The reason why a replica that stands by takes no calls for this owner.
fn stands_by(replicas: &dyn Replicas, owner: &Peer, silent_max: Duration) -> Result<(), String> {
    let rows = replicas.rows();
    let silent = rows.iter().find(|row| row.peer.number == owner.number).and_then(|row| row.silent_for);
    match silent.filter(|silent| *silent >= silent_max) {
        Some(silent) => Err(format!("the database has not answered this replica for {} s", silent.as_secs())),
        None => Ok(()),
    }
}

/// Keeps the health status up to date: serving while calls are taken and no shutdown has begun. The first check is done when
/// this returns: nobody is told that a server works which does not.
pub(super) async fn report(health: HealthReporter, mut readiness: Readiness, tasks: &Tasks) {
    health.set_service_status(LIVENESS, ServingStatus::Serving).await;
    let mut ready = check(&health, &readiness, None).await;
    let soft = tasks.soft().clone();
    drop(tasks.spawn("health", async move {
        while soft.run_until_cancelled(readiness.due(ready)).await.is_some() {
            ready = check(&health, &readiness, Some(ready)).await;
        }
        set_readiness(&health, ServingStatus::NotServing).await;
    }));
}

async fn set_readiness(health: &HealthReporter, status: ServingStatus) {
    for service in READINESS {
        health.set_service_status(service, status).await;
    }
}

/// Checks if calls are taken, and reports a change. Returns true if they are.
async fn check(health: &HealthReporter, readiness: &Readiness, before: Option<bool>) -> bool {
    let now = readiness.check().await;
    if let Err(why) = &now
        && before != Some(false)
    {
        tracing::error!(%why, "not ready");
    }
    if before != Some(now.is_ok()) {
        let status = if now.is_ok() { ServingStatus::Serving } else { ServingStatus::NotServing };
        set_readiness(health, status).await;
    }
    now.is_ok()
}

#[cfg(test)]
mod tests {
    use agentloop_core::time::Timestamp;

    use super::*;
    use crate::cluster::{ReplicaPart, ReplicaRow};

    /// The owner was seen to live for the last time so long ago.
    struct SilentFor(Duration);

    fn owner() -> Peer {
        Peer { number: 1, address: "10.0.0.1:1".to_owned() }
    }

    impl Replicas for SilentFor {
        fn rows(&self) -> Vec<ReplicaRow> {
            let row = |number, part, silent_for| ReplicaRow {
                peer: Peer { number, ..owner() },
                version: "1".to_owned(),
                joined_at: Timestamp(1),
                part,
                silent_for,
                configuration_digest: "c".to_owned(),
            };
            vec![row(1, ReplicaPart::Owner, Some(self.0)), row(2, ReplicaPart::Standby, None)]
        }
    }

    #[tokio::test]
    async fn a_replica_that_stands_by_is_ready_until_the_database_is_silent() {
        let (_standing, standings) = watch::channel(Standing::Standby { owner: Some(owner()) });
        let ready = async |silent, lease| {
            let (_store, store) = watch::channel(None);
            let replicas = Arc::new(SilentFor(Duration::from_secs(silent)));
            let (standings, lease) = (standings.clone(), Duration::from_secs(lease));
            Readiness::Replica { standings, store, replicas, lease }.check().await
        };
        assert_eq!(ready(34, 3).await, Ok(()));
        let cut_off = ready(36, 3).await.unwrap_err();
        assert_eq!(cut_off, "the database has not answered this replica for 36 s");
        // With a long lease, the owner may be dead.
        assert_eq!(ready(149, 60).await, Ok(()));
        assert!(ready(150, 60).await.is_err());
    }

    #[tokio::test]
    async fn an_owner_whose_beats_are_answered_seldom_asks_the_store() {
        let (standing, standings) = watch::channel(Standing::Owner);
        let (_store, store) = watch::channel(None);
        let replicas = Arc::new(SilentFor(Duration::ZERO));
        let readiness = Readiness::Replica { standings, store, replicas, lease: Duration::from_secs(3) };
        assert_eq!(readiness.check_every(true), CHECK_OWNER_EVERY);
        assert_eq!(readiness.check_every(false), CHECK_EVERY, "it may be ready again soon");
        standing.send_replace(Standing::Standby { owner: None });
        assert_eq!(readiness.check_every(true), CHECK_EVERY);
    }
}
