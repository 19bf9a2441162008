//! The model server `llmock` (Python), which also checks the requests.

use agentloop_client::v1::{RunErrorCode, RunStatus, ToolStatus};
use agentloop_tests::vendor::Format;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::Command;

use super::{failures, server_at};
use crate::support::child::Process;
use crate::support::follow::{Follower, outcome};
use crate::support::host::Host;
use crate::support::server::input;
use crate::support::{leave_out, may_install, on_path, soon, top};

/// One process for all formats: it takes long to start.
#[tokio::test]
async fn finds_no_fault_with_us() {
    let Some(model) = Llmock::start().await else { return };
    for format in [Format::Chat, Format::Responses, Format::Messages, Format::Gemini] {
        println!("{format:?}");
        Box::pin(finds_no_fault(&model, format)).await;
        model.asked("POST", "/_llmock/reset", "").await;
    }
}

/// Limits, overloads and cut streams in turn, and calls that run together.
async fn finds_no_fault(model: &Llmock, format: Format) {
    let dir = tempfile::tempdir().expect("a directory");
    let server = server_at(&model.base_url(format), format, dir.path()).await;
    let host = Host::start(&server, "h-1").await;
    let slow = json!({ "name": "slow", "arguments": { "seconds": 0.05 } });
    model
        .plays(&[
            json!({ "type": "fail", "status": 429, "retry_after": 0.3 }),
            json!({ "type": "reply", "tool_calls": [slow, slow] }),
            json!({ "type": "reply", "text": "It was waited for twice." }),
        ])
        .await;
    let mut run = Follower::start(&server, input("r-1", "s-1", "Wait twice")).await;
    for _ in 0..2 {
        assert_eq!(outcome(&run.result().await), (ToolStatus::Succeeded, "slept"));
    }
    assert_eq!(run.answer().await, "It was waited for twice.");
    assert_eq!((host.did("slow-end").len(), failures(&run)), (2, vec![RunErrorCode::ModelRateLimited]));

    let text = "One, two, three, four, five, six, seven.";
    model
        .plays(&[
            json!({ "type": "fail", "status": 503 }),
            json!({ "type": "stream_fault", "kind": "truncate", "after_chunks": 2 }),
            json!({ "type": "stream_fault", "kind": "disconnect", "after_chunks": 2 }),
            json!({ "type": "reply", "text": text, "times": 3 }),
        ])
        .await;
    let mut run = Follower::start(&server, input("r-2", "s-1", "Count")).await;
    assert_eq!(run.answer().await, text);
    let expected =
        [RunErrorCode::ModelUnavailable, RunErrorCode::ModelMalformed, RunErrorCode::ModelConnection];
    assert_eq!(failures(&run), expected);

    model.plays(&[json!({ "type": "fail", "status": 400 })]).await;
    let mut run = Follower::start(&server, input("r-3", "s-1", "Be refused")).await;
    let finished = run.finished().await;
    let error = finished.error.clone().expect("why");
    assert_eq!((finished.status(), error.code()), (RunStatus::Failed, RunErrorCode::ModelBadRequest));

    let verdict = model.asked("GET", "/_llmock/verdict", "").await;
    let errors = verdict["findings"].as_array().expect("a list");
    let errors: Vec<&Value> = errors.iter().filter(|finding| finding["severity"] == "error").collect();
    assert!(errors.is_empty(), "{errors:#?}");
    let seen = model.asked("GET", "/_llmock/requests", "").await;
    assert_eq!(seen["count"], 8, "{seen:#}");
}

/// Starts one and waits until it listens.
struct Llmock {
    _process: Process,
    address: String,
}

impl Llmock {
    /// `None` where it was not set up and needs not be.
    async fn start() -> Option<Self> {
        let installed = top().join(".work/mock-llm-py/installed").exists();
        let installable = may_install() && on_path("python3").is_some();
        if !installed && !installable {
            leave_out("a model server for Python (tests/mock-llm-py --setup-only installs it)");
            return None;
        }
        let mut command = Command::new(top().join("tests/mock-llm-py"));
        command.args(["--port", "0"]);
        let mut process = Process::start("model", command);
        let line = process.line_with("running on http://").await;
        let rest = line.split("running on http://").nth(1).expect("the line names it");
        let address = rest.split(' ').next().expect("an address").to_owned();
        Some(Self { _process: process, address })
    }

    fn base_url(&self, format: Format) -> String {
        let path = match format {
            Format::Chat | Format::Responses => "v1",
            Format::Messages => "anthropic",
            Format::Gemini => "gemini/v1beta",
        };
        format!("http://{}/{path}", self.address)
    }

    /// Sets the next answers. Each is used for the first request that it matches.
    async fn plays(&self, behaviors: &[Value]) {
        let queued =
            self.asked("POST", "/_llmock/scenario", &json!({ "behaviors": behaviors }).to_string()).await;
        assert_eq!(queued["queued"], behaviors.len());
    }

    async fn asked(&self, method: &str, path: &str, body: &str) -> Value {
        let (address, length) = (&self.address, body.len());
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-length: {length}"
        );
        let exchange = async {
            let mut stream = TcpStream::connect(address).await?;
            stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes()).await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            std::io::Result::Ok(answer)
        };
        let answer = soon(path, exchange).await.expect("it answers");
        let (_, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"))
    }
}
