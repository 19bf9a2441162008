//! Accepted connections: without Nagle's delay, no more of them than configured, and none that says nothing.

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

/// What every client of HTTP/2 begins with, in bytes.
const PREFACE_BYTES: usize = 24;
/// How long a client may take for that. From there on the transport asks it for signs of life.
const PREFACE_WAIT: Duration = Duration::from_secs(10);

/// A connection, and its place among those that are allowed.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    preface: Option<Preface>,
    _place: OwnedSemaphorePermit,
}

/// What is still to come of a connection's beginning, and until when.
#[derive(Debug)]
struct Preface {
    missing: usize,
    late: Pin<Box<Sleep>>,
}

/// Connections as they come in. While there are as many as allowed, further ones wait to be accepted.
pub fn connections(
    listener: TcpListener,
    max_connections: usize,
) -> impl Stream<Item = io::Result<Connection>> {
    let places = Arc::new(Semaphore::new(max_connections.min(Semaphore::MAX_PERMITS)));
    futures_util::stream::unfold((listener, places), |(listener, places)| async move {
        let place = places.clone().acquire_owned().await.expect("the semaphore is never closed");
        let accepted = match listener.accept().await {
            Ok((stream, _)) => {
                // A connection that died at once says so when it is read.
                let _dead = stream.set_nodelay(true);
                let preface = Preface { missing: PREFACE_BYTES, late: Box::pin(sleep(PREFACE_WAIT)) };
                Ok(Connection { stream, preface: Some(preface), _place: place })
            }
            Err(error) => {
                // Out of file descriptors, mostly: to try again at once would only burn the processor.
                tracing::warn!(%error, "cannot accept a connection");
                sleep(Duration::from_millis(100)).await;
                Err(error)
            }
        };
        Some((accepted, (listener, places)))
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

/// Not vectored: the transport then puts frames of less than a KiB together, where it would make a write of each.
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
    async fn whoever_says_too_little_is_given_up() {
        for begin in ["", "P", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r"] {
            let (mut client, mut connection) = pair().await;
            client.write_all(begin.as_bytes()).await.unwrap();
            let mut heard = Vec::new();
            let error = connection.read_to_end(&mut heard).await.unwrap_err();
            assert_eq!((error.kind(), heard.as_slice()), (io::ErrorKind::TimedOut, begin.as_bytes()));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_has_begun_may_be_silent() {
        let (mut client, mut connection) = pair().await;
        client.write_all(&[b'x'; PREFACE_BYTES]).await.unwrap();
        connection.read_exact(&mut [0; PREFACE_BYTES]).await.unwrap();
        let mut byte = [0];
        let silence = tokio::time::timeout(10 * PREFACE_WAIT, connection.read(&mut byte));
        assert!(silence.await.is_err(), "it is waited for");
    }
}
