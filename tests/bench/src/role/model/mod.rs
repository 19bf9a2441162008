//! A model server. What it answers, the prompt says: see [`Script`].

mod anthropic;
mod openai;

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use clap::ValueEnum;
use futures_util::{Stream, StreamExt as _};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use crate::Failure;

/// Characters of one piece of an answer: about a token.
pub(crate) const PIECE: &str = "word ";

/// The script of the model's answers, written in the user's last message: `rounds=1 deltas=20 pace=0`.
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

    /// Number of appends of a run: one before and one after each model call.
    pub(crate) fn appends(self) -> u32 {
        2 * self.rounds + 2
    }

    /// Parses the script in a prompt.
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
}

/// The API of the model server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Chat Completions
    Openai,
    /// Messages
    Anthropic,
}

impl Format {
    /// As options, roles and the server's configuration call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Format::Openai => "openai",
            Format::Anthropic => "anthropic",
        }
    }

    /// The path of requests.
    pub(crate) fn path(self) -> &'static str {
        match self {
            Format::Openai => "/v1/chat/completions",
            Format::Anthropic => "/v1/messages",
        }
    }

    /// The body of a request as our server sends it, so that the floor reads the same answers.
    pub(crate) fn request(self, script: Script, round: u32) -> String {
        match self {
            Format::Openai => openai::request(script, round),
            Format::Anthropic => anthropic::request(script, round),
        }
    }

    fn asked(self, body: &[u8]) -> Result<Asked, Failure> {
        match self {
            Format::Openai => openai::asked(body),
            Format::Anthropic => anthropic::asked(body),
        }
    }

    fn answer(self, Asked { script, round }: Asked) -> Vec<Bytes> {
        match (self, round < script.rounds) {
            (Format::Openai, true) => openai::tool_call(script, round),
            (Format::Openai, false) => openai::text(script),
            (Format::Anthropic, true) => anthropic::tool_call(script, round),
            (Format::Anthropic, false) => anthropic::text(script),
        }
    }
}

/// The script and round that a request is for.
#[derive(Debug, Clone, Copy)]
struct Asked {
    script: Script,
    /// Tool rounds that were made of it.
    round: u32,
}

fn call_id(round: u32) -> String {
    format!("call_{round}")
}

fn arguments(round: u32) -> serde_json::Value {
    serde_json::json!({ "text": format!("round {round}") })
}

fn tool_name(tool: char) -> &'static str {
    match tool {
        'a' => "guarded",
        's' => "slow",
        _ => "echo",
    }
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
    let path = request.uri().path();
    let format =
        Format::value_variants().iter().find(|format| format.path() == path).ok_or("no such path")?;
    let asked = format.asked(&request.into_body().collect().await?.to_bytes())?;
    let pieces = format.answer(asked);
    let pace = Duration::from_millis(asked.script.pace);
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
