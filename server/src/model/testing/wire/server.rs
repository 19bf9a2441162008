//! A provider's server for tests: it answers each connection with prepared bytes and remembers the requests.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// Answer to one connection.
#[derive(Debug, Clone)]
pub(super) struct CannedAnswer {
    pub(super) bytes: Vec<u8>,
    pub(super) then: Then,
}

/// Behaviour after the bytes are sent.
#[derive(Debug, Clone)]
pub(super) enum Then {
    /// Close the connection at once.
    Close,
    /// Send nothing, until the client disconnects.
    Hold,
    /// Repeat these bytes until the client disconnects.
    Repeat(Vec<u8>),
}

/// A request that the server received.
#[derive(Debug, Clone)]
pub(super) struct ReceivedRequest {
    /// Request line and headers, in lower case.
    pub(super) head: String,
    pub(super) body: Value,
}

pub(super) struct TestServer {
    pub(super) base_url: String,
    requests: Arc<Mutex<Vec<ReceivedRequest>>>,
    gone: mpsc::UnboundedReceiver<()>,
}

impl TestServer {
    /// Starts a server that gives one answer to each connection, and the last answer to all further ones.
    pub(super) async fn start(answers: Vec<CannedAnswer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (goes, gone) = mpsc::unbounded_channel();
        let log = Arc::clone(&requests);
        tokio::spawn(async move {
            for connection in 0.. {
                let Ok((stream, _)) = listener.accept().await else { return };
                let answer = answers[connection.min(answers.len() - 1)].clone();
                let (log, goes) = (Arc::clone(&log), goes.clone());
                tokio::spawn(async move {
                    serve(stream, answer, &log).await;
                    let _ = goes.send(());
                });
            }
        });
        Self { base_url, requests, gone }
    }

    pub(super) fn requests(&self) -> Vec<ReceivedRequest> {
        self.requests.lock().clone()
    }

    /// Waits until a connection has ended.
    pub(super) async fn gone(&mut self) {
        self.gone.recv().await.unwrap();
    }
}

async fn serve(mut stream: TcpStream, answer: CannedAnswer, log: &Mutex<Vec<ReceivedRequest>>) {
    let Some(requests) = read_request(&mut stream).await else { return };
    log.lock().push(requests);
    if stream.write_all(&answer.bytes).await.is_err() {
        return;
    }
    match answer.then {
        Then::Close => {
            let _ = stream.shutdown().await;
        }
        Then::Hold => while matches!(stream.read(&mut [0; 1024]).await, Ok(1..)) {},
        Then::Repeat(bytes) => while stream.write_all(&bytes).await.is_ok() {},
    }
}

async fn read_request(stream: &mut TcpStream) -> Option<ReceivedRequest> {
    let mut bytes = Vec::new();
    loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8(bytes[..end].to_vec()).unwrap().to_ascii_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let length: usize = length.unwrap().parse().unwrap();
            if let Some(body) = bytes.get(end + 4..end + 4 + length) {
                return Some(ReceivedRequest { head, body: serde_json::from_slice(body).unwrap() });
            }
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
}

/// An answer with this status line and these headers, closed after its body.
pub(super) fn answer(head: &str, body: impl AsRef<[u8]>) -> CannedAnswer {
    let mut bytes = format!("HTTP/1.1 {head}\r\nconnection: close\r\n\r\n").into_bytes();
    bytes.extend_from_slice(body.as_ref());
    CannedAnswer { bytes, then: Then::Close }
}

/// An event stream, closed after the last event.
pub(super) fn events(body: impl AsRef<[u8]>) -> CannedAnswer {
    answer("200 OK\r\ncontent-type: text/event-stream", body)
}

impl CannedAnswer {
    pub(super) fn then(self, then: Then) -> Self {
        Self { then, ..self }
    }
}
