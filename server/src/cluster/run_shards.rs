//! The shards of runs that were needed lately. A run stays in its shard, so most RPCs need no look-up in the database.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use agentloop_core::cluster::shard::ShardNo;
use agentloop_core::id::RunKey;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use crate::cluster::locate::{Locate, LocateError};

/// Runs whose shards are remembered: about 5 MB.
const RUNS_MAX: usize = 16_384;

/// Finds the shards of runs, and remembers them.
pub(crate) struct RunShards {
    locate: Arc<dyn Locate>,
    cache: Mutex<ShardCache>,
}

/// The shards that were found lately.
struct ShardCache {
    /// Time for which a shard is remembered. When its session is deleted, the id of a run may be used again, in another shard.
    kept_for: Duration,
    shards: HashMap<RunKey, (ShardNo, Instant)>,
    /// The same runs, oldest first. A run that was looked up again is here twice.
    by_age: VecDeque<(RunKey, Instant)>,
    /// Look-ups under way, for all who need the run meanwhile.
    looking: HashMap<RunKey, WeakShared<LookUp>>,
}

type LookUp = BoxFuture<'static, Result<Option<ShardNo>, LocateError>>;

impl RunShards {
    /// Calls `locate`, and remembers each shard for this long.
    pub(crate) fn new(locate: Arc<dyn Locate>, kept_for: Duration) -> Self {
        let (shards, by_age, looking) = (HashMap::new(), VecDeque::new(), HashMap::new());
        Self { locate, cache: Mutex::new(ShardCache { kept_for, shards, by_age, looking }) }
    }

    /// The shard of a run; `None` if nobody knows the run.
    pub(crate) async fn find(&self, key: &RunKey) -> Result<Option<ShardNo>, LocateError> {
        let looking = {
            let mut cache = self.cache();
            match cache.get(key) {
                Some(shard) => return Ok(Some(shard)),
                None => cache.join_look_up(key, &self.locate),
            }
        };
        let found = looking.await;
        self.cache().looking.remove(key);
        self.remember(key, found)
    }

    /// The same from the database alone: what is remembered may have led to the wrong replica.
    pub(crate) async fn look_up(&self, key: &RunKey) -> Result<Option<ShardNo>, LocateError> {
        let found = self.locate.shard_of_run(&key.tenant, &key.run).await;
        self.remember(key, found)
    }

    /// The shard of a run, if it was found before.
    pub(crate) fn remembered(&self, key: &RunKey) -> Option<ShardNo> {
        self.cache().get(key)
    }

    fn remember(
        &self,
        key: &RunKey,
        found: Result<Option<ShardNo>, LocateError>,
    ) -> Result<Option<ShardNo>, LocateError> {
        if let Ok(Some(shard)) = found {
            self.cache().add(key.clone(), shard);
        }
        found
    }

    fn cache(&self) -> MutexGuard<'_, ShardCache> {
        // No operation leaves the maps half changed, so they are still good after a panic.
        self.cache.lock()
    }
}

impl ShardCache {
    fn get(&self, key: &RunKey) -> Option<ShardNo> {
        let (shard, since) = self.shards.get(key)?;
        (since.elapsed() < self.kept_for).then_some(*shard)
    }

    fn add(&mut self, key: RunKey, shard: ShardNo) {
        if self.get(&key) == Some(shard) {
            // One of many who shared a look-up.
            return;
        }
        let now = Instant::now();
        while let Some((oldest, since)) = self.by_age.front()
            && (self.by_age.len() >= RUNS_MAX || now.duration_since(*since) >= self.kept_for)
        {
            if self.shards.get(oldest).is_some_and(|(_, newer)| newer == since) {
                self.shards.remove(oldest);
            }
            self.by_age.pop_front();
        }
        self.by_age.push_back((key.clone(), now));
        self.shards.insert(key, (shard, now));
    }

    /// The look-up of a run that is under way, or a new one.
    fn join_look_up(&mut self, key: &RunKey, locate: &Arc<dyn Locate>) -> Shared<LookUp> {
        if let Some(looking) = self.looking.get(key).and_then(WeakShared::upgrade) {
            return looking;
        }
        let (locate, RunKey { tenant, run }) = (locate.clone(), key.clone());
        let looking = async move { locate.shard_of_run(&tenant, &run).await }.boxed().shared();
        if self.looking.len() >= RUNS_MAX {
            // Look-ups that nobody waits for any more leave.
            self.looking.retain(|_, looking| looking.upgrade().is_some());
        }
        if let Some(shared) = looking.downgrade() {
            self.looking.insert(key.clone(), shared);
        }
        looking
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU16, Ordering};

    use agentloop_core::id::{RunId, SessionId, TenantId};
    use agentloop_core::time::Timestamp;
    use async_trait::async_trait;
    use futures_util::future::join_all;

    use super::*;

    const KEPT_FOR: Duration = Duration::from_secs(600);

    /// Finds another shard with each look-up, from 1.
    #[derive(Default)]
    struct LookUps(AtomicU16);

    #[async_trait]
    impl Locate for LookUps {
        async fn shard_of_run(&self, _: &TenantId, run: &RunId) -> Result<Option<ShardNo>, LocateError> {
            let count = self.0.fetch_add(1, Ordering::SeqCst) + 1;
            Ok((run.as_str() != "unknown").then_some(ShardNo(count)))
        }

        async fn session_created_at(
            &self,
            _: &TenantId,
            _: &SessionId,
        ) -> Result<Option<Timestamp>, LocateError> {
            Ok(None)
        }
    }

    fn key(run: &str) -> RunKey {
        RunKey::new(TenantId::local(), RunId::parse(run).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn a_shard_is_remembered_for_ten_minutes() {
        let shards = RunShards::new(Arc::new(LookUps::default()), KEPT_FOR);
        assert_eq!(shards.find(&key("r")).await, Ok(Some(ShardNo(1))));
        tokio::time::advance(KEPT_FOR - Duration::from_secs(1)).await;
        assert_eq!(shards.find(&key("r")).await, Ok(Some(ShardNo(1))));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(shards.find(&key("r")).await, Ok(Some(ShardNo(2))));
    }

    #[tokio::test]
    async fn a_run_that_nobody_knows_and_one_that_is_wanted_again_are_looked_up() {
        let shards = RunShards::new(Arc::new(LookUps::default()), KEPT_FOR);
        assert_eq!(shards.find(&key("unknown")).await, Ok(None));
        assert_eq!(shards.find(&key("unknown")).await, Ok(None));
        assert_eq!(shards.find(&key("r")).await, Ok(Some(ShardNo(3))));
        assert_eq!(shards.look_up(&key("r")).await, Ok(Some(ShardNo(4))));
        assert_eq!(shards.find(&key("r")).await, Ok(Some(ShardNo(4))));
    }

    #[tokio::test]
    async fn a_shared_look_up_counts_once() {
        let shards = RunShards::new(Arc::new(LookUps::default()), KEPT_FOR);
        shards.find(&key("other")).await.unwrap();
        let wanted = key("r");
        let found = join_all((0..RUNS_MAX).map(|_| shards.find(&wanted))).await;
        assert!(found.iter().all(|found| *found == Ok(Some(ShardNo(2)))));
        assert!(shards.remembered(&key("other")).is_some(), "the result for many takes one place");
    }

    #[tokio::test]
    async fn the_oldest_runs_make_room_for_new_ones() {
        let shards = RunShards::new(Arc::new(LookUps::default()), KEPT_FOR);
        for number in 0..RUNS_MAX + 10 {
            shards.find(&key(&format!("r{number}"))).await.unwrap();
        }
        let known = shards.cache();
        assert_eq!((known.shards.len(), known.by_age.len()), (RUNS_MAX, RUNS_MAX));
        assert!(known.get(&key("r9")).is_none() && known.get(&key("r10")).is_some());
    }
}
