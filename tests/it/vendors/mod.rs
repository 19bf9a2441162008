//! Conversations with vendors that check what they are sent: their own state comes back unchanged and in its place, and
//! nobody else's does.

mod cut_off;
mod failures;
mod history;
mod parameters;
mod refusals;
mod rounds;
mod secrecy;
mod switches;

use agentloop_client::v1 as wire;
use agentloop_tests::host::Host;
use agentloop_tests::input::in_session;
use agentloop_tests::server::{Provider, TestServer};
use agentloop_tests::vendor::{Asked, Format, Vendor};
use serde_json::{Value, json};
use wire::RunStatus;

/// A vendor's API and two of its models.
#[derive(Debug, Clone, Copy)]
struct Kind {
    format: Format,
    model: &'static str,
    other_model: &'static str,
    /// More keys of the provider.
    keys: &'static str,
}

/// Gemini behind Chat Completions, which signs calls.
const CHAT: Kind =
    Kind { format: Format::Chat, model: "gemini-3.8-flash", other_model: "gemini-4-argon", keys: "" };
const RESPONSES: Kind =
    Kind { format: Format::Responses, model: "gpt-6.1-sol", other_model: "gpt-5.6", keys: "" };
/// Binds thoughts to all that is before them.
const MESSAGES: Kind =
    Kind { format: Format::Messages, model: "claude-opus-5-5", other_model: "claude-sonnet-5-5", keys: "" };
const GEMINI: Kind =
    Kind { format: Format::Gemini, model: "gemini-3.8-flash", other_model: "gemini-4-argon", keys: "" };
/// Wants its reasoning back as it was.
const DEEPSEEK: Kind = Kind {
    format: Format::Chat,
    model: "deepseek-v4-pro",
    other_model: "deepseek-flash",
    keys: "send_reasoning = true",
};
/// Wants its list of reasoning details back.
const OPENROUTER: Kind = Kind {
    format: Format::Chat,
    model: "anthropic/claude-opus-5-5",
    other_model: "openai/gpt-6.1-sol",
    keys: "",
};

/// Makes a test of each kind out of each function, in a module of the function's name.
macro_rules! for_each_kind {
    ($($case:ident),+ $(,)?) => { $(
        mod $case {
            use super::super::{CHAT, GEMINI, MESSAGES, RESPONSES};

            #[tokio::test]
            async fn chat() {
                Box::pin(super::$case(CHAT)).await;
            }

            #[tokio::test]
            async fn responses() {
                Box::pin(super::$case(RESPONSES)).await;
            }

            #[tokio::test]
            async fn messages() {
                Box::pin(super::$case(MESSAGES)).await;
            }

            #[tokio::test]
            async fn gemini() {
                Box::pin(super::$case(GEMINI)).await;
            }
        }
    )+ };
}
use for_each_kind;

impl Kind {
    fn provider<'a>(&self, name: &'a str, vendor: &'a Vendor) -> Provider<'a> {
        Provider { name, vendor, format: self.format, keys: self.keys }
    }
}

/// The provider `a` of one kind.
async fn server_of(kind: Kind, vendor: &Vendor) -> TestServer {
    let model = format!("a/{}", kind.model);
    TestServer::asking(&[kind.provider("a", vendor)], &model, "").await
}

/// One vendor, asked by a server with the tools `weather` and `mail`.
struct World {
    vendor: Vendor,
    server: TestServer,
    host: Host,
}

async fn world(kind: Kind) -> World {
    let vendor = Vendor::start("a").await;
    let server = server_of(kind, &vendor).await;
    let host = Host::with(&server, "h1", |tool| ["weather", "mail"].contains(&tool)).await;
    World { vendor, server, host }
}

fn weather(city: &str) -> Value {
    json!({ "city": city })
}

/// Yes to a question.
fn approve() -> wire::decision::Decision {
    wire::decision::Decision::Approve(wire::Approve {})
}

/// A run of session `s1` that must come to its end.
async fn completes(server: &TestServer, run: &str) -> wire::RunResult {
    completes_with(server, in_session("s1", run, &format!("{run} asks"))).await
}

async fn completes_with(server: &TestServer, input: wire::RunInput) -> wire::RunResult {
    let result = server.run(input).await;
    assert_eq!(result.status(), RunStatus::Completed, "{:?}", result.last_error);
    result
}

/// Asserts that a request contains all of these states.
#[track_caller]
fn assert_has(asked: &Asked, states: &[String]) {
    for state in states {
        assert!(asked.contains(state), "{state} is missing in {:#}", asked.body);
    }
}

/// Asserts that a request contains none of these states.
#[track_caller]
fn assert_lacks(asked: &Asked, states: &[String]) {
    for state in states {
        assert!(!asked.contains(state), "{state} is in {:#}", asked.body);
    }
}
