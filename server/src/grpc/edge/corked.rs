//! A connection in use, whose writes of one turn of the runtime leave together.
//!
//! Many RPCs share a connection, and each runs on a task of its own. When one of them has something to send, the runtime polls the
//! task of the connection next. So each message would be a call of the system of its own, and a wake-up of the reader. Writes wait
//! instead until the runtime has no other task to poll, and has looked for events of other connections. On a connection that was
//! quiet there is nothing to wait for, and a turn would cost a wake-up of another thread.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker, ready};
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use futures_util::task::AtomicWaker;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

/// Time after a flush from which on the next one goes at once.
const QUIET: Duration = Duration::from_millis(1);
/// Bytes that wait at most. More go at once.
const WAITING_BYTES_MAX: usize = 32 * 1024;
/// Bytes of memory that a connection keeps while nothing waits.
const KEPT_BYTES_MAX: usize = 4 * 1024;

/// A connection that writes once in a turn of the runtime. It has to be flushed until that has succeeded, as HTTP/2 does.
#[derive(Debug)]
pub(in crate::grpc::edge) struct Corked<S> {
    stream: S,
    waiting: BytesMut,
    /// True from the first flush of what waits until all of it is written.
    is_flushed: bool,
    last_flush: Option<Instant>,
    turn: Arc<RuntimeTurn>,
}

/// The turn of the runtime in which something is flushed.
#[derive(Debug, Default)]
struct RuntimeTurn {
    is_over: AtomicBool,
    task: AtomicWaker,
}

impl Wake for RuntimeTurn {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_over.store(true, Ordering::Release);
        self.task.wake();
    }
}

impl RuntimeTurn {
    /// Begins. The runtime ends it when it has polled all other tasks that are ready.
    fn begin(self: &Arc<Self>) {
        self.is_over.store(false, Ordering::Relaxed);
        let ends = Waker::from(self.clone());
        // It hands the waker to the runtime, which keeps it.
        let _pending = pin!(tokio::task::yield_now()).poll(&mut Context::from_waker(&ends));
    }

    /// Is over at once.
    fn skip(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    fn poll_over(&self, cx: &Context<'_>) -> Poll<()> {
        self.task.register(cx.waker());
        if self.is_over.load(Ordering::Acquire) { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl<S> Corked<S> {
    pub(in crate::grpc::edge) fn new(stream: S) -> Self {
        Self { stream, waiting: BytesMut::new(), is_flushed: false, last_flush: None, turn: Arc::default() }
    }
}

impl<S: AsyncWrite + Unpin> Corked<S> {
    /// Writes all that waits.
    fn write_out(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.waiting.is_empty() {
            let written = ready!(Pin::new(&mut self.stream).poll_write(cx, &self.waiting))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.waiting.advance(written);
        }
        if self.waiting.capacity() > KEPT_BYTES_MAX {
            self.waiting = BytesMut::new();
        }
        self.is_flushed = false;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Corked<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Corked<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        if this.waiting.len() >= WAITING_BYTES_MAX {
            ready!(this.write_out(cx))?;
        }
        let taken = bytes.len().min(WAITING_BYTES_MAX - this.waiting.len());
        this.waiting.extend_from_slice(&bytes[..taken]);
        Poll::Ready(Ok(taken))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if !this.waiting.is_empty() {
            if !std::mem::replace(&mut this.is_flushed, true) {
                let now = Instant::now();
                match this.last_flush.replace(now) {
                    Some(last) if now - last < QUIET => this.turn.begin(),
                    _ => this.turn.skip(),
                }
            }
            ready!(this.turn.poll_over(cx));
            ready!(this.write_out(cx))?;
        }
        Pin::new(&mut this.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.write_out(cx))?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::AsyncWriteExt as _;

    use super::*;

    /// A stream that takes so many bytes in one write, and is not ready after each.
    struct Recorder {
        writes: Vec<Vec<u8>>,
        takes: usize,
        is_ready: bool,
    }

    impl Recorder {
        fn corked(takes: usize) -> Corked<Self> {
            Corked::new(Self { writes: Vec::new(), takes, is_ready: true })
        }

        /// It was flushed just now.
        async fn in_use(takes: usize) -> Corked<Self> {
            let mut corked = Self::corked(takes);
            corked.write_all(b"begun").await.unwrap();
            corked.flush().await.unwrap();
            corked.stream.writes.clear();
            corked
        }
    }

    impl AsyncWrite for Recorder {
        fn poll_write(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.is_ready = !self.is_ready;
            if self.is_ready {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let taken = bytes.len().min(self.takes);
            self.writes.push(bytes[..taken].to_vec());
            Poll::Ready(Ok(taken))
        }

        fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    async fn flush_is_pending(corked: &mut Corked<Recorder>) -> bool {
        poll_fn(|cx| Poll::Ready(Pin::new(&mut *corked).poll_flush(cx).is_pending())).await
    }

    #[tokio::test(start_paused = true)]
    async fn all_writes_of_a_turn_leave_together() {
        let mut corked = Recorder::in_use(usize::MAX).await;
        for bytes in ["one ", "two ", "three"] {
            corked.write_all(bytes.as_bytes()).await.unwrap();
            assert!(flush_is_pending(&mut corked).await);
        }
        assert!(corked.stream.writes.is_empty());
        corked.flush().await.unwrap();
        assert_eq!(corked.stream.writes, [b"one two three"]);
        corked.flush().await.unwrap();
        corked.write_all(b"more").await.unwrap();
        assert!(flush_is_pending(&mut corked).await, "another turn");
        corked.flush().await.unwrap();
        assert_eq!(corked.stream.writes[1..], [b"more"]);
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_pause_the_first_write_leaves_at_once() {
        let mut corked = Recorder::corked(usize::MAX);
        for round in 1..=2 {
            for (at_once, bytes) in [(true, "first"), (false, "next")] {
                corked.write_all(bytes.as_bytes()).await.unwrap();
                let before = corked.stream.writes.len();
                corked.stream.is_ready = true;
                assert_eq!(flush_is_pending(&mut corked).await, !at_once, "{bytes}");
                assert_eq!(corked.stream.writes.len() - before, usize::from(at_once), "{bytes}");
                corked.flush().await.unwrap();
            }
            assert_eq!(corked.stream.writes.len(), 2 * round);
            tokio::time::advance(QUIET).await;
        }
    }

    /// Tasks that are ready already, and those that they wake.
    #[tokio::test(start_paused = true)]
    async fn a_turn_has_all_tasks_that_are_ready() {
        let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
        for chain in 0..3_u8 {
            let sender = sender.clone();
            tokio::spawn(async move {
                for piece in 0..2_u8 {
                    sender.send(10 * chain + piece).unwrap();
                    let (woken, waits) = tokio::sync::oneshot::channel();
                    tokio::spawn(async move { woken.send(()).unwrap() });
                    waits.await.unwrap();
                }
            });
        }
        drop(sender);
        let writing = tokio::spawn(async move {
            let mut corked = Recorder::in_use(usize::MAX).await;
            let mut has_ended = false;
            poll_fn(|cx| {
                while let Poll::Ready(piece) = receiver.poll_recv(cx) {
                    let Some(piece) = piece else {
                        has_ended = true;
                        break;
                    };
                    assert!(Pin::new(&mut corked).poll_write(cx, &[piece]).is_ready());
                }
                match Pin::new(&mut corked).poll_flush(cx) {
                    Poll::Ready(flushed) if has_ended => Poll::Ready(flushed),
                    _ => Poll::Pending,
                }
            })
            .await
            .unwrap();
            corked.stream.writes
        });
        let mut writes = writing.await.unwrap();
        assert_eq!(writes.len(), 1, "{writes:?}");
        writes[0].sort_unstable();
        assert_eq!(writes[0], [0, 1, 10, 11, 20, 21]);
    }

    #[tokio::test]
    async fn a_stream_that_takes_little_gets_everything_in_its_order() {
        for takes in [1, 1_000, usize::MAX] {
            let mut corked = Recorder::corked(takes);
            let bytes: Vec<u8> = (0..100_000_u32).map(|no| (no % 251) as u8).collect();
            for piece in bytes.chunks(33_000) {
                corked.write_all(piece).await.unwrap();
                assert!(corked.waiting.len() <= WAITING_BYTES_MAX);
            }
            assert!(!corked.stream.writes.is_empty(), "more than may wait goes at once");
            corked.flush().await.unwrap();
            assert_eq!(corked.stream.writes.concat(), bytes);
            assert!(corked.waiting.capacity() <= KEPT_BYTES_MAX);
        }
    }

    #[tokio::test]
    async fn what_waits_is_written_before_the_end() {
        let mut corked = Recorder::corked(3);
        corked.write_all(b"last words").await.unwrap();
        corked.shutdown().await.unwrap();
        assert_eq!(corked.stream.writes.concat(), b"last words");
    }

    #[tokio::test]
    async fn a_stream_that_takes_nothing_any_more_fails() {
        let mut corked = Recorder::corked(0);
        corked.write_all(b"x").await.unwrap();
        assert_eq!(corked.flush().await.unwrap_err().kind(), io::ErrorKind::WriteZero);
    }

    /// There is no turn to wait for.
    #[test]
    fn a_flush_outside_a_runtime_writes_at_once() {
        let mut corked = Recorder::corked(usize::MAX);
        let mut cx = Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut corked).poll_write(&mut cx, b"x").is_ready());
        assert!(Pin::new(&mut corked).poll_flush(&mut cx).is_ready());
        assert_eq!(corked.stream.writes, [b"x"]);
    }
}
