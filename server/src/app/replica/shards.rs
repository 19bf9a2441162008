//! The tasks of a replica that follow which shards it has, and those that end it when it has lost them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use agentloop_core::cluster::shard::ShardNo;
use tokio::sync::{Notify, mpsc, watch};

use crate::app::replica::VERDICT_WAIT;
use crate::app::services::HostShutdown;
use crate::engine::Engine;
use crate::lifecycle::Tasks;
use crate::store::StoreError;
use crate::store::postgres::{PostgresStore, Replica, ReplicaShards};

/// Time in which the ends of the streams of a fenced replica leave.
const FENCED_WAIT: Duration = Duration::from_millis(200);
/// Longest wait for the runs of shards that are given away. Nobody else goes on with them meanwhile.
const LEAVE_WAIT: Duration = Duration::from_secs(1);
/// The same for runs that were starting at that time. They write nothing.
const LEAVE_AGAIN_WAIT: Duration = Duration::from_millis(100);
/// Longest wait for the writes under way before sessions are given away. They would be nobody's until those have ended.
const WRITES_WAIT: Duration = Duration::from_millis(500);
/// The wait after a failure to measure the waits of gained runs anew.
const MEASURE_AGAIN_WAIT: Duration = Duration::from_secs(1);

/// The parts of a started replica that follow its shards.
#[derive(Clone)]
pub(super) struct Shards {
    pub(super) replica: Arc<Replica>,
    pub(super) store: Arc<PostgresStore>,
    pub(super) engine: Engine,
    pub(super) host_shutdown: HostShutdown,
    pub(super) tasks: Tasks,
}

impl Shards {
    /// Follows the shards until the replica stops, and ends it when it has lost them.
    pub(super) fn spawn(self) {
        let tasks = self.tasks.clone();
        // One set for each time that shards are kept, which is seldom.
        let (kept, is_kept) = mpsc::unbounded_channel();
        drop(tasks.spawn("gained shards", self.clone().take_gains(is_kept)));
        drop(tasks.spawn("shards to give away", self.clone().give_away(kept)));
        drop(tasks.spawn("last shards", self.clone().hand_over()));
        drop(tasks.spawn("fence", self.clone().end_when_fenced()));
        drop(tasks.spawn("store", self.end_when_the_store_fails()));
    }

    /// Goes on with the work of shards that this replica gains, until it stops. The runs of those that it had to keep may have
    /// stopped.
    async fn take_gains(self, kept: mpsc::UnboundedReceiver<BTreeSet<ShardNo>>) {
        let Self { replica, store, engine, tasks, host_shutdown: _ } = self;
        let gains = Notify::new();
        let following = follow_gains(replica.shards(), kept, || {
            gains.notify_one();
            // A task of its own: runs come up only while there is memory, and the next gain does not wait for them.
            let gained = engine.clone();
            drop(tasks.spawn("gained runs", async move { gained.continue_gained_shards().await }));
        });
        let measuring =
            measure_waits(&gains, || store.wake_runs_of_the_future(), || engine.look_at_parked_runs());
        let both = async {
            tokio::select! { biased;
                () = following => {}
                () = measuring => {}
            }
        };
        let _stopped = tasks.soft().run_until_cancelled(Box::pin(both)).await;
    }

    /// Ends the work of shards that this replica gives away, until it stops. Tells `kept` of those that it has to keep.
    async fn give_away(self, kept: mpsc::UnboundedSender<BTreeSet<ShardNo>>) {
        let (replica, tasks) = (&self.replica, &self.tasks);
        let (mut shards, mut given) = (replica.shards(), BTreeSet::new());
        let following = async {
            loop {
                let shedding = shards.borrow_and_update().shedding.clone();
                given.retain(|shard| shedding.contains(shard));
                let leaving: BTreeSet<ShardNo> = shedding.difference(&given).copied().collect();
                if !leaving.is_empty() {
                    let shards: Vec<ShardNo> = leaving.iter().copied().collect();
                    if self.let_go(&leaving).await {
                        given.extend(leaving);
                        replica.given_away(shards);
                    } else {
                        tracing::warn!("sessions cannot be given away yet; trying again");
                        replica.keep(shards).await;
                        let _stopped = kept.send(leaving);
                        continue;
                    }
                }
                if shards.changed().await.is_err() {
                    return;
                }
            }
        };
        let _stopped = tasks.soft().run_until_cancelled(Box::pin(following)).await;
    }

    /// Ends the work of these shards, and has the store forget them. `false`: a write goes on for long, and they are to be kept.
    async fn let_go(&self, leaving: &BTreeSet<ShardNo>) -> bool {
        let Self { store, engine, .. } = self;
        let shards: Vec<ShardNo> = leaving.iter().copied().collect();
        if !store.writes_within(WRITES_WAIT).await {
            return false;
        }
        store.leave_shards(&shards);
        if !engine.stop_shards(leaving.clone(), LEAVE_WAIT).await {
            tracing::warn!(
                "some runs did not stop in time before their sessions were given away; they write nothing more"
            );
        }
        // A long write may have begun since.
        let forgotten = tokio::time::timeout(WRITES_WAIT, store.forget_shards(&shards)).await;
        if !matches!(forgotten, Ok(Ok(()))) {
            return false;
        }
        // A run that was starting at first has come up by now. Nothing that it does counts.
        engine.give_away_shards(leaving.clone(), LEAVE_AGAIN_WAIT).await;
        true
    }

    /// Gives all shards away once a shutdown has stopped their runs. Hosts and callers that are slow to leave keep this process for
    /// a while, and their sessions are not to wait for that. If it does not come to this, leaving frees them.
    async fn hand_over(self) {
        let Self { replica, store, tasks, host_shutdown, .. } = self;
        tasks.soft().cancelled().await;
        // Else they would be claimed again.
        replica.stopping();
        if !host_shutdown.runs_stopped().await {
            return;
        }
        let shards: Vec<ShardNo> = {
            let now = replica.shards();
            let now = now.borrow();
            now.owned.keys().chain(&now.shedding).copied().collect()
        };
        match store.forget_shards(&shards).await {
            Ok(()) => replica.given_away(shards),
            Err(error) => tracing::debug!(%error, "the last shards are freed when this replica leaves"),
        }
    }

    /// Ends the process when another replica has taken this one for dead. There is nothing to save, because no write of this one
    /// counts any more. But streams are ended first, so that their callers connect to another replica.
    async fn end_when_fenced(self) {
        let Self { replica, tasks, host_shutdown, .. } = self;
        if tasks.soft().run_until_cancelled(replica.failed().cancelled()).await.is_some() {
            tracing::error!(
                runs = host_shutdown.runs(),
                "another replica has taken this one for dead, and takes its place: the runs at work here go on there; ending"
            );
            tasks.soft().cancel();
            tokio::time::sleep(FENCED_WAIT).await;
            tasks.hard().cancel();
        }
    }

    /// Shuts down when the store has failed, which may be the first to find out that another replica has this one's place. The next
    /// beat tells, and ends the process.
    async fn end_when_the_store_fails(self) {
        let Self { replica, store, tasks, .. } = self;
        if tasks.soft().run_until_cancelled(store.failed().cancelled()).await.is_some()
            && tokio::time::timeout(VERDICT_WAIT, replica.failed().cancelled()).await.is_err()
        {
            tasks.fail("store");
        }
    }
}

/// Calls `gained` whenever shards have come to the replica since the last call, until nobody tells of shards any more. One of `kept`
/// counts as new when it is owned: the moment in which it was not may have passed unseen.
async fn follow_gains(
    mut shards: watch::Receiver<ReplicaShards>,
    mut kept: mpsc::UnboundedReceiver<BTreeSet<ShardNo>>,
    mut gained: impl FnMut(),
) {
    let mut known = BTreeMap::new();
    loop {
        let owned = shards.borrow_and_update().owned.clone();
        let is_gained = owned.iter().any(|(shard, term)| known.get(shard) != Some(term));
        known = owned;
        if is_gained {
            gained();
        }
        tokio::select! {
            changed = shards.changed() => if changed.is_err() {
                return;
            },
            Some(kept) = kept.recv() => known.retain(|shard, _| !kept.contains(shard)),
        }
    }
}

/// Measures the waits of runs anew after each of the gains, again after a failure: waits from a clock that was ahead may be hours
/// too long. Then calls `measured`. A gain in the meantime has them measured once more. It does not return.
async fn measure_waits<F>(gains: &Notify, measure: impl Fn() -> F, measured: impl Fn())
where
    F: Future<Output = Result<(), StoreError>>,
{
    loop {
        gains.notified().await;
        while let Err(error) = measure().await {
            tracing::warn!(%error, "waits of runs were not measured anew; trying again");
            tokio::time::sleep(MEASURE_AGAIN_WAIT).await;
        }
        measured();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use agentloop_core::cluster::shard::Term;
    use futures_util::poll;

    use super::*;

    fn owned(shards: &[u16]) -> ReplicaShards {
        let owned = shards.iter().map(|shard| (ShardNo(*shard), Term(1))).collect();
        ReplicaShards { owned, shedding: BTreeSet::new() }
    }

    /// Each time, the runs of all shards are looked for.
    #[tokio::test]
    async fn shards_that_are_kept_again_and_again_are_gone_on_with_once_they_are_back() {
        let (shards, now) = watch::channel(owned(&[1, 2]));
        let (kept, is_kept) = mpsc::unbounded_channel();
        let count = std::cell::Cell::new(0);
        let mut following = std::pin::pin!(follow_gains(now, is_kept, || count.set(count.get() + 1)));
        assert!(poll!(following.as_mut()).is_pending());
        assert_eq!(count.get(), 1);
        for _ in 0..3 {
            shards.send_replace(owned(&[1]));
            kept.send([ShardNo(2)].into()).unwrap();
            assert!(poll!(following.as_mut()).is_pending());
        }
        assert_eq!(count.get(), 1, "it is not back");
        shards.send_replace(owned(&[1, 2]));
        assert!(poll!(following.as_mut()).is_pending());
        assert_eq!(count.get(), 2);
    }

    #[tokio::test]
    async fn a_kept_shard_that_was_away_for_a_moment_is_gone_on_with() {
        let (shards, now) = watch::channel(owned(&[1, 2]));
        let (kept, is_kept) = mpsc::unbounded_channel();
        let count = std::cell::Cell::new(0);
        let mut following = std::pin::pin!(follow_gains(now, is_kept, || count.set(count.get() + 1)));
        assert!(poll!(following.as_mut()).is_pending());
        shards.send_replace(owned(&[1]));
        kept.send([ShardNo(2)].into()).unwrap();
        shards.send_replace(owned(&[1, 2]));
        assert!(poll!(following.as_mut()).is_pending());
        assert_eq!(count.get(), 2);
        drop(shards);
        following.await;
    }

    #[tokio::test(start_paused = true)]
    async fn waits_of_gained_runs_are_measured_again_after_a_failure() {
        let (gains, tries, measured) = (Notify::new(), Cell::new(0), Cell::new(0));
        let measure = || {
            tries.set(tries.get() + 1);
            let is_away = tries.get() % 3 != 0;
            let what = "the database is away".to_owned();
            std::future::ready(if is_away { Err(StoreError::Unavailable { what }) } else { Ok(()) })
        };
        let mut measuring =
            std::pin::pin!(measure_waits(&gains, measure, || measured.set(measured.get() + 1)));
        for gained in 1..=2 {
            gains.notify_one();
            let two_waits = MEASURE_AGAIN_WAIT * 2 + MEASURE_AGAIN_WAIT / 2;
            assert!(tokio::time::timeout(two_waits, measuring.as_mut()).await.is_err(), "it goes on");
            assert_eq!((tries.get(), measured.get()), (3 * gained, gained));
        }
    }
}
