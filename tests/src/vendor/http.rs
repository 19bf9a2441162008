//! One connection, one request, one answer.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{Asked, Format, Refusal, State};

/// The bytes that the server writes on a connection.
pub(super) struct Response {
    pub(super) bytes: Vec<u8>,
    /// True to leave it to the server to close the connection.
    pub(super) is_held: bool,
}

impl Response {
    /// A response after which the vendor closes the connection.
    pub(super) fn whole(bytes: Vec<u8>) -> Self {
        Self { bytes, is_held: false }
    }
}

pub(super) async fn serve(mut stream: TcpStream, state: Arc<Mutex<State>>) {
    let Some((head, body)) = read(&mut stream).await else { return };
    let response = match Asked::read(&head, &body) {
        Some(asked) => state.lock().answer(asked),
        None => {
            let line = head.lines().next().unwrap_or_default().to_owned();
            state.lock().faults.push(format!("no vendor has this path, or the body is no JSON: {line}"));
            Response::whole(refusal(Format::Chat, &Refusal::new(404, "no such path")))
        }
    };
    // A server that hangs up early is what some tests are about.
    let _written = stream.write_all(&response.bytes).await;
    if response.is_held {
        // Until the server hangs up: it has no more to say.
        let _ended = stream.read_u8().await;
    }
    let _closed = stream.shutdown().await;
}

/// A stream of these events.
pub(super) fn stream(events: &str) -> Vec<u8> {
    answer(200, "text/event-stream; charset=utf-8", "", events)
}

/// The beginning of a stream that has no end.
pub(super) fn open_stream(events: &str) -> Vec<u8> {
    let head =
        "HTTP/1.1 200 X\r\ncontent-type: text/event-stream; charset=utf-8\r\nconnection: close\r\n\r\n";
    format!("{head}{events}").into_bytes()
}

/// A response with one JSON document.
pub(super) fn document(document: &Value) -> Vec<u8> {
    answer(200, "application/json", "", &document.to_string())
}

/// An error response in the form of the vendor.
pub(super) fn refusal(format: Format, refusal: &Refusal) -> Vec<u8> {
    let wait = refusal.wait_header(format).unwrap_or_default();
    answer(refusal.status, "application/json", &wait, &refusal.body(format).to_string())
}

fn answer(status: u16, content_type: &str, header: &str, body: &str) -> Vec<u8> {
    let head =
        format!("HTTP/1.1 {status} X\r\ncontent-type: {content_type}\r\n{header}connection: close\r\n");
    format!("{head}content-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

async fn read(stream: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
            let lower = head.to_ascii_lowercase();
            let length = lower.lines().find_map(|line| line.strip_prefix("content-length: "))?;
            let length: usize = length.parse().ok()?;
            if let Some(body) = bytes.get(end + 4..end + 4 + length) {
                return Some((head, body.to_vec()));
            }
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
}
