//! The send queue of one host, bounded in frames and bytes. A host that does not read fills it and loses its
//! connection; no other host or run waits for it.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use agentloop_core::host::CloseReason;
use agentloop_core::host::frame::ServerFrame;
use agentloop_core::limits::CALLS_PER_HOST_MAX;
use futures_util::task::AtomicWaker;
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_util::sync::CancellationToken;

use crate::extension::remote::{ExtensionRequest, ForwardedRequest, RequestSender};

/// Frames that may wait for one host. After a reconnect it may get all its calls at once, and one frame more for each.
const FRAMES_MAX: usize = 2 * CALLS_PER_HOST_MAX;
/// Bytes that may wait for one host.
const BYTES_MAX: usize = 64 * 1024 * 1024;

/// A message for the host.
#[derive(Debug, Clone, PartialEq)]
pub enum Outbound {
    /// A frame of the tool-host protocol.
    Frame(ServerFrame),
    /// A request to one of its extensions.
    ExtensionRequest(Box<ExtensionRequest>),
    /// A request of another replica to one of its extensions.
    Forward(ForwardedRequest),
    /// The end of the stream. Nothing follows it.
    End(CloseReason),
}

/// The send queue is full: the host does not read fast enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::tool) struct SendQueueFull;

/// The server's end of the queue. Sending never waits.
#[derive(Debug)]
pub(in crate::tool) struct Sender {
    // Bounded by `backlog`.
    frames: mpsc::UnboundedSender<Outbound>,
    backlog: Arc<FrameBacklog>,
    ended: CancellationToken,
}

/// The transport's end of the queue. Dropping it tells the connection that the host is gone.
#[derive(Debug)]
pub struct OutboundFrames {
    frames: mpsc::UnboundedReceiver<Outbound>,
    backlog: Arc<FrameBacklog>,
    pause: SendPause,
    ended: CancellationToken,
}

/// Holds frames back in the queue, in their order.
#[derive(Debug, Clone, Default)]
pub(in crate::tool) struct SendPause(Arc<PauseState>);

#[derive(Debug, Default)]
struct PauseState {
    is_paused: AtomicBool,
    reader: AtomicWaker,
}

/// No frame leaves while this lives.
pub(in crate::tool) struct PauseGuard<'a>(&'a PauseState);

impl SendPause {
    /// Pauses until the guard is dropped. One guard at a time.
    pub(in crate::tool) fn pause(&self) -> PauseGuard<'_> {
        self.0.is_paused.store(true, Ordering::Release);
        PauseGuard(&self.0)
    }
}

impl Drop for PauseGuard<'_> {
    fn drop(&mut self) {
        self.0.is_paused.store(false, Ordering::Release);
        self.0.reader.wake();
    }
}

#[derive(Debug, Default)]
struct FrameBacklog {
    frames: AtomicUsize,
    bytes: AtomicUsize,
}

/// A send queue, made by [`channel`].
#[derive(Debug)]
pub(in crate::tool) struct Channel {
    pub(in crate::tool) sender: Sender,
    pub(in crate::tool) frames: OutboundFrames,
    /// Holds back what is sent.
    pub(in crate::tool) pause: SendPause,
    /// Cancelled when either end is done.
    pub(in crate::tool) ended: CancellationToken,
}

/// Makes the connected ends of a send queue.
pub(in crate::tool) fn channel() -> Channel {
    let (sender, receiver) = mpsc::unbounded_channel();
    let (backlog, ended) = (Arc::new(FrameBacklog::default()), CancellationToken::new());
    let sender = Sender { frames: sender, backlog: backlog.clone(), ended: ended.clone() };
    let pause = SendPause::default();
    let frames = OutboundFrames { frames: receiver, backlog, pause: pause.clone(), ended: ended.clone() };
    Channel { sender, frames, pause, ended }
}

impl Sender {
    pub(in crate::tool) fn send(&self, frame: ServerFrame) -> Result<(), SendQueueFull> {
        self.backlog.add(frame.size())?;
        // If the receiver is gone, it has cancelled the token, which the connection watches.
        let _ = self.frames.send(Outbound::Frame(frame));
        Ok(())
    }

    /// A handle that sends requests to the host's extensions through the same queue.
    pub(in crate::tool) fn extension_sender(&self) -> Arc<dyn RequestSender> {
        Arc::new(ExtensionSender { frames: self.frames.clone(), backlog: self.backlog.clone() })
    }

    /// Ends the stream after everything sent earlier.
    pub(in crate::tool) fn end(self, reason: CloseReason) {
        let _ = self.frames.send(Outbound::End(reason));
        self.ended.cancel();
    }
}

/// Sends requests to a host's extensions. They count against the same bounds as frames.
struct ExtensionSender {
    frames: mpsc::UnboundedSender<Outbound>,
    backlog: Arc<FrameBacklog>,
}

impl RequestSender for ExtensionSender {
    fn send(&self, request: Box<ExtensionRequest>) -> bool {
        self.backlog.add(request.size()).is_ok()
            && self.frames.send(Outbound::ExtensionRequest(request)).is_ok()
    }

    fn forward(&self, request: ForwardedRequest) -> bool {
        self.backlog.add(request.size()).is_ok() && self.frames.send(Outbound::Forward(request)).is_ok()
    }
}

impl FrameBacklog {
    fn add(&self, size: usize) -> Result<(), SendQueueFull> {
        let frames = self.frames.fetch_add(1, Ordering::Relaxed);
        let bytes = self.bytes.fetch_add(size, Ordering::Relaxed);
        if frames >= FRAMES_MAX || bytes.saturating_add(size) > BYTES_MAX {
            self.take(size);
            return Err(SendQueueFull);
        }
        Ok(())
    }

    fn take(&self, size: usize) {
        self.frames.fetch_sub(1, Ordering::Relaxed);
        self.bytes.fetch_sub(size, Ordering::Relaxed);
    }
}

impl Stream for OutboundFrames {
    type Item = Outbound;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Outbound>> {
        self.pause.0.reader.register(context.waker());
        if self.pause.0.is_paused.load(Ordering::Acquire) {
            return Poll::Pending;
        }
        let next = self.frames.poll_recv(context);
        match &next {
            Poll::Ready(Some(Outbound::Frame(frame))) => self.backlog.take(frame.size()),
            Poll::Ready(Some(Outbound::ExtensionRequest(request))) => self.backlog.take(request.size()),
            Poll::Ready(Some(Outbound::Forward(request))) => self.backlog.take(request.size()),
            Poll::Ready(Some(Outbound::End(_)) | None) | Poll::Pending => {}
        }
        next
    }
}

impl Drop for OutboundFrames {
    fn drop(&mut self) {
        self.ended.cancel();
    }
}

#[cfg(test)]
mod tests {
    use agentloop_core::id::HostId;
    use agentloop_core::time::Millis;
    use tokio_stream::StreamExt as _;

    use super::*;

    fn go_away() -> ServerFrame {
        ServerFrame::GoAway { reconnect_after: Millis(1), reason: HostId::parse("x").unwrap().to_string() }
    }

    fn verdicts(bytes: usize) -> ServerFrame {
        let verdict =
            agentloop_core::host::frame::CapabilityVerdict { name: "x".repeat(bytes), refused: None };
        ServerFrame::ToolsUpdated(vec![verdict])
    }

    #[tokio::test]
    async fn frames_come_in_order_and_the_end_last() {
        let Channel { sender, mut frames, ended, .. } = channel();
        sender.send(go_away()).unwrap();
        sender.end(CloseReason::Goodbye);
        assert!(ended.is_cancelled());
        assert_eq!(frames.next().await, Some(Outbound::Frame(go_away())));
        assert_eq!(frames.next().await, Some(Outbound::End(CloseReason::Goodbye)));
        assert_eq!(frames.next().await, None);
    }

    #[tokio::test]
    async fn a_host_that_does_not_read_is_noticed() {
        let Channel { sender, mut frames, ended, .. } = channel();
        for _ in 0..FRAMES_MAX {
            sender.send(go_away()).unwrap();
        }
        assert_eq!(sender.send(go_away()), Err(SendQueueFull));
        drop((frames.next().await, frames));
        assert!(ended.is_cancelled(), "nobody reads any more");
    }

    #[tokio::test]
    async fn bytes_are_bounded_and_freed_by_reading() {
        let Channel { sender, mut frames, .. } = channel();
        let third = BYTES_MAX / 3;
        assert_eq!(sender.send(verdicts(third)), Ok(()));
        assert_eq!(sender.send(verdicts(third)), Ok(()));
        frames.next().await;
        assert_eq!(sender.send(verdicts(third)), Ok(()));
        assert_eq!(sender.send(verdicts(third)), Err(SendQueueFull));
    }

    #[tokio::test]
    async fn a_request_that_finds_no_room_takes_none() {
        let Channel { sender, frames: _frames, .. } = channel();
        let extensions = sender.extension_sender();
        for _ in 0..3 {
            let encoded = vec![0; BYTES_MAX];
            assert!(!extensions.forward(ForwardedRequest { id: String::new(), encoded }));
        }
        assert_eq!(sender.send(go_away()), Ok(()));
    }

    #[tokio::test]
    async fn frames_wait_while_sending_is_paused() {
        let Channel { sender, mut frames, pause, .. } = channel();
        let paused = pause.pause();
        sender.send(go_away()).unwrap();
        sender.end(CloseReason::Goodbye);
        let reading = tokio::spawn(async move { (frames.next().await, frames.next().await) });
        tokio::task::yield_now().await;
        assert!(!reading.is_finished());
        drop(paused);
        let expected = (Outbound::Frame(go_away()), Outbound::End(CloseReason::Goodbye));
        assert_eq!(reading.await.unwrap(), (Some(expected.0), Some(expected.1)));
    }
}
