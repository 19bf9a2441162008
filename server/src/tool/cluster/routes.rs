//! The links of the other replicas to the hub, and the runs whose calls came over them.

use std::collections::BTreeMap;
use std::time::Duration;

use agentloop_core::cluster::shard::OwnerNo;
use agentloop_core::id::{Epoch, RunId, RunKey, TenantId};
use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::frame::{EngineReply, RequestNo, ToOwner};
use super::queue::LinkSender;
use crate::memory::MemoryLedger;
use crate::tool::host::state::LinkNo;

/// Bytes of results on their way to one owner. The others wait here, so an owner that is slow does not fill its queue. Tenants have
/// turns and leave each other a part: a result counts until its run has dealt with it, hooks included.
const RESULT_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Bytes that a result counts for beside its text, which bounds the number of small ones.
const RESULT_BYTES: usize = 4 * 1024;

/// The links by the number of the replica.
#[derive(Debug)]
pub(super) struct Routes {
    inner: Mutex<Inner>,
    /// Changes when a link is opened.
    opened: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Inner {
    links: BTreeMap<OwnerNo, OwnerLink>,
    runs: BTreeMap<RunKey, Route>,
    last_link: LinkNo,
    pending: BTreeMap<RequestNo, PendingReply>,
    last_request: RequestNo,
    /// When replicas last left a request without a reply in time.
    late: BTreeMap<OwnerNo, Instant>,
}

/// The replica whose task has a run, by the latest claim of the run that is known here.
#[derive(Debug, Clone, Copy)]
struct Route {
    peer: OwnerNo,
    epoch: Epoch,
}

#[derive(Debug, Clone)]
struct OwnerLink {
    no: LinkNo,
    sender: LinkSender,
    /// The results on their way.
    results: MemoryLedger,
    /// Cancelled when the link has ended: results that wait for their turn are for no owner any more.
    ended: CancellationToken,
}

#[derive(Debug)]
struct PendingReply {
    link: LinkNo,
    reply: oneshot::Sender<EngineReply>,
}

/// A request has no reply: there is no link, or it broke.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NoLink;

impl Default for Routes {
    fn default() -> Self {
        Self { inner: Mutex::default(), opened: watch::Sender::new(0) }
    }
}

impl Routes {
    /// Enters the link of a replica. An earlier one of the same replica ends. Returns the number of the link, and the runs of the
    /// earlier one.
    pub(super) fn open(&self, peer: OwnerNo, sender: LinkSender) -> (LinkNo, Vec<RunKey>) {
        let mut inner = self.inner.lock();
        let before = inner.links.get(&peer).cloned();
        let runs = before.map(|before| {
            before.sender.end();
            inner.close(peer, before.no)
        });
        inner.last_link.0 += 1;
        let no = inner.last_link;
        let (results, ended) = (MemoryLedger::divided(RESULT_BYTES_MAX), CancellationToken::new());
        inner.links.insert(peer, OwnerLink { no, sender, results, ended });
        (no, runs.unwrap_or_default())
    }

    /// Says that the replica has requested its open calls: results may be sent.
    pub(super) fn opened(&self) {
        self.opened.send_modify(|count| *count += 1);
    }

    /// Follows the opening of links.
    pub(super) fn openings(&self) -> watch::Receiver<u64> {
        self.opened.subscribe()
    }

    /// Removes a link that has ended. Returns the runs whose calls came over it. Another link of the replica is left alone.
    pub(super) fn close(&self, peer: OwnerNo, no: LinkNo) -> Vec<RunKey> {
        self.inner.lock().close(peer, no)
    }

    /// True while this link is the present one of the replica.
    pub(super) fn is_open(&self, peer: OwnerNo, no: LinkNo) -> bool {
        self.inner.lock().links.get(&peer).is_some_and(|link| link.no == no)
    }

    /// Ends the links of all owners, because this replica is not the hub any more.
    pub(super) fn end_all(&self) {
        let mut inner = self.inner.lock();
        for link in std::mem::take(&mut inner.links).into_values() {
            link.ended.cancel();
            link.sender.end();
        }
        inner.runs.clear();
        inner.pending.clear();
    }

    /// The replica whose calls of this run came last.
    pub(super) fn of_run(&self, tenant: &TenantId, run: &RunId) -> Option<OwnerNo> {
        self.inner.lock().runs.get(&RunKey::new(tenant.clone(), run.clone())).map(|route| route.peer)
    }

    /// Notes that this replica requests the calls of the run. Returns false, and notes nothing, if a later claim of the run is
    /// known.
    pub(super) fn claim_for_peer(&self, tenant: &TenantId, run: &RunId, peer: OwnerNo, epoch: Epoch) -> bool {
        let mut inner = self.inner.lock();
        let is_latest = inner.forget_up_to(tenant, run, epoch);
        if is_latest {
            inner.runs.insert(RunKey::new(tenant.clone(), run.clone()), Route { peer, epoch });
        }
        is_latest
    }

    /// The same for the hub itself, which has no route.
    pub(super) fn claim_here(&self, tenant: &TenantId, run: &RunId, epoch: Epoch) -> bool {
        self.inner.lock().forget_up_to(tenant, run, epoch)
    }

    /// This replica has no task of the run any more. Returns false if another replica has.
    pub(super) fn unroute(&self, tenant: &TenantId, run: &RunId, peer: OwnerNo) -> bool {
        let mut inner = self.inner.lock();
        let key = RunKey::new(tenant.clone(), run.clone());
        match inner.runs.get(&key) {
            Some(route) if route.peer != peer => false,
            Some(_) | None => {
                inner.runs.remove(&key);
                true
            }
        }
    }

    /// Sends a frame to a replica. Without a link it is lost.
    pub(super) fn send(&self, peer: OwnerNo, frame: &ToOwner) {
        let link = self.inner.lock().links.get(&peer).cloned();
        if let Some(link) = link {
            link.sender.send(frame);
        }
    }

    /// The same for output and progress, which are dropped if the replica does not keep up.
    pub(super) fn send_unless_busy(&self, peer: OwnerNo, frame: &ToOwner) {
        let Some(link) = self.inner.lock().links.get(&peer).cloned() else { return };
        if !link.sender.send_unless_busy(frame) {
            tracing::debug!(
                replica = peer.0,
                "output or progress dropped: the replica of its run does not keep up"
            );
        }
    }

    /// Requests the verdict on a result of this size from a replica, and waits for it as long as the link lives. Only some
    /// results are on their way at a time, of all tenants in turn.
    pub(super) async fn request_in_turn(
        &self,
        peer: OwnerNo,
        tenant: &TenantId,
        bytes: usize,
        request: impl FnOnce(RequestNo) -> ToOwner,
    ) -> Result<EngineReply, NoLink> {
        let link = self.inner.lock().links.get(&peer).cloned().ok_or(NoLink)?;
        let bytes = RESULT_BYTES.saturating_add(bytes).min(RESULT_BYTES_MAX);
        let turn = link.results.reserve(tenant, bytes);
        let _turn = link.ended.run_until_cancelled(turn).await.ok_or(NoLink)?;
        self.request(peer, request).await
    }

    /// Sends a replica a request, and waits for its reply, at most so long. One that was late is not waited for again in that
    /// time: a host with calls of many runs would wait for each. `None` without a reply.
    pub(super) async fn request_briefly(
        &self,
        peer: OwnerNo,
        request: impl FnOnce(RequestNo) -> ToOwner,
        wait: Duration,
    ) -> Option<EngineReply> {
        let is_late = |late: Option<&Instant>| late.is_some_and(|late| late.elapsed() < wait);
        if is_late(self.inner.lock().late.get(&peer)) {
            return None;
        }
        let replied = timeout(wait, self.request(peer, request)).await;
        match replied {
            Err(_) => drop(self.inner.lock().late.insert(peer, Instant::now())),
            Ok(_) => drop(self.inner.lock().late.remove(&peer)),
        }
        replied.ok()?.ok()
    }

    async fn request(
        &self,
        peer: OwnerNo,
        request: impl FnOnce(RequestNo) -> ToOwner,
    ) -> Result<EngineReply, NoLink> {
        let (reply, replied) = oneshot::channel();
        let _forget = {
            let mut inner = self.inner.lock();
            let link = inner.links.get(&peer).cloned().ok_or(NoLink)?;
            inner.last_request.0 += 1;
            let no = inner.last_request;
            inner.pending.insert(no, PendingReply { link: link.no, reply });
            // Sent under the lock, so that no later frame overtakes it.
            link.sender.send(&request(no));
            ForgetOnDrop { routes: self, no }
        };
        replied.await.map_err(|_broken| NoLink)
    }

    /// A replica has replied. Its reply to a request that is over is dropped.
    pub(super) fn reply(&self, link: LinkNo, no: RequestNo, reply: EngineReply) {
        let mut inner = self.inner.lock();
        if inner.pending.get(&no).is_some_and(|pending| pending.link == link)
            && let Some(pending) = inner.pending.remove(&no)
        {
            let _gone = pending.reply.send(reply);
        }
    }
}

impl Inner {
    /// Removes the route of a run unless it comes from a claim after this one. Returns false if it stays.
    fn forget_up_to(&mut self, tenant: &TenantId, run: &RunId, epoch: Epoch) -> bool {
        let key = RunKey::new(tenant.clone(), run.clone());
        if self.runs.get(&key).is_some_and(|route| route.epoch > epoch) {
            return false;
        }
        self.runs.remove(&key);
        true
    }

    fn close(&mut self, peer: OwnerNo, no: LinkNo) -> Vec<RunKey> {
        // Requests that wait for a reply over this link learn that it broke.
        self.pending.retain(|_, pending| pending.link != no);
        if self.links.get(&peer).is_none_or(|link| link.no != no) {
            return Vec::new();
        }
        if let Some(link) = self.links.remove(&peer) {
            link.ended.cancel();
        }
        self.late.remove(&peer);
        let of_peer = self.runs.extract_if(.., |_, route| route.peer == peer);
        of_peer.map(|(key, _)| key).collect()
    }
}

/// Forgets a request when nobody waits for its reply any more.
struct ForgetOnDrop<'a> {
    routes: &'a Routes,
    no: RequestNo,
}

impl Drop for ForgetOnDrop<'_> {
    fn drop(&mut self) {
        self.routes.inner.lock().pending.remove(&self.no);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;

    use agentloop_core::id::TenantId;
    use futures_util::future::join_all;
    use futures_util::poll;

    use super::super::queue::channel;
    use super::*;

    const PEER: OwnerNo = OwnerNo(2);

    /// Requests the verdict on a result of the tenant. The frame says nothing of it.
    fn request<'a>(
        routes: &'a Routes,
        tenant: &'a TenantId,
        bytes: usize,
    ) -> Pin<Box<dyn Future<Output = Result<EngineReply, NoLink>> + 'a>> {
        let run = RunId::parse("r").unwrap();
        let (of, calls) = (tenant.clone(), Vec::new());
        let frame = |no| ToOwner::Dispositions { no, tenant: of, run, calls };
        Box::pin(routes.request_in_turn(PEER, tenant, bytes, frame))
    }

    fn sent(routes: &Routes) -> usize {
        routes.inner.lock().pending.len()
    }

    /// The owner replies to none of them.
    #[tokio::test]
    async fn results_of_one_tenant_leave_a_part_to_those_of_others() {
        let [noisy, quiet] = ["noisy", "quiet"].map(|tenant| TenantId::parse(tenant).unwrap());
        for bytes in [0, RESULT_BYTES_MAX / 64, RESULT_BYTES_MAX] {
            let (routes, (sender, _frames)) = (Routes::default(), channel());
            let (link, _) = routes.open(PEER, sender);
            let count = 2 * RESULT_BYTES_MAX / (RESULT_BYTES + bytes) + 2;
            let mut waiting: Vec<_> = (0..count).map(|_| request(&routes, &noisy, bytes)).collect();
            for request in &mut waiting {
                assert!(poll!(request.as_mut()).is_pending());
            }
            let of_noisy = sent(&routes);
            assert!(of_noisy > 0 && of_noisy < count, "{of_noisy} of {count} results of {bytes} bytes");
            let mut small = request(&routes, &quiet, 100);
            assert!(poll!(small.as_mut()).is_pending());
            assert_eq!(sent(&routes) - of_noisy, usize::from(bytes < RESULT_BYTES_MAX));
            waiting.push(small);
            routes.close(PEER, link);
            assert!(join_all(waiting).await.iter().all(Result::is_err), "the link has ended");
        }
    }
}
