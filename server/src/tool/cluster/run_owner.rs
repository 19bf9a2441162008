//! The owner of a run, for the hub: it reports to the engine of that replica.

use std::sync::Arc;
use std::time::Duration;

use agentloop_core::cluster::shard::OwnerNo;
use agentloop_core::id::{RunId, RunKey, TenantId};
use async_trait::async_trait;

use crate::cluster::locate::Locate;
use crate::cluster::run_shards::RunShards;
use crate::cluster::{Ownerships, ShardOwner};

/// Time for which a shard is remembered: longer than a result waits for an owner.
const KEPT_FOR: Duration = Duration::from_secs(60);

/// The replica that owns a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunOwner {
    /// This replica. It also responds for runs that do not exist.
    Here,
    /// The replica with this number.
    Peer(OwnerNo),
    /// Nobody for the moment, or nobody who is known.
    Nobody,
}

/// Finds the owner of a run that no replica has claimed at the hub.
#[async_trait]
pub trait RunOwners: Send + Sync + 'static {
    /// The present owner of this run.
    async fn owner_of(&self, tenant: &TenantId, run: &RunId) -> RunOwner;
}

/// Finds the shard of a run, and the shard's owner. When an owner dies, all results for its runs look for it again and again
/// until there is another one.
pub struct LocatedOwners {
    shards: RunShards,
    ownerships: Ownerships,
}

impl LocatedOwners {
    /// Looks shards up with `locate`, and takes their owners from `ownerships`.
    #[must_use]
    pub fn new(locate: Arc<dyn Locate>, ownerships: Ownerships) -> Self {
        Self { shards: RunShards::new(locate, KEPT_FOR), ownerships }
    }
}

#[async_trait]
impl RunOwners for LocatedOwners {
    async fn owner_of(&self, tenant: &TenantId, run: &RunId) -> RunOwner {
        match self.shards.find(&RunKey::new(tenant.clone(), run.clone())).await {
            Ok(Some(shard)) => match self.ownerships.borrow().owner(shard) {
                ShardOwner::Here => RunOwner::Here,
                ShardOwner::Peer(peer) => RunOwner::Peer(peer.number),
                ShardOwner::Nobody => RunOwner::Nobody,
            },
            Ok(None) => RunOwner::Here,
            Err(error) => {
                tracing::warn!(run.id = %run, %error, "the owner of a run cannot be found; the reports of its hosts wait");
                RunOwner::Nobody
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use agentloop_core::cluster::shard::{SHARDS, ShardNo};
    use agentloop_core::id::SessionId;
    use agentloop_core::time::Timestamp;
    use futures_util::future::join_all;
    use tokio::sync::{Semaphore, watch};

    use super::*;
    use crate::cluster::Ownership;
    use crate::cluster::locate::LocateError;

    /// A database that counts the look-ups. Each takes a permit, and the first of them fails.
    struct Counted {
        count: AtomicUsize,
        permits: Semaphore,
    }

    #[async_trait]
    impl Locate for Counted {
        async fn shard_of_run(&self, _: &TenantId, run: &RunId) -> Result<Option<ShardNo>, LocateError> {
            let count = self.count.fetch_add(1, Ordering::SeqCst);
            self.permits.acquire().await.unwrap().forget();
            match count {
                0 => Err(LocateError("away".to_owned())),
                _ => Ok((run.as_str() != "unknown").then_some(ShardNo(1))),
            }
        }

        async fn session_created_at(
            &self,
            _: &TenantId,
            _: &SessionId,
        ) -> Result<Option<Timestamp>, LocateError> {
            Ok(None)
        }
    }

    fn owned_by(owner: Option<OwnerNo>) -> Ownership {
        Ownership::new(OwnerNo(1), true, vec![owner; usize::from(SHARDS)].into(), Arc::default())
    }

    #[tokio::test(start_paused = true)]
    async fn results_of_a_few_runs_that_wait_for_an_owner_need_a_few_look_ups() {
        let locate = Arc::new(Counted { count: AtomicUsize::new(0), permits: Semaphore::new(0) });
        let (ownerships, now) = watch::channel(owned_by(None));
        let owners = LocatedOwners::new(locate.clone(), now);
        let (tenant, runs) =
            (TenantId::local(), [0, 1, 2, 3].map(|no| RunId::parse(format!("r{no}")).unwrap()));
        let look = async || {
            let looks = (0..1_000).map(|result| owners.owner_of(&tenant, &runs[result % runs.len()]));
            let (found, ()) = tokio::join!(join_all(looks), async { locate.permits.add_permits(4) });
            found
        };
        assert_eq!(look().await, [RunOwner::Nobody; 1_000]);
        assert_eq!(locate.count.load(Ordering::SeqCst), 4, "those of one run share a look-up");
        for _ in 0..3 {
            assert_eq!(look().await, [RunOwner::Nobody; 1_000]);
        }
        assert_eq!(locate.count.load(Ordering::SeqCst), 5, "the first look-up failed");
        ownerships.send_replace(owned_by(Some(OwnerNo(1))));
        assert_eq!(look().await, [RunOwner::Here; 1_000]);
        assert_eq!(locate.count.load(Ordering::SeqCst), 5);
        tokio::time::advance(KEPT_FOR).await;
        assert_eq!(owners.owner_of(&tenant, &runs[0]).await, RunOwner::Here);
        assert_eq!(locate.count.load(Ordering::SeqCst), 6, "its id may be used again by now");
        let unknown = RunId::parse("unknown").unwrap();
        for _ in 0..2 {
            assert_eq!(owners.owner_of(&tenant, &unknown).await, RunOwner::Here);
        }
        assert_eq!(locate.count.load(Ordering::SeqCst), 8, "it may exist by now");
    }
}
