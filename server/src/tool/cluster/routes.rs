//! The links of the other replicas to the hub, and the runs whose calls came over them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agentloop_core::id::{RunId, TenantId};
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::time::{Instant, timeout_at};

use super::frame::{Reply, ToOwner};
use super::queue::LinkSender;

/// Results on their way to one owner. The others wait here, so an owner that is slow does not fill its queue.
const RESULTS_AT_ONCE_MAX: usize = 64;

/// The links by the number of the replica.
#[derive(Debug)]
pub(super) struct Routes {
    inner: Mutex<Inner>,
    /// Changes when a link is opened.
    opened: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Inner {
    links: BTreeMap<i64, OwnerLink>,
    runs: BTreeMap<(TenantId, RunId), i64>,
    last_link: u64,
    questions: BTreeMap<u64, OpenQuestion>,
    last_question: u64,
}

#[derive(Debug, Clone)]
struct OwnerLink {
    no: u64,
    sender: LinkSender,
    results: Arc<Semaphore>,
}

#[derive(Debug)]
struct OpenQuestion {
    link: u64,
    reply: oneshot::Sender<Reply>,
}

/// A question has no reply: there is no link, it broke, or time is up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NoReply;

impl Default for Routes {
    fn default() -> Self {
        Self { inner: Mutex::default(), opened: watch::Sender::new(0) }
    }
}

impl Routes {
    /// Enters the link of a replica. An earlier one of the same replica ends. Returns the number of the link, and the runs of the
    /// earlier one.
    pub(super) fn open(&self, peer: i64, sender: LinkSender) -> (u64, Vec<(TenantId, RunId)>) {
        let mut inner = self.lock();
        let before = inner.links.get(&peer).cloned();
        let runs = before.map(|before| {
            before.sender.end();
            inner.close(peer, before.no)
        });
        inner.last_link += 1;
        let no = inner.last_link;
        let results = Arc::new(Semaphore::new(RESULTS_AT_ONCE_MAX));
        inner.links.insert(peer, OwnerLink { no, sender, results });
        (no, runs.unwrap_or_default())
    }

    /// Says that the replica has asked for its open calls: results may be sent.
    pub(super) fn opened(&self) {
        self.opened.send_modify(|count| *count += 1);
    }

    /// Follows the opening of links.
    pub(super) fn openings(&self) -> watch::Receiver<u64> {
        self.opened.subscribe()
    }

    /// Removes a link that has ended. Returns the runs whose calls came over it. Another link of the replica is left alone.
    pub(super) fn close(&self, peer: i64, no: u64) -> Vec<(TenantId, RunId)> {
        self.lock().close(peer, no)
    }

    /// Ends all links.
    pub(super) fn end_all(&self) {
        let mut inner = self.lock();
        for link in std::mem::take(&mut inner.links).into_values() {
            link.sender.end();
        }
        inner.runs.clear();
        inner.questions.clear();
    }

    /// The replica whose calls of this run came last.
    pub(super) fn of_run(&self, tenant: &TenantId, run: &RunId) -> Option<i64> {
        self.lock().runs.get(&(tenant.clone(), run.clone())).copied()
    }

    /// Calls of this run come from this replica.
    pub(super) fn route(&self, tenant: &TenantId, run: &RunId, peer: i64) {
        self.lock().runs.insert((tenant.clone(), run.clone()), peer);
    }

    /// This replica has no task of the run any more. Returns false if another replica has.
    pub(super) fn unroute(&self, tenant: &TenantId, run: &RunId, peer: i64) -> bool {
        let mut inner = self.lock();
        let key = (tenant.clone(), run.clone());
        match inner.runs.get(&key) {
            Some(of) if *of != peer => false,
            Some(_) | None => {
                inner.runs.remove(&key);
                true
            }
        }
    }

    /// Sends a frame to a replica. Without a link it is lost.
    pub(super) fn send(&self, peer: i64, frame: &ToOwner, may_drop: bool) {
        let Some(link) = self.lock().links.get(&peer).cloned() else { return };
        if !may_drop {
            link.sender.send(frame);
        } else if !link.sender.send_unless_busy(frame) {
            tracing::debug!(
                replica = peer,
                "output or progress dropped: the replica of its run does not keep up"
            );
        }
    }

    /// Asks a replica for the verdict on a result. Only some results are on their way at a time.
    pub(super) async fn ask_in_turn(
        &self,
        peer: i64,
        question: impl FnOnce(u64) -> ToOwner,
        until: Instant,
    ) -> Result<Reply, NoReply> {
        let results = self.lock().links.get(&peer).map(|link| link.results.clone()).ok_or(NoReply)?;
        let turn = timeout_at(until, results.acquire_owned()).await;
        let _turn = turn.map_err(|_late| NoReply)?.map_err(|_closed| NoReply)?;
        self.ask(peer, question, until).await
    }

    /// Asks a replica, and waits for its reply.
    pub(super) async fn ask(
        &self,
        peer: i64,
        question: impl FnOnce(u64) -> ToOwner,
        until: Instant,
    ) -> Result<Reply, NoReply> {
        let (reply, replied) = oneshot::channel();
        let _forget = {
            let mut inner = self.lock();
            let link = inner.links.get(&peer).cloned().ok_or(NoReply)?;
            inner.last_question += 1;
            let no = inner.last_question;
            inner.questions.insert(no, OpenQuestion { link: link.no, reply });
            // Sent under the lock, so that no later frame overtakes it.
            link.sender.send(&question(no));
            ForgetOnDrop { routes: self, no }
        };
        timeout_at(until, replied).await.map_err(|_late| NoReply)?.map_err(|_broken| NoReply)
    }

    /// A replica has replied. Its reply to a question that is over is dropped.
    pub(super) fn reply(&self, link: u64, no: u64, reply: Reply) {
        let mut inner = self.lock();
        if inner.questions.get(&no).is_some_and(|question| question.link == link)
            && let Some(question) = inner.questions.remove(&no)
        {
            let _gone = question.reply.send(reply);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn close(&mut self, peer: i64, no: u64) -> Vec<(TenantId, RunId)> {
        // Whoever waits for a reply over this link learns that it broke.
        self.questions.retain(|_, question| question.link != no);
        if self.links.get(&peer).is_none_or(|link| link.no != no) {
            return Vec::new();
        }
        self.links.remove(&peer);
        let of_peer = self.runs.extract_if(.., |_, of| *of == peer);
        of_peer.map(|(key, _)| key).collect()
    }
}

/// Forgets a question when nobody waits for its reply any more.
struct ForgetOnDrop<'a> {
    routes: &'a Routes,
    no: u64,
}

impl Drop for ForgetOnDrop<'_> {
    fn drop(&mut self) {
        self.routes.lock().questions.remove(&self.no);
    }
}
