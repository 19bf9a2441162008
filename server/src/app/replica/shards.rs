//! The tasks of a replica that follow which shards it has, and those that end it when it has lost them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use agentloop_core::cluster::shard::ShardNo;

use crate::app::replica::VERDICT_WAIT;
use crate::app::services::HostShutdown;
use crate::engine::Engine;
use crate::lifecycle::Tasks;
use crate::store::postgres::{PostgresStore, Replica};

/// Time in which the ends of the streams of a fenced replica leave.
const FENCED_WAIT: Duration = Duration::from_millis(200);
/// Longest wait for the runs of shards that are given away. Nobody else goes on with them meanwhile.
const LEAVE_WAIT: Duration = Duration::from_secs(1);
/// The same for runs that were starting at that time. They write nothing.
const LEAVE_AGAIN_WAIT: Duration = Duration::from_millis(100);
/// Longest wait for the writes under way before sessions are given away. They would be nobody's until those have ended.
const WRITES_WAIT: Duration = Duration::from_millis(500);

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
        drop(tasks.spawn("gained shards", self.clone().take_gains()));
        drop(tasks.spawn("shards to give away", self.clone().give_away()));
        drop(tasks.spawn("fence", self.clone().end_when_fenced()));
        drop(tasks.spawn("store", self.end_when_the_store_fails()));
    }

    /// Goes on with the work of shards that this replica gains, until it stops.
    async fn take_gains(self) {
        let Self { replica, store, engine, tasks, host_shutdown: _ } = self;
        let (mut shards, mut known) = (replica.shards(), BTreeMap::new());
        let following = async {
            loop {
                let owned = shards.borrow_and_update().owned.clone();
                let is_gained = owned.iter().any(|(shard, term)| known.get(shard) != Some(term));
                known = owned;
                if is_gained {
                    // In tasks of their own: runs come up only while there is memory, and the look at all parked runs takes its
                    // time. Neither waits for the other, nor the next gain for them.
                    let gained = engine.clone();
                    drop(tasks.spawn("gained runs", async move { gained.continue_gained_shards().await }));
                    let (store, gained) = (store.clone(), engine.clone());
                    drop(tasks.spawn("gained waits", async move {
                        match store.wake_runs_of_the_future().await {
                            Ok(()) => gained.look_at_parked_runs(),
                            Err(error) => {
                                tracing::warn!(%error, "waits of runs were not measured anew; those from a clock that was ahead may be longer");
                            }
                        }
                    }));
                }
                if shards.changed().await.is_err() {
                    return;
                }
            }
        };
        let _stopped = tasks.soft().run_until_cancelled(Box::pin(following)).await;
        replica.stopping();
    }

    /// Ends the work of shards that this replica gives away, until it stops.
    async fn give_away(self) {
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
                        drop(tasks.spawn("kept shards", self.clone().go_on_with(leaving)));
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
        if !engine.give_away_shards(leaving.clone(), LEAVE_WAIT).await {
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

    /// Goes on with the work of shards that were kept, once the replica has gained them again. Their runs may have stopped.
    async fn go_on_with(self, kept: BTreeSet<ShardNo>) {
        let Self { replica, engine, tasks, .. } = self;
        let mut shards = replica.shards();
        let gained = async {
            shards.wait_for(|now| kept.iter().any(|shard| now.owned.contains_key(shard))).await.is_ok()
        };
        if tasks.soft().run_until_cancelled(gained).await == Some(true) {
            engine.continue_gained_shards().await;
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
