//! A provider for tests: answers each connection with canned bytes and remembers what it was asked.

use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// What a connection is answered.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    pub(super) bytes: Vec<u8>,
    pub(super) then: Then,
}

/// What follows the bytes.
#[derive(Debug, Clone)]
pub(super) enum Then {
    /// The connection is closed in good order.
    Close,
    /// Nothing, until the client goes.
    Hold,
    /// These bytes again and again, until the client goes.
    Repeat(Vec<u8>),
}

/// What the provider was asked.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    /// Request line and headers, in small letters.
    pub(super) head: String,
    pub(super) body: Value,
}

pub(super) struct TestServer {
    pub(super) base_url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
    gone: mpsc::UnboundedReceiver<()>,
}

impl TestServer {
    /// Gives one answer to each connection, the last one to all that follow.
    pub(super) async fn start(answers: Vec<Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (goes, gone) = mpsc::unbounded_channel();
        let log = Arc::clone(&asked);
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
        Self { base_url, asked, gone }
    }

    pub(super) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    /// Until a connection is over.
    pub(super) async fn gone(&mut self) {
        self.gone.recv().await.unwrap();
    }
}

async fn serve(mut stream: TcpStream, answer: Answer, log: &Mutex<Vec<Asked>>) {
    let Some(asked) = read_request(&mut stream).await else { return };
    log.lock().unwrap().push(asked);
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

async fn read_request(stream: &mut TcpStream) -> Option<Asked> {
    let mut bytes = Vec::new();
    loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8(bytes[..end].to_vec()).unwrap().to_ascii_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let length: usize = length.unwrap().parse().unwrap();
            if let Some(body) = bytes.get(end + 4..end + 4 + length) {
                return Some(Asked { head, body: serde_json::from_slice(body).unwrap() });
            }
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
}

/// An answer with this status line and headers, closed after its body.
pub(super) fn answer(head: &str, body: impl AsRef<[u8]>) -> Answer {
    let mut bytes = format!("HTTP/1.1 {head}\r\nconnection: close\r\n\r\n").into_bytes();
    bytes.extend_from_slice(body.as_ref());
    Answer { bytes, then: Then::Close }
}

/// A stream of events, closed after them.
pub(super) fn events(body: impl AsRef<[u8]>) -> Answer {
    answer("200 OK\r\ncontent-type: text/event-stream", body)
}

impl Answer {
    pub(super) fn then(self, then: Then) -> Self {
        Self { then, ..self }
    }
}
