//! The hub's reports to the engines that own the runs: to the own one, or over the link of another replica.

use std::sync::{Arc, Weak};
use std::time::Duration;

use agentloop_core::host::CallUpdate;
use agentloop_core::host::frame::{CallInHand, CallRef, Disposition};
use agentloop_core::id::{Attempt, CallId, HostId, RunId, RuntimeId, TenantId};
use agentloop_core::text::json::encoded_len;
use async_trait::async_trait;
use tokio::time::{Instant, timeout_at};

use super::frame::{EngineReply, RequestNo, ToOwner};
use super::routes::NoLink;
use super::{ClusterTools, RunOwner};
use crate::tool::{CallSink, ReportedResult, SinkUnavailable, Verdict};

/// Time for which a result waits for an owner that can be reached and records it. Then a caller of `CompleteCall` is told so; a
/// result from a host's stream is tried again. The verdict of an owner with a link has no such bound: its store may take long
/// to write, and the link of an owner that is dead or frozen breaks.
const OWNER_WAIT: Duration = Duration::from_secs(20);
/// Time between two looks for an owner in that time.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Time for a request about a host that connects. The host waits for its welcome.
const REQUEST_WAIT: Duration = Duration::from_secs(3);

/// Receives what the own hosts report, and passes it on.
pub(super) struct RoutedSink(pub(super) Weak<ClusterTools>);

#[async_trait]
impl CallSink for RoutedSink {
    /// Keeps what the owner of the run must hear until it has heard it.
    async fn report_update(&self, tenant: &TenantId, call: &CallId, update: CallUpdate) -> bool {
        if let Some(cluster) = self.0.upgrade() {
            cluster.route_update(tenant, call, update).await;
        }
        true
    }

    async fn finished(
        &self,
        tenant: &TenantId,
        call: &CallId,
        result: ReportedResult,
    ) -> Result<Verdict, SinkUnavailable> {
        let cluster = self.0.upgrade().ok_or(SinkUnavailable)?;
        let attempt = result.attempt;
        let verdict = cluster.route_result(tenant, call, result).await?;
        // The result may be a late one, and the call at a later attempt.
        cluster.pending_updates.forget_up_to(tenant, call, attempt);
        Ok(verdict)
    }

    /// A replica that is not the hub any more sends its hosts away.
    fn keeps_results(&self) -> bool {
        self.0.upgrade().is_some_and(|cluster| cluster.takes_links())
    }

    fn has_owner(&self, tenant: &TenantId, run: &RunId) -> bool {
        self.0.upgrade().is_some_and(|cluster| cluster.known_owner(tenant, run).is_some())
    }

    async fn uses_runtime(
        &self,
        tenant: &TenantId,
        runtime: &RuntimeId,
        host: &HostId,
    ) -> Result<bool, SinkUnavailable> {
        self.0.upgrade().ok_or(SinkUnavailable)?.uses_runtime(tenant, runtime, host).await
    }

    async fn dispositions(
        &self,
        tenant: &TenantId,
        run: &RunId,
        calls: &[CallInHand],
    ) -> Result<Vec<Disposition>, SinkUnavailable> {
        self.0.upgrade().ok_or(SinkUnavailable)?.dispositions(tenant, run, calls).await
    }
}

impl ClusterTools {
    pub(super) fn engine(&self) -> Result<Arc<dyn CallSink>, SinkUnavailable> {
        self.engine.get().cloned().ok_or(SinkUnavailable)
    }

    /// True if the run uses this runtime, as its owner says, or its journal.
    pub(super) async fn uses_runtime(
        &self,
        tenant: &TenantId,
        runtime: &RuntimeId,
        host: &HostId,
    ) -> Result<bool, SinkUnavailable> {
        let request = |no| ToOwner::UsesRuntime {
            no,
            tenant: tenant.clone(),
            runtime: runtime.clone(),
            host: host.clone(),
        };
        match self.request_from_owner(tenant, &runtime.run, request).await {
            Some(EngineReply::Used(used)) => Ok(used),
            _ => self.engine()?.uses_runtime(tenant, runtime, host).await,
        }
    }

    /// The orders to hosts about these calls of a run, as its owner says, or its journal.
    pub(super) async fn dispositions(
        &self,
        tenant: &TenantId,
        run: &RunId,
        calls: &[CallInHand],
    ) -> Result<Vec<Disposition>, SinkUnavailable> {
        let request = |no| ToOwner::Dispositions {
            no,
            tenant: tenant.clone(),
            run: run.clone(),
            calls: calls.to_vec(),
        };
        match self.request_from_owner(tenant, run, request).await {
            Some(EngineReply::Dispositions(said)) if said.len() == calls.len() => Ok(said),
            _ => self.engine()?.dispositions(tenant, run, calls).await,
        }
    }

    /// The owner of a run: where its calls came from, or else where it is looked up.
    async fn owner(&self, tenant: &TenantId, run: &RunId) -> RunOwner {
        match self.known_owner(tenant, run) {
            Some(owner) => owner,
            None => self.owners.owner_of(tenant, run).await,
        }
    }

    /// The owner of a run whose calls are known here.
    fn known_owner(&self, tenant: &TenantId, run: &RunId) -> Option<RunOwner> {
        if self.lock().table.has_run(tenant, run) {
            return Some(RunOwner::Here);
        }
        self.routes.of_run(tenant, run).map(RunOwner::Peer)
    }

    async fn route_update(&self, tenant: &TenantId, call: &CallId, update: CallUpdate) {
        self.pending_updates.keep(tenant, call, &update);
        let is_passing = matches!(update, CallUpdate::Output { .. } | CallUpdate::Progress { .. });
        if is_passing && self.known_owner(tenant, &call.run).is_none() {
            // No task of the run could show it, and a look-up in the database is slow.
            return;
        }
        match self.owner(tenant, &call.run).await {
            RunOwner::Here => {
                let link = self.lock().link;
                // The engine refuses what no run waits for.
                let _noted = self.lock().table.note(tenant, call, &update, link);
                let ended = ended_attempt(&update);
                let Ok(engine) = self.engine() else { return };
                let is_told = engine.report_update(tenant, call, update).await;
                if is_told
                    && let Some(attempt) = ended
                    // A run that has left this replica has dropped the update, and the next owner needs it.
                    && self.owners.owner_of(tenant, &call.run).await == RunOwner::Here
                {
                    self.pending_updates.forget_end(tenant, call, attempt);
                }
            }
            RunOwner::Peer(peer) => {
                let (tenant, call) = (tenant.clone(), call.clone());
                let frame = ToOwner::CallUpdate { tenant, call, update };
                if is_passing {
                    self.routes.send_unless_busy(peer, &frame);
                } else {
                    self.routes.send(peer, &frame);
                }
            }
            // The next owner of the run requests its calls.
            RunOwner::Nobody => {}
        }
    }

    /// Looks for an owner that takes a result until [`OWNER_WAIT`] is over. The owner may die meanwhile, and another takes its
    /// place.
    async fn route_result(
        &self,
        tenant: &TenantId,
        call: &CallId,
        result: ReportedResult,
    ) -> Result<Verdict, SinkUnavailable> {
        let until = Instant::now() + OWNER_WAIT;
        let bytes = encoded_len(&result);
        let mut openings = self.routes.openings();
        let mut owner = self.owner(tenant, &call.run).await;
        loop {
            openings.mark_unchanged();
            match owner {
                RunOwner::Here => {
                    let verdict = self.record_here(tenant, call, result.clone()).await;
                    if verdict.is_ok() {
                        return verdict;
                    }
                    // The run may have moved.
                    owner = self.owners.owner_of(tenant, &call.run).await;
                    if owner == RunOwner::Here || Instant::now() >= until {
                        return verdict;
                    }
                    continue;
                }
                RunOwner::Peer(peer) => {
                    let (of, id, result) = (tenant.clone(), call.clone(), result.clone());
                    let request = |no| ToOwner::Finished { no, tenant: of, call: id, result };
                    match self.routes.request_in_turn(peer, tenant, bytes, request).await {
                        Ok(EngineReply::Verdict(verdict)) => return Ok(verdict),
                        Ok(_unavailable) => {
                            // The run may have moved. If it has not, its owner may be about to stop.
                            owner = self.owners.owner_of(tenant, &call.run).await;
                            if owner != RunOwner::Peer(peer) && Instant::now() < until {
                                continue;
                            }
                        }
                        Err(NoLink) => {}
                    }
                }
                RunOwner::Nobody => {}
            }
            let now = Instant::now();
            if now >= until || !self.takes_links() {
                return Err(SinkUnavailable);
            }
            let _late = timeout_at(until.min(now + LOOK_EVERY), openings.changed()).await;
            owner = self.owner(tenant, &call.run).await;
        }
    }

    /// Has the own engine record a result.
    pub(super) async fn record_here(
        &self,
        tenant: &TenantId,
        call: &CallId,
        result: ReportedResult,
    ) -> Result<Verdict, SinkUnavailable> {
        let ended = CallRef { call: call.clone(), attempt: result.attempt };
        let verdict = self.engine()?.finished(tenant, call, result).await?;
        if matches!(verdict, Verdict::Recorded | Verdict::Duplicate) {
            self.lock().table.over(tenant, &ended);
        }
        Ok(verdict)
    }

    /// Sends a request to the owner of a run, if it is another replica that can be reached. If not, the own engine reads the
    /// run's journal: all replicas read the same database.
    async fn request_from_owner(
        &self,
        tenant: &TenantId,
        run: &RunId,
        request: impl FnOnce(RequestNo) -> ToOwner,
    ) -> Option<EngineReply> {
        let RunOwner::Peer(peer) = self.owner(tenant, run).await else { return None };
        self.routes.request_briefly(peer, request, REQUEST_WAIT).await
    }
}

/// The attempt whose end this update tells, if it must not be lost.
pub(super) fn ended_attempt(update: &CallUpdate) -> Option<Attempt> {
    match update {
        CallUpdate::Lost { attempt, .. } | CallUpdate::Stopped { attempt, .. } => Some(*attempt),
        _ => None,
    }
}
