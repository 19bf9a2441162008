//! A model server in the OpenAI format. What it answers, the prompt says: see [`Script`].

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use tokio::net::TcpListener;

use crate::Failure;

/// Characters of one piece of an answer: about a token.
pub(crate) const PIECE: &str = "word ";

/// What a prompt asks of the model, as the last message of the user says it: `rounds=1 deltas=20 pace=0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Script {
    /// Tool rounds before the answer; one call of `echo` each.
    pub(crate) rounds: u32,
    /// Pieces of the answer.
    pub(crate) deltas: u32,
    /// Milliseconds between two pieces.
    pub(crate) pace: u64,
    /// The tool that is called.
    pub(crate) tool: char,
}

impl Script {
    /// One tool round and an answer of 20 pieces.
    pub(crate) const W1: Script = Script { rounds: 1, deltas: 20, pace: 0, tool: 'e' };

    pub(crate) fn prompt(self) -> String {
        format!("rounds={} deltas={} pace={} tool={}", self.rounds, self.deltas, self.pace, self.tool)
    }

    /// What a prompt says.
    pub(crate) fn read(prompt: &str) -> Option<Script> {
        let mut script = Script { rounds: 0, deltas: 1, pace: 0, tool: 'e' };
        for word in prompt.split_whitespace() {
            let (name, value) = word.split_once('=')?;
            match name {
                "rounds" => script.rounds = value.parse().ok()?,
                "deltas" => script.deltas = value.parse().ok()?,
                "pace" => script.pace = value.parse().ok()?,
                "tool" => script.tool = value.chars().next()?,
                _ => return None,
            }
        }
        Some(script)
    }

    /// The body of a request as our server sends it, so that the floor reads the same answers.
    pub(crate) fn request(self, round: u32) -> String {
        let mut messages = vec![serde_json::json!({ "role": "user", "content": self.prompt() })];
        for round in 0..round {
            let id = format!("call_{round}");
            let function = serde_json::json!({ "name": tool_name(self.tool), "arguments": arguments(round) });
            messages.push(serde_json::json!({
                "role": "assistant",
                "content": null,
                "tool_calls": [{ "id": id, "type": "function", "function": function }],
            }));
            messages
                .push(serde_json::json!({ "role": "tool", "tool_call_id": id, "content": arguments(round) }));
        }
        serde_json::json!({ "model": "m", "stream": true, "messages": messages }).to_string()
    }
}

fn arguments(round: u32) -> String {
    format!("{{\"text\":\"round {round}\"}}")
}

fn tool_name(tool: char) -> &'static str {
    match tool {
        'a' => "guarded",
        's' => "slow",
        _ => "echo",
    }
}

#[derive(Deserialize)]
struct Asked<'a> {
    #[serde(borrow)]
    messages: Vec<Said<'a>>,
}

#[derive(Deserialize)]
struct Said<'a> {
    role: &'a str,
    #[serde(borrow, default)]
    content: Option<std::borrow::Cow<'a, str>>,
}

/// Listens on a free port, says which, and answers until it is killed.
pub(crate) async fn run() -> Result<(), Failure> {
    let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await?;
    crate::ready(&listener.local_addr()?.to_string());
    loop {
        let (connection, _) = listener.accept().await?;
        connection.set_nodelay(true)?;
        tokio::spawn(async move {
            let service = service_fn(answer);
            // A caller that hangs up is none of our business.
            let _gone = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(connection), service)
                .await;
        });
    }
}

async fn answer(request: Request<Incoming>) -> Result<Response<StreamBody<impl Pieces>>, Failure> {
    let body = request.into_body().collect().await?.to_bytes();
    let asked: Asked<'_> = serde_json::from_slice(&body)?;
    let user = asked.messages.iter().rposition(|said| said.role == "user").ok_or("nobody asks anything")?;
    let prompt = asked.messages[user].content.as_deref().unwrap_or_default();
    let script = Script::read(prompt).ok_or("not a prompt of ours")?;
    let round = asked.messages[user..].iter().filter(|said| said.role == "tool").count();
    let round = u32::try_from(round)?;
    let pieces = if round < script.rounds { tool_call(script, round) } else { text(script) };
    let pace = Duration::from_millis(script.pace);
    let stream = futures_util::stream::iter(pieces).enumerate().then(move |(at, piece)| async move {
        // The first piece and the end come at once.
        if !pace.is_zero() && at > 1 {
            tokio::time::sleep(pace).await;
        }
        Ok(Frame::data(piece))
    });
    let mut response = Response::new(StreamBody::new(stream));
    response.headers_mut().insert("content-type", "text/event-stream".parse()?);
    Ok(response)
}

trait Pieces: Stream<Item = Result<Frame<Bytes>, Infallible>> {}
impl<S: Stream<Item = Result<Frame<Bytes>, Infallible>>> Pieces for S {}

fn tool_call(script: Script, round: u32) -> Vec<Bytes> {
    let id = format!("call_{round}");
    let arguments = serde_json::Value::from(arguments(round));
    let name = tool_name(script.tool);
    let call = format!(
        r#"{{"tool_calls":[{{"index":0,"id":"{id}","type":"function","function":{{"name":"{name}","arguments":{arguments}}}}}]}}"#
    );
    vec![piece(r#"{"role":"assistant","content":null}"#), piece(&call), end("tool_calls")]
}

fn text(script: Script) -> Vec<Bytes> {
    let mut pieces = vec![piece(r#"{"role":"assistant","content":""}"#)];
    let delta = piece(&format!(r#"{{"content":"{PIECE}"}}"#));
    pieces.extend((0..script.deltas).map(|_| delta.clone()));
    pieces.push(end("stop"));
    pieces
}

fn piece(delta: &str) -> Bytes {
    chunk(&format!(r#"{{"index":0,"delta":{delta},"finish_reason":null}}"#), "")
}

fn end(reason: &str) -> Bytes {
    let usage = r#","usage":{"prompt_tokens":100,"completion_tokens":20,"total_tokens":120}"#;
    let last = chunk(&format!(r#"{{"index":0,"delta":{{}},"finish_reason":"{reason}"}}"#), usage);
    Bytes::from([&last[..], b"data: [DONE]\n\n"].concat())
}

fn chunk(choice: &str, more: &str) -> Bytes {
    let head = r#""id":"c-1","object":"chat.completion.chunk","created":1,"model":"m""#;
    Bytes::from(format!("data: {{{head},\"choices\":[{choice}]{more}}}\n\n"))
}
