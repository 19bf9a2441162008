//! The model server `aimock` (Node).

use agentloop_client::v1::decision::Decision;
use agentloop_client::v1::run_event::Event;
use agentloop_client::v1::{Approve, RunErrorCode, RunStatus, ToolStatus};
use agentloop_tests::vendor::Format;
use serde_json::{Value, json};
use tokio::process::Command;

use super::{failures, server_at};
use crate::support::child::Process;
use crate::support::follow::{Follower, outcome};
use crate::support::host::Host;
use crate::support::server::input;
use crate::support::{leave_out, may_install, on_path, top};

/// Longer than a chunk, so that it comes in pieces.
const ANSWER: &str = "Everything was waited for, and the mail is out: \u{1f4e8} to a@example.com.";

/// Makes a test of each format out of each function, in a module of the function's name.
macro_rules! in_each_format {
    ($($case:ident),+ $(,)?) => { $(
        mod $case {
            use agentloop_tests::vendor::Format;

            #[tokio::test]
            async fn chat() {
                super::$case(Format::Chat).await;
            }

            #[tokio::test]
            async fn responses() {
                super::$case(Format::Responses).await;
            }

            #[tokio::test]
            async fn messages() {
                super::$case(Format::Messages).await;
            }

            #[tokio::test]
            async fn gemini() {
                super::$case(Format::Gemini).await;
            }
        }
    )+ };
}

in_each_format!(converses, fails_and_goes_on);

/// Parallel calls, a question to a human, and an answer in pieces.
async fn converses(format: Format) {
    let dir = tempfile::tempdir().expect("a directory");
    let Some((_model, url)) = model_server(dir.path(), format).await else { return };
    let server = server_at(&url, format, dir.path()).await;
    let host = Host::start(&server, "h-1").await;
    let mut run = Follower::start(&server, input("r-1", "s-1", "Wait twice, then mail it")).await;
    for _ in 0..2 {
        assert_eq!(outcome(&run.result().await), (ToolStatus::Succeeded, "slept"));
    }
    let question = run.question().await;
    assert_eq!(question.arguments_json, r#"{"to":"a@example.com"}"#);
    run.decide(&question, Decision::Approve(Approve {})).await;
    let pieces = pieces(&mut run).await;
    assert!(pieces > 1, "the answer came in {pieces} pieces");
    assert_eq!(run.answer().await, ANSWER);
    assert_eq!((host.did("slow-end").len(), host.did("send_email").len()), (2, 1));
    assert_eq!(run.count(|event| matches!(event, Event::ModelCallStarted(_))), 3);
    assert_eq!(run.count(|event| matches!(event, Event::ModelCallFailed(_))), 0);
}

/// A limit, an overload and a stream that is cut are tried again; a request that is wrong is not.
async fn fails_and_goes_on(format: Format) {
    let dir = tempfile::tempdir().expect("a directory");
    let Some((_model, url)) = model_server(dir.path(), format).await else { return };
    let server = server_at(&url, format, dir.path()).await;
    let mut run = Follower::start(&server, input("r-1", "s-1", "Stumble")).await;
    assert_eq!(run.answer().await, ANSWER);
    let expected =
        [RunErrorCode::ModelRateLimited, RunErrorCode::ModelUnavailable, RunErrorCode::ModelConnection];
    assert_eq!(failures(&run), expected);
    let mut run = Follower::start(&server, input("r-2", "s-2", "Be refused")).await;
    let finished = run.finished().await;
    let error = finished.error.clone().expect("why");
    assert_eq!(
        (finished.status(), error.code(), error.http_status),
        (RunStatus::Failed, RunErrorCode::ModelBadRequest, 400)
    );
    assert!(error.message.contains("no such parameter"), "{}", error.message);
    assert_eq!(run.count(|event| matches!(event, Event::ModelCallStarted(_))), 1);
}

/// In how many pieces the model's last message came.
async fn pieces(run: &mut Follower) -> usize {
    let mut pieces = 0;
    while run
        .until("the answer", |event| match event {
            Event::ModelDelta(_) => Some(true),
            Event::AssistantMessage(_) => Some(false),
            _ => None,
        })
        .await
    {
        pieces += 1;
    }
    pieces
}

/// Starts one, and where it is asked in this format. It is strict: a request that nothing is prepared for fails.
async fn model_server(dir: &std::path::Path, format: Format) -> Option<(Process, String)> {
    let script = top().join("tests/mock-llm");
    let installed = top().join(".work/mock-llm/node_modules").exists();
    let installable = may_install() && on_path("npm").is_some();
    if !installed && !installable {
        leave_out("a model server for Node (tests/mock-llm --setup-only installs it)");
        return None;
    }
    let fixtures = dir.join("fixtures.json");
    std::fs::write(&fixtures, fixtures_json(format).to_string()).expect("written");
    let mut command = Command::new(script);
    // Chunks that are shorter than the answer, some milliseconds apart.
    command
        .args(["--strict", "--port", "0", "--chunk-size", "9", "--latency", "25", "--fixtures"])
        .arg(fixtures);
    let mut process = Process::start("model", command);
    let line = process.line_with("listening on").await;
    let url = line.rsplit(' ').next().expect("the line names it");
    let version = if format == Format::Gemini { "v1beta" } else { "v1" };
    Some((process, format!("{url}/{version}")))
}

/// The script of answers, by the number of earlier answers and of requests.
fn fixtures_json(format: Format) -> Value {
    let call = |name: &str, arguments: Value| json!({ "name": name, "arguments": arguments.to_string() });
    let slow = call("slow", json!({ "seconds": 0.1 }));
    let mail = call("send_email", json!({ "to": "a@example.com" }));
    // For Responses it counts each item of a response, and the first response has three.
    let turns = if format == Format::Responses { [0, 3, 4] } else { [0, 1, 2] };
    let turn = |turn: usize| json!({ "userMessage": "Wait twice", "turnIndex": turn });
    let asked = |times: usize| json!({ "userMessage": "Stumble", "sequenceIndex": times });
    let error = |status: u16, message: &str| json!({ "error": { "message": message, "type": "error" }, "status": status, "retryAfter": 1 });
    let refused = error(400, "no such parameter");
    json!({ "fixtures": [
        { "match": turn(turns[0]), "response": { "content": "I wait.", "toolCalls": [slow.clone(), slow] } },
        { "match": turn(turns[1]), "response": { "toolCalls": [mail] } },
        { "match": turn(turns[2]), "response": { "content": ANSWER } },
        { "match": asked(0), "response": error(429, "slow down") },
        { "match": asked(1), "response": error(503, "too much to do") },
        { "match": asked(2), "response": { "content": ANSWER }, "truncateAfterChunks": 3 },
        { "match": asked(3), "response": { "content": ANSWER } },
        { "match": { "userMessage": "Be refused" }, "response": refused },
    ] })
}
