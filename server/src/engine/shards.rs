//! Shards of sessions that this replica has gained, and shards that it gives away. A server alone has all of them.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use agentloop_core::cluster::shard::{ShardNo, shard_of};
use agentloop_core::id::{SessionId, TenantId};
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::engine::Engine;
use crate::engine::error::EngineError;
use crate::store::StoreError;

/// Ids that are made for a new session until one is in a shard of this replica.
const SESSION_TRIES: usize = 4_096;

/// Shards that are given away. Each run that has to stop holds a copy of the sender until it has stopped.
#[derive(Clone)]
pub(in crate::engine) struct GivenAwayShards {
    shards: Arc<BTreeSet<ShardNo>>,
    _stopping: mpsc::Sender<()>,
}

impl GivenAwayShards {
    /// True if the session is in one of the shards.
    pub(in crate::engine) fn has(&self, tenant: &TenantId, session: &SessionId) -> bool {
        self.shards.contains(&shard_of(tenant, session))
    }
}

/// Ends subscriptions in the sessions of shards that are given away.
#[derive(Debug, Default)]
pub(in crate::engine) struct ShardStops(Mutex<HashMap<ShardNo, CancellationToken>>);

impl ShardStops {
    /// Cancelled when the shard of this session is given away, or with `stop`.
    pub(in crate::engine) fn of(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        stop: &CancellationToken,
    ) -> CancellationToken {
        let mut stops = self.0.lock();
        stops.entry(shard_of(tenant, session)).or_insert_with(|| stop.child_token()).clone()
    }

    fn end(&self, shards: &BTreeSet<ShardNo>) {
        let mut stops = self.0.lock();
        for stop in shards.iter().filter_map(|shard| stops.remove(shard)) {
            stop.cancel();
        }
    }
}

impl Engine {
    /// Continues the work of shards that this replica has gained. The work of its other shards goes on.
    pub async fn continue_gained_shards(&self) {
        self.wake_signal().run_parked();
        self.deps().jobs.notify();
        // Boxed: it is large, and each caller would hold it.
        Box::pin(self.clone().recover()).await;
    }

    /// Takes up parked runs whose time has come, after their times in the store have changed.
    pub fn look_at_parked_runs(&self) {
        self.wake_signal().run_parked();
    }

    /// Stops the runs of these shards, each at its next durable point. Returns when all have stopped, or after `wait`: a run that
    /// is slower writes nothing once the store has forgotten the shards. `false`: some were slower.
    ///
    /// The shards may yet be kept. A run of theirs that is starting has its feed already, so feeds and subscribers stay.
    pub async fn stop_shards(&self, shards: BTreeSet<ShardNo>, wait: Duration) -> bool {
        let (stopping, mut stopped) = mpsc::channel(1);
        let given_away = GivenAwayShards { shards: Arc::new(shards), _stopping: stopping };
        let all_stopped = async {
            self.0.live_runs.tell_given_away(given_away).await;
            stopped.recv().await
        };
        tokio::time::timeout(wait, all_stopped).await.is_ok()
    }

    /// Ends the work for the sessions of these shards, once the store has forgotten them. [Stops](Self::stop_shards) the runs that
    /// have come up since they were stopped at first, then tells subscribers to look at the next owner. `false`: some runs
    /// were slower than `wait`.
    ///
    /// A run that comes up later still finds that its session is another replica's.
    pub async fn give_away_shards(&self, shards: BTreeSet<ShardNo>, wait: Duration) -> bool {
        let have_stopped = self.stop_shards(shards.clone(), wait).await;
        self.deps().shard_stops.end(&shards);
        let is_left = |tenant: &TenantId, session: &SessionId| shards.contains(&shard_of(tenant, session));
        self.deps().jobs.stop_where(is_left);
        self.deps().memory.histories.remove_where(is_left);
        self.deps().feeds.remove_where(is_left);
        have_stopped
    }

    /// Cancelled when the shard of this session is given away, and when the server shuts down.
    ///
    /// # Errors
    /// [`StoreError::Elsewhere`]: it is not this replica's.
    pub(in crate::engine) fn follow_shard(
        &self,
        tenant: &TenantId,
        session: &SessionId,
    ) -> Result<CancellationToken, EngineError> {
        // Before the store is read: a shard that is given away in between is not missed.
        let stop = self.deps().shard_stops.of(tenant, session, self.deps().tasks.soft());
        self.check_own(tenant, session)?;
        Ok(stop)
    }

    /// Checks that a session is this replica's.
    ///
    /// # Errors
    /// [`StoreError::Elsewhere`]
    pub(in crate::engine) fn check_own(
        &self,
        tenant: &TenantId,
        session: &SessionId,
    ) -> Result<(), EngineError> {
        if self.store().owns(tenant, session) { Ok(()) } else { Err(StoreError::Elsewhere.into()) }
    }

    /// The error with which a stream ends that [followed a shard](Self::follow_shard) until then.
    pub(in crate::engine) fn end_of_shard(&self) -> EngineError {
        if self.deps().tasks.soft().is_cancelled() {
            EngineError::ShuttingDown
        } else {
            StoreError::Elsewhere.into()
        }
    }

    /// The id of a new session, in a shard of this replica if it has any.
    pub fn new_session_id(&self, tenant: &TenantId) -> SessionId {
        let mut id = self.deps().ids.session();
        for _ in 0..SESSION_TRIES {
            if self.store().owns(tenant, &id) {
                break;
            }
            id = self.deps().ids.session();
        }
        id
    }
}

#[cfg(test)]
mod tests {
    use agentloop_core::id::{RunId, RunKey};
    use agentloop_core::run::input::Input;
    use futures_util::{FutureExt as _, poll};
    use tokio::task::unconstrained;

    use super::*;
    use crate::engine::run::table::{LiveRuns, Lookup, Mail, Mailbox};

    #[tokio::test]
    async fn a_run_whose_mailbox_is_full_keeps_no_other_from_hearing() {
        let (table, mut runs) = (LiveRuns::default(), Vec::new());
        for run in ["r1", "r2", "r3"] {
            let key = RunKey::new(TenantId::local(), RunId::parse(run).unwrap());
            let Lookup::NotLive(permit) = table.find(&key).await else { panic!("it has no task yet") };
            let (mailbox, receiver) = Mailbox::new();
            permit.set_live(mailbox.clone());
            runs.push((permit, mailbox, receiver));
        }
        while unconstrained(runs[1].1.send(Input::Recovered)).now_or_never().is_some() {}
        let (_stopping, _) = mpsc::channel(1);
        let given_away = GivenAwayShards { shards: Arc::default(), _stopping };
        let mut telling = std::pin::pin!(unconstrained(table.tell_given_away(given_away)));
        assert!(poll!(telling.as_mut()).is_pending(), "one has no place for it");
        for place in [0, 2] {
            assert!(matches!(runs[place].2.try_recv(), Ok(Mail::GiveAway(_))));
        }
    }
}
