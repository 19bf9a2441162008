//! The queue of one direction of a link, bounded in bytes. Sending never waits.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use tokio::sync::{Notify, mpsc};
use tokio_stream::Stream;
use tokio_util::sync::CancellationToken;

use super::frame::{LINK_FRAME_BYTES_MAX, LinkFrame, encode};
use crate::pace::{Pace, Paced};

/// Bytes that may wait. A replica that reads too slowly for this loses its link, and begins anew. Frames that wait for the pace are
/// not counted any more: they have 1 MiB at most.
const BYTES_MAX: usize = 128 * 1024 * 1024;
/// Bytes beyond which progress and output are dropped, and the list of tools waits.
const BUSY_BYTES: usize = 4 * 1024 * 1024;
/// Bytes beyond which no requests to extensions and no responses of them are sent: whoever sent the request tries again, or
/// does without. Commands, and the calls of a new link, wait.
const FULL_BYTES: usize = BYTES_MAX / 2;
/// Bytes counted for each frame beside its own.
const FRAME_BYTES: usize = 64;
/// Bytes of a frame that may wait at the pace of the link. A larger one goes at once.
const PACED_BYTES_MAX: usize = 4 * 1024;

/// The end that sends. Clones send on the same link.
#[derive(Debug, Clone)]
pub(super) struct LinkSender {
    // Bounded by `backlog`. `None` ends the link.
    frames: mpsc::UnboundedSender<Option<QueuedFrame>>,
    backlog: Arc<Backlog>,
    ended: CancellationToken,
}

/// The frames to send on a link, at its pace. Dropping it ends the link.
#[derive(Debug)]
pub struct LinkFrames {
    frames: Paced<Queue>,
    ended: CancellationToken,
}

/// The frames that were sent, as they come.
#[derive(Debug)]
struct Queue {
    frames: mpsc::UnboundedReceiver<Option<QueuedFrame>>,
    backlog: Arc<Backlog>,
}

#[derive(Debug)]
struct QueuedFrame {
    bytes: Vec<u8>,
    may_wait: bool,
}

#[derive(Debug, Default)]
struct Backlog {
    bytes: AtomicUsize,
    taken: Notify,
}

/// Makes a connected pair of ends.
pub(super) fn channel() -> (LinkSender, LinkFrames) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let (backlog, ended) = (Arc::new(Backlog::default()), CancellationToken::new());
    let queue = Queue { frames: receiver, backlog: backlog.clone() };
    let frames = Paced::new(queue, Pace::new(), |frame| frame.may_wait);
    let frames = LinkFrames { frames, ended: ended.clone() };
    (LinkSender { frames: sender, backlog, ended }, frames)
}

impl LinkSender {
    /// Queues a frame. On a link that has ended it is lost.
    pub(super) fn send(&self, frame: &impl LinkFrame) {
        if !self.ended.is_cancelled() {
            let bytes = encode(frame);
            let may_wait = frame.may_wait() && bytes.len() <= PACED_BYTES_MAX;
            self.push(QueuedFrame { bytes, may_wait });
        }
    }

    /// Queues a frame, unless much waits already. Returns false if it is dropped.
    pub(super) fn send_unless_busy(&self, frame: &impl LinkFrame) -> bool {
        self.send_below(BUSY_BYTES, frame)
    }

    /// Queues a frame about a request to an extension, unless too much waits already. Returns false if it is dropped.
    pub(super) fn send_unless_full(&self, frame: &impl LinkFrame) -> bool {
        self.send_below(FULL_BYTES, frame)
    }

    fn send_below(&self, bytes: usize, frame: &impl LinkFrame) -> bool {
        let has_capacity = self.has_capacity(bytes);
        if has_capacity {
            self.send(frame);
        }
        has_capacity
    }

    fn push(&self, frame: QueuedFrame) {
        let size = frame.bytes.len() + FRAME_BYTES;
        let waiting = self.backlog.bytes.fetch_add(size, Ordering::Relaxed) + size;
        if waiting > BYTES_MAX || frame.bytes.len() > LINK_FRAME_BYTES_MAX {
            tracing::warn!(bytes = waiting, "a link to another replica is given up: too much waits for it");
            return self.end();
        }
        // Without a receiver the link has ended, which the task of the link sees.
        let _ended = self.frames.send(Some(frame));
    }

    fn has_capacity(&self, bytes: usize) -> bool {
        self.backlog.bytes.load(Ordering::Relaxed) < bytes
    }

    /// True while so much waits to be sent that what can wait elsewhere does.
    pub(super) fn is_full(&self) -> bool {
        !self.has_capacity(FULL_BYTES)
    }

    /// Waits until that is not so.
    pub(super) async fn space(&self) {
        while self.is_full() {
            self.backlog.taken.notified().await;
        }
    }

    /// Waits until little waits to be sent.
    pub(super) async fn wait_for_capacity(&self) {
        while !self.has_capacity(BUSY_BYTES) {
            self.backlog.taken.notified().await;
        }
    }

    /// Ends the link after everything that was sent before.
    pub(super) fn end(&self) {
        let _ended = self.frames.send(None);
        self.ended.cancel();
    }

    /// Returns when the link has ended, from either side.
    pub(super) async fn ended(&self) {
        self.ended.cancelled().await;
    }
}

impl Stream for LinkFrames {
    type Item = Vec<u8>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Vec<u8>>> {
        Pin::new(&mut self.frames).poll_next(context).map(|frame| Some(frame?.bytes))
    }
}

impl Stream for Queue {
    type Item = QueuedFrame;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<QueuedFrame>> {
        let next = self.frames.poll_recv(context).map(Option::flatten);
        if let Poll::Ready(Some(frame)) = &next {
            self.backlog.bytes.fetch_sub(frame.bytes.len() + FRAME_BYTES, Ordering::Relaxed);
            self.backlog.taken.notify_one();
        }
        next
    }
}

impl Drop for LinkFrames {
    fn drop(&mut self) {
        self.ended.cancel();
    }
}
