//! The writer's queue. Tenants are served in turn: one with a thousand writes delays another's write by one write only.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use agentloop_core::id::TenantId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use crate::fair::FairQueue;
use crate::store::sqlite::write::own::{SqliteOp, WriteRequest};
use crate::store::write::{WriterGone, Writes};

/// The tenant of a write; `None` for writes of the server's own.
type Lane = Option<TenantId>;

/// Writes of one tenant in the queue, at most. Its callers beyond that wait to enqueue theirs.
const WRITES_PER_TENANT_MAX: usize = 1_024;
/// Tenants whose room is kept before that of tenants without a write is dropped.
const TENANTS_MAX: usize = 1_024;

/// The sending end. The queue ends when all of them are dropped.
#[derive(Debug, Clone)]
pub(in crate::store::sqlite) struct WriteSender {
    /// Bounded by the room of each tenant.
    writes: mpsc::UnboundedSender<Queued>,
    rooms: Arc<Rooms>,
}

/// As [`WriteSender`], for those who do not keep the queue open.
#[derive(Debug, Clone)]
pub(in crate::store::sqlite) struct WeakWriteSender {
    writes: mpsc::WeakUnboundedSender<Queued>,
    rooms: Arc<Rooms>,
}

/// The writer's end.
#[derive(Debug)]
pub(in crate::store::sqlite) struct WriteQueue {
    arriving: mpsc::UnboundedReceiver<Queued>,
    waiting: FairQueue<Lane, Queued>,
}

#[derive(Debug)]
struct Queued {
    lane: Lane,
    request: WriteRequest,
    /// Released when the write is taken.
    _room: OwnedSemaphorePermit,
}

/// The room of each tenant that has writes.
#[derive(Debug, Default)]
struct Rooms(Mutex<HashMap<Lane, Arc<Semaphore>>>);

impl Rooms {
    fn of(&self, lane: &Lane) -> Arc<Semaphore> {
        let mut rooms = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(room) = rooms.get(lane) {
            return room.clone();
        }
        if rooms.len() >= TENANTS_MAX {
            rooms.retain(|_, room| Arc::strong_count(room) > 1);
        }
        let room = Arc::new(Semaphore::new(WRITES_PER_TENANT_MAX));
        rooms.insert(lane.clone(), room.clone());
        room
    }
}

/// An empty queue.
pub(in crate::store::sqlite) fn write_queue() -> (WriteSender, WriteQueue) {
    let (writes, arriving) = mpsc::unbounded_channel();
    let sender = WriteSender { writes, rooms: Arc::default() };
    (sender, WriteQueue { arriving, waiting: FairQueue::default() })
}

impl WriteSender {
    pub(in crate::store::sqlite) fn downgrade(&self) -> WeakWriteSender {
        WeakWriteSender { writes: self.writes.downgrade(), rooms: self.rooms.clone() }
    }
}

impl Writes for WriteSender {
    type Own = SqliteOp;

    async fn send(&self, request: WriteRequest) -> Result<(), WriterGone> {
        let lane = request.op.tenant().cloned();
        let room = self.rooms.of(&lane).acquire_owned();
        let room = tokio::select! { biased;
            room = room => room.map_err(|_| WriterGone)?,
            () = self.writes.closed() => return Err(WriterGone),
        };
        self.writes.send(Queued { lane, request, _room: room }).map_err(|_| WriterGone)
    }
}

impl WeakWriteSender {
    /// `None` if the queue has ended.
    pub(in crate::store::sqlite) fn upgrade(&self) -> Option<WriteSender> {
        Some(WriteSender { writes: self.writes.upgrade()?, rooms: self.rooms.clone() })
    }
}

impl WriteQueue {
    /// Waits until there is a write. `false`: the queue has ended, after a cancelled `closing` with its last write.
    pub(in crate::store::sqlite) async fn wait(&mut self, closing: &CancellationToken) -> bool {
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

    /// Takes the next writes: tenants in turn, until there are `max` of them, or so many bytes.
    pub(in crate::store::sqlite) fn take(
        &mut self,
        max: usize,
        bytes_max: usize,
        taken: &mut Vec<WriteRequest>,
    ) {
        while let Ok(arrived) = self.arriving.try_recv() {
            self.waiting.push(arrived.lane.clone(), arrived);
        }
        let mut bytes = 0;
        while taken.len() < max
            && bytes < bytes_max
            && let Some(Queued { request, .. }) = self.waiting.pop()
        {
            bytes += request.op.bytes();
            taken.push(request);
        }
    }
}

#[cfg(test)]
mod tests {
    use agentloop_core::id::RunId;
    use futures_util::poll;
    use tokio::sync::oneshot;

    use super::*;
    use crate::store::sqlite::write::own::WriteOp;

    fn claim(tenant: &str, run: usize) -> WriteRequest {
        let op = WriteOp::Claim {
            tenant: TenantId::parse(tenant).unwrap(),
            run: RunId::parse(format!("r{run}")).unwrap(),
        };
        WriteRequest { op, act: None, reply: oneshot::channel().0 }
    }

    fn name(request: &WriteRequest) -> String {
        match &request.op {
            WriteOp::Claim { tenant, run } => format!("{tenant}/{run}"),
            other => panic!("{other:?}"),
        }
    }

    fn take(queue: &mut WriteQueue, max: usize) -> Vec<String> {
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
    async fn a_tenant_whose_room_is_full_waits_and_others_do_not() {
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
