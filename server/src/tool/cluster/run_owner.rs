//! The owner of a run, for the hub: it reports to the engine of that replica.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agentloop_core::cluster::shard::{OwnerNo, ShardNo};
use agentloop_core::id::{RunId, RunKey, TenantId};
use async_trait::async_trait;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use tokio::time::Instant;

use crate::cluster::locate::{Locate, LocateError};
use crate::cluster::{Ownerships, ShardOwner};

/// Runs whose shards are remembered: about 5 MB.
const RUNS_MAX: usize = 16_384;
/// Time for which a shard is remembered: longer than a result waits for an owner. When its session is deleted, the id of a run may be
/// used again, in another shard.
const KEPT_FOR: Duration = Duration::from_secs(60);

/// The replica that owns a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunOwner {
    /// This replica. It also answers for runs that do not exist.
    Here,
    /// The replica with this number.
    Peer(OwnerNo),
    /// Nobody for the moment, or nobody who is known.
    Nobody,
}

/// Finds the owner of a run for which no replica has asked.
#[async_trait]
pub trait RunOwners: Send + Sync + 'static {
    /// The present owner of this run.
    async fn owner_of(&self, tenant: &TenantId, run: &RunId) -> RunOwner;
}

/// Finds the shard of a run, and the shard's owner. When an owner dies, all results for its runs ask again and again until there is
/// another one. A run stays in its shard, so most questions need no look-up.
pub struct LocatedOwners {
    locate: Arc<dyn Locate>,
    ownerships: Ownerships,
    runs: Mutex<KnownRuns>,
}

#[derive(Default)]
struct KnownRuns {
    shards: HashMap<RunKey, (ShardNo, Instant)>,
    /// Look-ups under way, for all who ask about the run meanwhile.
    looking: HashMap<RunKey, WeakShared<LookUp>>,
}

type LookUp = BoxFuture<'static, Result<Option<ShardNo>, LocateError>>;

impl LocatedOwners {
    /// Asks `locate` for shards, and takes their owners from `ownerships`.
    #[must_use]
    pub fn new(locate: Arc<dyn Locate>, ownerships: Ownerships) -> Self {
        Self { locate, ownerships, runs: Mutex::default() }
    }

    async fn shard_of(&self, key: RunKey) -> Result<Option<ShardNo>, LocateError> {
        if let Some(shard) = self.runs().shard(&key) {
            return Ok(Some(shard));
        }
        let looking = self.look_up(&key);
        let found = looking.await;
        let mut runs = self.runs();
        runs.looking.remove(&key);
        if let Ok(Some(shard)) = found {
            runs.add(key, shard);
        }
        found
    }

    /// The look-up of a run that is under way, or a new one.
    fn look_up(&self, key: &RunKey) -> Shared<LookUp> {
        let mut runs = self.runs();
        if let Some(looking) = runs.looking.get(key).and_then(WeakShared::upgrade) {
            return looking;
        }
        let (locate, RunKey { tenant, run }) = (self.locate.clone(), key.clone());
        let looking = async move { locate.shard_of_run(&tenant, &run).await }.boxed().shared();
        if runs.looking.len() >= RUNS_MAX {
            // Those that nobody waits for any more.
            runs.looking.retain(|_, looking| looking.upgrade().is_some());
        }
        if let Some(shared) = looking.downgrade() {
            runs.looking.insert(key.clone(), shared);
        }
        looking
    }

    fn runs(&self) -> MutexGuard<'_, KnownRuns> {
        // No operation leaves the maps half changed, so they are still good after a panic.
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KnownRuns {
    fn shard(&self, key: &RunKey) -> Option<ShardNo> {
        let (shard, since) = self.shards.get(key)?;
        (since.elapsed() < KEPT_FOR).then_some(*shard)
    }

    fn add(&mut self, key: RunKey, shard: ShardNo) {
        if self.shards.len() >= RUNS_MAX {
            self.shards.retain(|_, (_, since)| since.elapsed() < KEPT_FOR);
        }
        // All of them are new: whoever still waits looks them up again.
        if self.shards.len() >= RUNS_MAX {
            self.shards.clear();
        }
        self.shards.insert(key, (shard, Instant::now()));
    }
}

#[async_trait]
impl RunOwners for LocatedOwners {
    async fn owner_of(&self, tenant: &TenantId, run: &RunId) -> RunOwner {
        match self.shard_of(RunKey::new(tenant.clone(), run.clone())).await {
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

    use agentloop_core::cluster::shard::SHARDS;
    use futures_util::future::join_all;
    use tokio::sync::{Semaphore, watch};

    use super::*;
    use crate::cluster::Ownership;

    /// A database that counts the look-ups. Each takes a permit, and the first of them fails.
    struct Counted {
        count: AtomicUsize,
        answers: Semaphore,
    }

    #[async_trait]
    impl Locate for Counted {
        async fn shard_of_run(&self, _: &TenantId, run: &RunId) -> Result<Option<ShardNo>, LocateError> {
            let count = self.count.fetch_add(1, Ordering::SeqCst);
            self.answers.acquire().await.unwrap().forget();
            match count {
                0 => Err(LocateError("away".to_owned())),
                _ => Ok((run.as_str() != "unknown").then_some(ShardNo(1))),
            }
        }
    }

    fn owned_by(owner: Option<OwnerNo>) -> Ownership {
        Ownership::new(OwnerNo(1), true, vec![owner; usize::from(SHARDS)].into(), Arc::default())
    }

    #[tokio::test(start_paused = true)]
    async fn results_of_a_few_runs_that_wait_for_an_owner_need_a_few_look_ups() {
        let locate = Arc::new(Counted { count: AtomicUsize::new(0), answers: Semaphore::new(0) });
        let (ownerships, now) = watch::channel(owned_by(None));
        let owners = LocatedOwners::new(locate.clone(), now);
        let (tenant, runs) =
            (TenantId::local(), [0, 1, 2, 3].map(|no| RunId::parse(format!("r{no}")).unwrap()));
        let look = async || {
            let asked = (0..1_000).map(|result| owners.owner_of(&tenant, &runs[result % runs.len()]));
            let (found, ()) = tokio::join!(join_all(asked), async { locate.answers.add_permits(4) });
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
