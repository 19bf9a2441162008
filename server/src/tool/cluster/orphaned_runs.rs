//! Runs whose owner has lost its link. Commands that it had not sent to hosts are lost with it. Hosts still work on calls of
//! these runs, and keep runtimes for them. After a while the hub finds out what hosts are to do with these, as it does for
//! a host that comes back.

use std::collections::BTreeMap;
use std::time::Duration;

use agentloop_core::host::frame::Disposition;
use agentloop_core::id::{RunId, RunKey, TenantId};
use agentloop_core::outcome::CancelCause;
use parking_lot::Mutex;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::ClusterTools;
use crate::tool::{SinkUnavailable, Tools as _};

/// Time in which the owner comes back, or the next one requests the calls of the run.
const REQUEST_AFTER: Duration = Duration::from_secs(10);
/// Time between two looks for such runs.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// The runs, and since when.
#[derive(Debug, Default)]
pub(super) struct OrphanedRuns(Mutex<BTreeMap<RunKey, Instant>>);

impl OrphanedRuns {
    /// Adds runs whose owner's link has ended.
    pub(super) fn add(&self, runs: impl IntoIterator<Item = RunKey>) {
        let now = Instant::now();
        self.0.lock().extend(runs.into_iter().map(|run| (run, now)));
    }

    /// Forgets all of them: another replica has the hosts.
    pub(super) fn clear(&self) {
        self.0.lock().clear();
    }

    /// Takes those whose owner has been gone for long enough.
    fn take_due(&self) -> Vec<RunKey> {
        let due = |_: &RunKey, since: &mut Instant| since.elapsed() >= REQUEST_AFTER;
        self.0.lock().extract_if(.., due).map(|(run, _)| run).collect()
    }
}

impl ClusterTools {
    /// Has hosts stop the calls that nobody waits for, and close the runtimes that nobody uses, until it is dropped.
    pub(super) async fn watch_orphaned(&self) {
        let mut checks = interval(CHECK_EVERY);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            checks.tick().await;
            for key in self.orphaned.take_due() {
                let stopped = self.stop_unwanted(&key.tenant, &key.run).await;
                let closed = self.close_unused(&key.tenant, &key.run).await;
                // An owner may leave thousands of runs, and this task has more to do.
                tokio::task::yield_now().await;
                if let Err(SinkUnavailable) = stopped.and(closed) {
                    self.orphaned.add([key]);
                }
            }
        }
    }

    async fn stop_unwanted(&self, tenant: &TenantId, run: &RunId) -> Result<(), SinkUnavailable> {
        let calls = self.own.in_hand(tenant, run);
        if calls.is_empty() {
            return Ok(());
        }
        let said = self.dispositions(tenant, run, &calls).await?;
        for (claim, disposition) in calls.into_iter().zip(said) {
            match disposition {
                Disposition::Continue => {}
                Disposition::Stop | Disposition::AlreadyRecorded => {
                    let reason = "the run does not wait for this call any more";
                    self.own.cancel(tenant, &claim.call, CancelCause::Settled, reason);
                }
            }
        }
        Ok(())
    }

    async fn close_unused(&self, tenant: &TenantId, run: &RunId) -> Result<(), SinkUnavailable> {
        for (host, runtime) in self.own.open_runtimes(tenant, run) {
            if !self.uses_runtime(tenant, &runtime, &host).await? {
                self.own.close_runtime(tenant, &host, &runtime);
            }
        }
        Ok(())
    }
}
