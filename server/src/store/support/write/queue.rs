//! The writer's queue. Tenants are served in turn: one with a thousand writes delays another's write by one write only.

use std::collections::HashMap;
use std::sync::Arc;

use agentloop_core::id::TenantId;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::op::OwnOp;
use super::request::WriteRequest;
use crate::fair::FairQueue;

/// The writer has ended.
#[derive(Debug)]
pub(in crate::store) struct WriterGone;

/// The tenant of a write; `None` for writes of the server's own.
pub(in crate::store) type Lane = Option<TenantId>;

/// Writes of one tenant in the queue, at most; long ones have as much room of their own. Its callers beyond that wait to enqueue
/// theirs.
const WRITES_PER_TENANT_MAX: usize = 1_024;
/// Tenants whose permits are kept before those of tenants without a write is dropped.
const TENANTS_MAX: usize = 1_024;

/// The sending end. The queue ends when all of them are dropped.
#[derive(Debug)]
pub(in crate::store) struct WriteSender<O: OwnOp> {
    /// Bounded by the permits of each tenant.
    writes: mpsc::UnboundedSender<Queued<O>>,
    permits: Arc<WritePermits>,
}

/// As [`WriteSender`], for those who do not keep the queue open.
#[derive(Debug)]
pub(in crate::store) struct WeakWriteSender<O: OwnOp> {
    writes: mpsc::WeakUnboundedSender<Queued<O>>,
    permits: Arc<WritePermits>,
}

/// The end of the queue that the writer takes from.
#[derive(Debug)]
pub(in crate::store) struct WriteQueue<O: OwnOp> {
    arriving: mpsc::UnboundedReceiver<Queued<O>>,
    waiting: FairQueue<Lane, Queued<O>>,
    /// Long writes that were passed over.
    long: FairQueue<Lane, Queued<O>>,
}

#[derive(Debug)]
struct Queued<O: OwnOp> {
    lane: Lane,
    request: WriteRequest<O>,
    /// Released when the write is taken.
    _permit: OwnedSemaphorePermit,
}

/// The permits of each tenant that has writes. Long ones keep others waiting, and so do not take their permits.
#[derive(Debug, Default)]
struct WritePermits(Mutex<HashMap<PermitKind, Arc<Semaphore>>>);

/// A tenant's long writes, or its others.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct PermitKind {
    lane: Lane,
    is_long: bool,
}

impl WritePermits {
    fn of(&self, kind: PermitKind) -> Arc<Semaphore> {
        let mut permits = self.0.lock();
        if let Some(permit) = permits.get(&kind) {
            return permit.clone();
        }
        if permits.len() >= TENANTS_MAX {
            permits.retain(|_, permit| Arc::strong_count(permit) > 1);
        }
        let permit = Arc::new(Semaphore::new(WRITES_PER_TENANT_MAX));
        permits.insert(kind, permit.clone());
        permit
    }
}

/// An empty queue, and the sender that fills it.
pub(in crate::store) fn write_queue<O: OwnOp>() -> (WriteSender<O>, WriteQueue<O>) {
    let (writes, arriving) = mpsc::unbounded_channel();
    let sender = WriteSender { writes, permits: Arc::default() };
    (sender, WriteQueue { arriving, waiting: FairQueue::default(), long: FairQueue::default() })
}

impl<O: OwnOp> Clone for WriteSender<O> {
    fn clone(&self) -> Self {
        Self { writes: self.writes.clone(), permits: self.permits.clone() }
    }
}

impl<O: OwnOp> WriteSender<O> {
    pub(in crate::store) fn downgrade(&self) -> WeakWriteSender<O> {
        WeakWriteSender { writes: self.writes.downgrade(), permits: self.permits.clone() }
    }

    /// Enqueues a write, as soon as its tenant has a permit for it.
    ///
    /// # Errors
    /// The writer has ended.
    pub(in crate::store) async fn send(&self, request: WriteRequest<O>) -> Result<(), WriterGone> {
        let lane = request.op.tenant().cloned();
        let kind = PermitKind { lane: lane.clone(), is_long: request.op.is_long() };
        let permit = self.permits.of(kind).acquire_owned();
        let permit = tokio::select! { biased;
            permit = permit => permit.map_err(|_| WriterGone)?,
            () = self.writes.closed() => return Err(WriterGone),
        };
        self.writes.send(Queued { lane, request, _permit: permit }).map_err(|_| WriterGone)
    }
}

impl<O: OwnOp> Clone for WeakWriteSender<O> {
    fn clone(&self) -> Self {
        Self { writes: self.writes.clone(), permits: self.permits.clone() }
    }
}

impl<O: OwnOp> WeakWriteSender<O> {
    /// `None` if the queue has ended.
    pub(in crate::store) fn upgrade(&self) -> Option<WriteSender<O>> {
        Some(WriteSender { writes: self.writes.upgrade()?, permits: self.permits.clone() })
    }
}

impl<O: OwnOp> WriteQueue<O> {
    /// Waits until there is a write. `false`: the queue has ended, after a cancelled `closing` with its last write.
    pub(in crate::store) async fn wait(&mut self, closing: &CancellationToken) -> bool {
        if self.waiting.is_empty() {
            let first = tokio::select! { biased;
                first = self.arriving.recv() => first,
                () = closing.cancelled() => {
                    self.arriving.close();
                    self.arriving.recv().await
                }
            };
            match first {
                Some(first) => self.waiting.push(first.lane.clone(), first),
                None => return false,
            }
        }
        true
    }

    /// Sorts what has arrived into the tenants' lanes.
    fn take_in(&mut self) {
        while let Ok(arrived) = self.arriving.try_recv() {
            self.waiting.push(arrived.lane.clone(), arrived);
        }
    }

    /// Waits until so many writes are there, or until this time.
    pub(in crate::store) async fn wait_for(&mut self, writes: usize, until: Instant) {
        self.take_in();
        while self.waiting.len() < writes {
            let arriving = tokio::time::timeout_at(until, self.arriving.recv());
            let Ok(Some(arrived)) = arriving.await else { return };
            self.waiting.push(arrived.lane.clone(), arrived);
        }
    }

    /// Takes the next writes: tenants in turn, until there are `max` of them, or so many bytes.
    pub(in crate::store) fn take(&mut self, max: usize, bytes_max: usize, taken: &mut Vec<WriteRequest<O>>) {
        self.take_in();
        let mut bytes = 0;
        while taken.len() < max
            && bytes < bytes_max
            && let Some(Queued { request, .. }) = self.waiting.pop()
        {
            bytes += request.op.bytes();
            taken.push(request);
        }
    }

    /// As [`Self::take`], without the long writes: they wait for [`Self::take_long`].
    pub(in crate::store) fn take_short(
        &mut self,
        max: usize,
        bytes_max: usize,
        taken: &mut Vec<WriteRequest<O>>,
    ) {
        self.take_in();
        let mut bytes = 0;
        while taken.len() < max
            && bytes < bytes_max
            && let Some(queued) = self.waiting.pop()
        {
            if queued.request.op.is_long() {
                self.long.push(queued.lane.clone(), queued);
            } else {
                bytes += queued.request.op.bytes();
                taken.push(queued.request);
            }
        }
    }

    /// True if a long write of an accepted lane was passed over.
    pub(in crate::store) fn has_long(&self, accepts: impl Fn(&Lane) -> bool) -> bool {
        self.long.firsts().any(|queued| accepts(&queued.lane))
    }

    /// Takes the next long write of an accepted lane, tenants in turn.
    pub(in crate::store) fn take_long(&mut self, accepts: impl Fn(&Lane) -> bool) -> Option<WriteRequest<O>> {
        self.long.pop_if(|queued| accepts(&queued.lane)).map(|queued| queued.request)
    }
}

#[cfg(test)]
mod tests {
    use agentloop_core::id::{RunId, SessionId};
    use futures_util::poll;
    use tokio::sync::oneshot;

    use super::*;
    use crate::store::support::write::{DeleteSession, SessionOp, WriteOp};

    /// A store without writes of its own.
    #[derive(Debug)]
    enum NoOp {}

    impl OwnOp for NoOp {
        type Result = ();

        fn tenant(&self) -> Option<&TenantId> {
            match *self {}
        }

        fn is_act(&self) -> bool {
            match *self {}
        }

        fn is_long(&self) -> bool {
            match *self {}
        }

        fn describe(&self) -> &'static str {
            match *self {}
        }
    }

    fn claim(tenant: &str, run: usize) -> WriteRequest<NoOp> {
        let op = WriteOp::Claim {
            tenant: TenantId::parse(tenant).unwrap(),
            run: RunId::parse(format!("r{run}")).unwrap(),
        };
        WriteRequest { op, act: None, reply: oneshot::channel().0 }
    }

    fn name(request: &WriteRequest<NoOp>) -> String {
        match &request.op {
            WriteOp::Claim { tenant, run } => format!("{tenant}/{run}"),
            other => panic!("{other:?}"),
        }
    }

    fn take(queue: &mut WriteQueue<NoOp>, max: usize) -> Vec<String> {
        let mut taken = Vec::new();
        queue.take(max, usize::MAX, &mut taken);
        taken.iter().map(name).collect()
    }

    #[tokio::test]
    async fn tenants_are_served_in_turn() {
        let (sender, mut queue) = write_queue();
        for run in 0..1_000 {
            sender.send(claim("noisy", run)).await.unwrap();
        }
        sender.send(claim("quiet", 0)).await.unwrap();
        sender.send(claim("quiet", 1)).await.unwrap();
        let first = take(&mut queue, 5);
        assert_eq!(first, ["noisy/r0", "quiet/r0", "noisy/r1", "quiet/r1", "noisy/r2"]);
        sender.send(claim("other", 0)).await.unwrap();
        assert_eq!(take(&mut queue, 2), ["noisy/r3", "other/r0"]);
        assert_eq!(take(&mut queue, 2_000).len(), 996);
    }

    #[tokio::test]
    async fn a_tenant_with_many_writes_waits_and_others_do_not() {
        let (sender, mut queue) = write_queue();
        for run in 0..WRITES_PER_TENANT_MAX {
            sender.send(claim("noisy", run)).await.unwrap();
        }
        let mut beyond = Box::pin(sender.send(claim("noisy", WRITES_PER_TENANT_MAX)));
        assert!(poll!(beyond.as_mut()).is_pending());
        sender.send(claim("quiet", 0)).await.unwrap();
        assert_eq!(take(&mut queue, 2), ["noisy/r0", "quiet/r0"]);
        beyond.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_commit_waits_for_as_many_writes_as_are_expected_and_no_longer() {
        let (sender, mut queue) = write_queue();
        let begun = Instant::now();
        let until = begun + std::time::Duration::from_millis(1);
        sender.send(claim("a", 0)).await.unwrap();
        queue.wait_for(1, until).await;
        assert_eq!(begun.elapsed(), std::time::Duration::ZERO, "it is there");
        let mut waiting = Box::pin(queue.wait_for(3, until));
        assert!(poll!(waiting.as_mut()).is_pending());
        sender.send(claim("b", 0)).await.unwrap();
        assert!(poll!(waiting.as_mut()).is_pending());
        sender.send(claim("b", 1)).await.unwrap();
        assert!(poll!(waiting.as_mut()).is_ready());
        drop(waiting);
        queue.wait_for(4, until).await;
        assert_eq!(begun.elapsed(), std::time::Duration::from_millis(1), "nothing else came");
        assert_eq!(take(&mut queue, 9), ["a/r0", "b/r0", "b/r1"]);
    }

    fn deletion(tenant: &str, session: usize) -> WriteRequest<NoOp> {
        let (tenant, session) = (TenantId::parse(tenant).unwrap(), format!("s{session}"));
        let session = SessionId::parse(session).unwrap();
        let op = WriteOp::Session(SessionOp::Delete(DeleteSession { tenant, session, damaged: None }));
        WriteRequest { op, act: None, reply: oneshot::channel().0 }
    }

    #[tokio::test]
    async fn long_writes_are_taken_one_at_a_time_tenants_in_turn_and_take_no_room_of_others() {
        let (sender, mut queue) = write_queue();
        for no in 0..WRITES_PER_TENANT_MAX {
            sender.send(deletion("a", no)).await.unwrap();
        }
        assert!(poll!(Box::pin(sender.send(deletion("a", WRITES_PER_TENANT_MAX))).as_mut()).is_pending());
        sender.send(deletion("b", 0)).await.unwrap();
        sender.send(claim("a", 1)).await.unwrap();
        let mut taken = Vec::new();
        queue.take_short(9, usize::MAX, &mut taken);
        assert_eq!(taken.iter().map(name).collect::<Vec<_>>(), ["a/r1"]);
        let mut next = |refused: Lane| {
            let taken = queue.take_long(|lane| *lane != refused)?;
            let (tenant, session) = taken.op.session()?;
            Some(format!("{tenant}/{session}"))
        };
        let nobody = || Some(TenantId::parse("c").unwrap());
        let a = || Some(TenantId::parse("a").unwrap());
        let first = [next(nobody()), next(a()), next(nobody()), next(a())];
        assert_eq!(first.map(Option::unwrap_or_default), ["a/s0", "b/s0", "a/s1", ""]);
        assert!(queue.has_long(|lane| *lane == a()) && !queue.has_long(|lane| *lane != a()));
    }

    #[tokio::test]
    async fn what_is_queued_is_taken_before_the_end() {
        let (sender, mut queue) = write_queue();
        let (closing, weak) = (CancellationToken::new(), sender.downgrade());
        sender.send(claim("a", 1)).await.unwrap();
        closing.cancel();
        assert!(queue.wait(&closing).await);
        assert_eq!(take(&mut queue, 9), ["a/r1"]);
        assert!(!queue.wait(&closing).await);
        assert!(sender.send(claim("a", 2)).await.is_err());
        drop(sender);
        assert!(weak.upgrade().is_none());
    }
}
