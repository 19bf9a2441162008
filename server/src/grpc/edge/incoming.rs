//! Accepts TCP connections: sets TCP_NODELAY, limits their number and drops clients that send nothing.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::Stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Sleep, sleep};
use tonic::transport::server::Connected;

/// Length of the connection preface that every HTTP/2 client sends first.
const PREFACE_BYTES: usize = 24;
/// Time within which the preface must arrive. After it, the transport's keepalive watches the client.
const PREFACE_WAIT: Duration = Duration::from_secs(10);

/// An accepted connection. It holds one of the permits that limit their number.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    preface: Option<Preface>,
    _slot: OwnedSemaphorePermit,
}

/// The part of the preface that has not arrived yet, and its deadline.
#[derive(Debug)]
struct Preface {
    missing: usize,
    late: Pin<Box<Sleep>>,
}

/// Accepts connections. At the limit, further clients wait in the listener's backlog.
pub fn connections(
    listener: TcpListener,
    max_connections: usize,
) -> impl Stream<Item = io::Result<Connection>> {
    let slots = Arc::new(Semaphore::new(max_connections.min(Semaphore::MAX_PERMITS)));
    futures_util::stream::unfold((listener, slots), |(listener, slots)| async move {
        let slot = slots.clone().acquire_owned().await.expect("the semaphore is never closed");
        let accepted = match listener.accept().await {
            Ok((stream, _)) => {
                // An error means that the connection is dead already; the first read reports that.
                let _dead = stream.set_nodelay(true);
                let preface = Preface { missing: PREFACE_BYTES, late: Box::pin(sleep(PREFACE_WAIT)) };
                Ok(Connection { stream, preface: Some(preface), _slot: slot })
            }
            Err(error) => {
                // Mostly a lack of file descriptors. Waiting avoids a busy loop.
                tracing::warn!(%error, "cannot accept a connection; if files are exhausted, raise the limit of open files");
                sleep(Duration::from_millis(100)).await;
                Err(error)
            }
        };
        Some((accepted, (listener, slots)))
    })
}

impl Connected for Connection {
    type ConnectInfo = Option<SocketAddr>;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.stream.peer_addr().ok()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        let Some(preface) = &mut self.preface else { return read };
        preface.missing = preface.missing.saturating_sub(buf.filled().len() - before);
        if preface.missing == 0 {
            self.preface = None;
        } else if preface.late.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        read
    }
}

/// Vectored writes are left out on purpose: without them the transport joins frames below 1 KiB into one write.
impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    async fn pair() -> (TcpStream, Connection) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let connection = Box::pin(connections(listener, 1)).next().await.unwrap().unwrap();
        (client, connection)
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_without_a_whole_preface_is_dropped() {
        for begin in ["", "P", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r"] {
            let (mut client, mut connection) = pair().await;
            client.write_all(begin.as_bytes()).await.unwrap();
            let mut heard = Vec::new();
            let error = connection.read_to_end(&mut heard).await.unwrap_err();
            assert_eq!((error.kind(), heard.as_slice()), (io::ErrorKind::TimedOut, begin.as_bytes()));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_may_be_silent_after_its_preface() {
        let (mut client, mut connection) = pair().await;
        client.write_all(&[b'x'; PREFACE_BYTES]).await.unwrap();
        connection.read_exact(&mut [0; PREFACE_BYTES]).await.unwrap();
        let mut byte = [0];
        let silence = tokio::time::timeout(10 * PREFACE_WAIT, connection.read(&mut byte));
        assert!(silence.await.is_err(), "it is waited for");
    }
}
