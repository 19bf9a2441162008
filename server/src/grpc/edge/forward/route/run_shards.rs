//! The shards of runs that RPCs have named. A run's shard never changes, so most RPCs need no question to the database.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agentloop_core::cluster::shard::ShardNo;
use agentloop_core::id::RunKey;
use tokio::time::Instant;

use crate::cluster::locate::{Locate, LocateError};

/// Runs whose shards are remembered: about 5 MB.
const RUNS_MAX: usize = 16_384;
/// Time for which a shard is remembered. When its session is deleted, the id of a run may be used again, in another shard.
const KEPT_FOR: Duration = Duration::from_secs(600);

/// Finds the shards of runs, and remembers them.
pub(in crate::grpc::edge::forward) struct RunShards {
    locate: Arc<dyn Locate>,
    cache: Mutex<ShardCache>,
}

/// The shards that were found lately.
#[derive(Default)]
struct ShardCache {
    shards: HashMap<RunKey, (ShardNo, Instant)>,
    /// The same runs, oldest first. A run that was looked up again is here twice.
    by_age: VecDeque<(RunKey, Instant)>,
}

impl RunShards {
    pub(in crate::grpc::edge::forward) fn new(locate: Arc<dyn Locate>) -> Self {
        Self { locate, cache: Mutex::default() }
    }

    /// The shard of a run; `None` if nobody knows the run.
    pub(in crate::grpc::edge::forward) async fn find(
        &self,
        key: &RunKey,
    ) -> Result<Option<ShardNo>, LocateError> {
        let known = self.cache().get(key);
        if known.is_some() {
            return Ok(known);
        }
        self.look_up(key).await
    }

    /// The same from the database alone: what is remembered may have led to the wrong replica.
    pub(in crate::grpc::edge::forward) async fn look_up(
        &self,
        key: &RunKey,
    ) -> Result<Option<ShardNo>, LocateError> {
        let found = self.locate.shard_of_run(&key.tenant, &key.run).await?;
        if let Some(shard) = found {
            self.cache().add(key.clone(), shard);
        }
        Ok(found)
    }

    /// True if the shard of the run was found before.
    pub(in crate::grpc::edge::forward) fn remembers(&self, key: &RunKey) -> bool {
        self.cache().get(key).is_some()
    }

    fn cache(&self) -> std::sync::MutexGuard<'_, ShardCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ShardCache {
    fn get(&self, key: &RunKey) -> Option<ShardNo> {
        let (shard, since) = self.shards.get(key)?;
        (since.elapsed() < KEPT_FOR).then_some(*shard)
    }

    fn add(&mut self, key: RunKey, shard: ShardNo) {
        let now = Instant::now();
        while let Some((oldest, since)) = self.by_age.front()
            && (self.by_age.len() >= RUNS_MAX || now.duration_since(*since) >= KEPT_FOR)
        {
            if self.shards.get(oldest).is_some_and(|(_, newer)| newer == since) {
                self.shards.remove(oldest);
            }
            self.by_age.pop_front();
        }
        self.by_age.push_back((key.clone(), now));
        self.shards.insert(key, (shard, now));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU16, Ordering};

    use agentloop_core::id::{RunId, TenantId};
    use async_trait::async_trait;

    use super::*;

    /// Tells another shard with each question, from 1.
    #[derive(Default)]
    struct Asked(AtomicU16);

    #[async_trait]
    impl Locate for Asked {
        async fn shard_of_run(&self, _: &TenantId, run: &RunId) -> Result<Option<ShardNo>, LocateError> {
            let asked = self.0.fetch_add(1, Ordering::SeqCst) + 1;
            Ok((run.as_str() != "unknown").then_some(ShardNo(asked)))
        }
    }

    fn key(run: &str) -> RunKey {
        RunKey::new(TenantId::local(), RunId::parse(run).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn a_shard_is_remembered_for_ten_minutes() {
        let shards = RunShards::new(Arc::new(Asked::default()));
        assert_eq!(shards.find(&key("r")).await, Ok(Some(ShardNo(1))));
        tokio::time::advance(KEPT_FOR - Duration::from_secs(1)).await;
        assert_eq!(shards.find(&key("r")).await, Ok(Some(ShardNo(1))));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(shards.find(&key("r")).await, Ok(Some(ShardNo(2))));
    }

    #[tokio::test]
    async fn a_run_that_nobody_knows_and_one_that_is_asked_for_again_are_looked_up() {
        let shards = RunShards::new(Arc::new(Asked::default()));
        assert_eq!(shards.find(&key("unknown")).await, Ok(None));
        assert_eq!(shards.find(&key("unknown")).await, Ok(None));
        assert_eq!(shards.find(&key("r")).await, Ok(Some(ShardNo(3))));
        assert_eq!(shards.look_up(&key("r")).await, Ok(Some(ShardNo(4))));
        assert_eq!(shards.find(&key("r")).await, Ok(Some(ShardNo(4))));
    }

    #[tokio::test]
    async fn the_oldest_runs_make_room_for_new_ones() {
        let shards = RunShards::new(Arc::new(Asked::default()));
        for number in 0..RUNS_MAX + 10 {
            shards.find(&key(&format!("r{number}"))).await.unwrap();
        }
        let known = shards.cache();
        assert_eq!((known.shards.len(), known.by_age.len()), (RUNS_MAX, RUNS_MAX));
        assert!(known.get(&key("r9")).is_none() && known.get(&key("r10")).is_some());
    }
}
