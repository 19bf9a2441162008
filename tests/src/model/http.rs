//! One connection, one request, one streamed answer. A connection that is kept has one request after the other.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{Answer, Live, State, pairing, sse};

const STREAM: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";

pub(super) async fn serve(mut stream: TcpStream, state: Arc<Mutex<State>>) {
    loop {
        let Some(request) = read(&mut stream).await else { return };
        let mut answer = answer(&state, &request);
        while let Answer::Later(wait, then) = answer {
            tokio::time::sleep(wait).await;
            answer = *then;
        }
        // A server that hangs up early is what some tests are about.
        let _written = match answer {
            Answer::Speech(live) => return speech(stream, live, request).await,
            Answer::Slowly(pieces, wait) => slowly(&mut stream, &pieces, wait).await,
            whole => {
                let Response { bytes, is_kept } = response(whole, state.lock().keeps_connections);
                let written = stream.write_all(&bytes).await;
                if is_kept && written.is_ok() {
                    continue;
                }
                written
            }
        };
        let _closed = stream.shutdown().await;
        return;
    }
}

/// A response that is given whole.
struct Response {
    bytes: Vec<u8>,
    /// True if the connection goes on after it.
    is_kept: bool,
}

/// A response with these events.
fn events(events: &str, is_kept: bool) -> Response {
    let end =
        if is_kept { format!("content-length: {}", events.len()) } else { "connection: close".to_owned() };
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n{end}");
    Response { bytes: format!("{head}\r\n\r\n{events}").into_bytes(), is_kept }
}

fn answer(state: &Mutex<State>, request: &Value) -> Answer {
    let mut state = state.lock();
    if !state.forgets {
        state.requests.push(request.clone());
    }
    if let Some(fault) = pairing::fault(request) {
        state.faults.push(fault.clone());
        return Answer::Fails(400, None, fault);
    }
    if let Some(next) = state.script.pop_front() {
        return next;
    }
    match &state.responder {
        Some(respond) => respond(request),
        None => {
            state.faults.push(format!("the script has no answer to {request:#}"));
            Answer::Fails(400, None, "the script is at its end".to_owned())
        }
    }
}

/// The response, after which the connection goes on if that is wanted and the answer is a good one.
fn response(answer: Answer, is_kept: bool) -> Response {
    let bytes = match answer {
        Answer::Says(text) => return events(&format!("{}{}", sse::text(&text), sse::end("stop")), is_kept),
        Answer::Asks(calls) => {
            let calls = calls.iter().enumerate();
            let calls: String = calls.map(|(at, (tool, arguments))| sse::call(at, tool, arguments)).collect();
            return events(&format!("{calls}{}", sse::end("tool_calls")), is_kept);
        }
        Answer::Fails(status, retry_after, message) => {
            let body = json!({ "error": { "message": message } }).to_string();
            let after = retry_after.map(|seconds| format!("retry-after: {seconds}\r\n")).unwrap_or_default();
            let head = format!("HTTP/1.1 {status} X\r\n{after}content-length: {}\r\n", body.len());
            format!("{head}content-type: application/json\r\nconnection: close\r\n\r\n{body}").into_bytes()
        }
        Answer::Cut(begin) => {
            let body = sse::text(&begin);
            let whole = format!("content-length: {}\r\n\r\n", body.len() + 1_000);
            format!("{}{whole}{body}", STREAM.trim_end_matches("\r\n").to_owned() + "\r\n").into_bytes()
        }
        Answer::Raw(body) => [STREAM.as_bytes(), &body].concat(),
        Answer::Speech(_) | Answer::Slowly(..) => unreachable!("is given piece by piece"),
        Answer::Later(..) => unreachable!("its time has come"),
    };
    Response { bytes, is_kept: false }
}

async fn slowly(stream: &mut TcpStream, pieces: &[String], wait: Duration) -> std::io::Result<()> {
    stream.write_all(STREAM.as_bytes()).await?;
    for piece in pieces {
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
        stream.write_all(sse::text(piece).as_bytes()).await?;
    }
    stream.write_all(sse::end("stop").as_bytes()).await
}

async fn speech(stream: TcpStream, live: Live, request: Value) {
    let Live { mut bytes, asked, gone } = live;
    let (mut reading, mut writing) = stream.into_split();
    // Nobody may be interested.
    asked.send_replace(Some(request));
    if writing.write_all(STREAM.as_bytes()).await.is_err() {
        gone.send_replace(true);
        return;
    }
    let mut rest = [0; 1024];
    loop {
        tokio::select! {
            piece = bytes.recv() => {
                let Some(piece) = piece else { break };
                if writing.write_all(&piece).await.is_err() {
                    break;
                }
            }
            read = reading.read(&mut rest) => {
                if matches!(read, Ok(0) | Err(_)) {
                    break;
                }
            }
        }
    }
    gone.send_replace(true);
}

async fn read(stream: &mut TcpStream) -> Option<Value> {
    let mut bytes = Vec::new();
    loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "))?;
            let length: usize = length.parse().ok()?;
            if let Some(body) = bytes.get(end + 4..end + 4 + length) {
                return serde_json::from_slice(body).ok();
            }
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
}
