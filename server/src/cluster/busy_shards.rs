//! Shards with work under way that would be lost if another replica got them: calls of tools that run in this process.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use agentloop_core::cluster::shard::ShardNo;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

/// The shards with work that would be lost, and those that are given away. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct BusyShards(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    shards: Mutex<BusyCounts>,
    /// Notified of each shard in which work may begin again.
    gained: Notify,
}

#[derive(Debug, Default)]
struct BusyCounts {
    /// Number of works under way in each, if there are any.
    works: BTreeMap<ShardNo, usize>,
    leaving: BTreeSet<ShardNo>,
}

/// Work in a shard. The shard is busy until this is dropped.
#[derive(Debug)]
pub struct BusyShard {
    shards: BusyShards,
    shard: ShardNo,
}

impl BusyShards {
    /// Begins work in a shard. `None`: the shard is given away, and its next owner should do the work.
    #[must_use]
    pub fn begin(&self, shard: ShardNo) -> Option<BusyShard> {
        let mut shards = self.lock();
        if shards.leaving.contains(&shard) {
            return None;
        }
        *shards.works.entry(shard).or_default() += 1;
        Some(BusyShard { shards: self.clone(), shard })
    }

    /// The same as soon as it may begin: the replica may have to keep a shard that it was to give away.
    pub async fn begin_once_gained(&self, shard: ShardNo) -> BusyShard {
        loop {
            // Made before the look, so that no gain after it is missed.
            let gained = self.0.gained.notified();
            if let Some(work) = self.begin(shard) {
                return work;
            }
            gained.await;
        }
    }

    /// Gives away the shards that are chosen by those that are busy. No work begins in them any more, nor in the meantime.
    pub fn leave(&self, choose: impl FnOnce(&BTreeSet<ShardNo>) -> Vec<ShardNo>) -> Vec<LeavingShard> {
        let mut shards = self.lock();
        let busy = shards.works.keys().copied().collect();
        let chosen = choose(&busy);
        shards.leaving.extend(&chosen);
        chosen.into_iter().map(|shard| LeavingShard { shard, is_busy: busy.contains(&shard) }).collect()
    }

    /// Work may begin in a shard again, since this replica has gained it.
    pub fn gain(&self, shard: ShardNo) {
        if self.lock().leaving.remove(&shard) {
            self.0.gained.notify_waiters();
        }
    }

    fn lock(&self) -> MutexGuard<'_, BusyCounts> {
        // No operation leaves the sets half changed, so they are still good after a panic.
        self.0.shards.lock()
    }
}

/// A shard that is given away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeavingShard {
    /// The shard, in which no call of a tool in the process begins any more.
    pub shard: ShardNo,
    /// True if work is lost with it.
    pub is_busy: bool,
}

impl Drop for BusyShard {
    fn drop(&mut self) {
        let mut shards = self.shards.lock();
        if let Some(works) = shards.works.get_mut(&self.shard) {
            *works -= 1;
            if *works == 0 {
                shards.works.remove(&self.shard);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_is_busy_until_its_last_work_has_ended() {
        let shards = BusyShards::default();
        let works = [1, 1, 2].map(|shard| shards.begin(ShardNo(shard)).unwrap());
        let busy = || shards.lock().works.keys().copied().collect::<Vec<_>>();
        assert_eq!(busy(), [ShardNo(1), ShardNo(2)]);
        let [first, second, _third] = works;
        drop(first);
        assert_eq!(busy(), [ShardNo(1), ShardNo(2)]);
        drop(second);
        assert_eq!(busy(), [ShardNo(2)]);
    }

    #[test]
    fn no_work_begins_in_a_shard_that_is_given_away() {
        let shards = BusyShards::default();
        let _work = shards.begin(ShardNo(1));
        let left = shards.leave(|busy| {
            assert_eq!(busy.iter().copied().collect::<Vec<_>>(), [ShardNo(1)]);
            vec![ShardNo(1), ShardNo(2)]
        });
        let leaving = |shard, is_busy| LeavingShard { shard: ShardNo(shard), is_busy };
        assert_eq!(left, [leaving(1, true), leaving(2, false)]);
        assert!(shards.begin(ShardNo(1)).is_none() && shards.begin(ShardNo(2)).is_none());
        shards.gain(ShardNo(2));
        assert!(shards.begin(ShardNo(1)).is_none() && shards.begin(ShardNo(2)).is_some());
    }
}
