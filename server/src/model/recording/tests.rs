use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use agentloop_core::agent::ModelTimeouts;
use agentloop_core::id::CallSlot;
use agentloop_core::message::{FinishReason, Message, Part, ToolStatus};
use agentloop_core::model::delta::Delta;
use agentloop_core::time::Millis;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use parking_lot::Mutex;
use tempfile::TempDir;

use super::*;
use crate::model::testing::fixtures::{assistant, call, reasoning, request, result, text, tool, user};
use crate::model::{Model, ModelError, ModelErrorKind, ModelRequest};

type Item = Result<Delta, ModelError>;

/// A model with one prepared answer for each call, in order.
struct Canned(Mutex<Vec<Vec<Item>>>);

impl Model for Canned {
    fn stream(&self, _request: ModelRequest) -> BoxStream<'static, Item> {
        let answer = self.0.lock().remove(0);
        // Like a provider's stream, it does not end at the last delta.
        stream::iter(answer).chain(stream::pending()).boxed()
    }
}

fn text_answer(text: &str) -> Vec<Item> {
    let text = Delta::Text { text: text.to_owned() };
    vec![Ok(text), Ok(Delta::Finish { reason: FinishReason::Stop })]
}

fn failing_answer() -> Vec<Item> {
    let error = ModelError {
        kind: ModelErrorKind::RateLimited,
        message: "slow down".to_owned(),
        status: Some(429),
        retry_after: Some(Millis(7)),
    };
    vec![Ok(Delta::Text { text: "be".to_owned() }), Err(error)]
}

struct TestRecording {
    folder: TempDir,
}

impl TestRecording {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("calls.jsonl")
    }

    /// Records these calls, each to its finish or error.
    async fn of(calls: Vec<(ModelRequest, Vec<Item>)>) -> Self {
        let recording = Self::new();
        recording.add(calls).await;
        recording
    }

    async fn add(&self, calls: Vec<(ModelRequest, Vec<Item>)>) {
        let (requests, answers): (Vec<_>, Vec<_>) = calls.into_iter().unzip();
        let writer = Arc::new(RecordingWriter::open(&self.path()).unwrap());
        let model = RecordingModel::new("p", Arc::new(Canned(Mutex::new(answers))), writer);
        for request in requests {
            call_model(&model, request).await;
        }
    }

    fn replayed(&self) -> ReplayModel {
        ReplayModel::load(&self.path()).unwrap()
    }

    fn text(&self) -> String {
        fs::read_to_string(self.path()).unwrap()
    }
}

/// Calls the model and collects items up to the finish or the first error.
async fn call_model(model: &dyn Model, request: ModelRequest) -> Vec<Item> {
    let (mut stream, mut items) = (model.stream(request), Vec::new());
    while let Some(item) = stream.next().await {
        let last = matches!(&item, Ok(Delta::Finish { .. }) | Err(_));
        items.push(item);
        if last {
            break;
        }
    }
    items
}

async fn refusal_message(model: &dyn Model, request: ModelRequest) -> String {
    match call_model(model, request).await.as_slice() {
        [Err(error)] if error.kind == ModelErrorKind::BadRequest => error.message.clone(),
        other => panic!("{other:?}"),
    }
}

fn ask(question: &str) -> ModelRequest {
    request(vec![user(question)])
}

#[tokio::test]
async fn what_was_heard_is_heard_again() {
    let recording = TestRecording::of(vec![
        (ask("a"), text_answer("1")),
        (ask("b"), failing_answer()),
        (ask("b"), text_answer("2")),
    ])
    .await;
    let replayed = recording.replayed();
    assert_eq!(call_model(&replayed, ask("b")).await, failing_answer());
    assert_eq!(call_model(&replayed, ask("b")).await, text_answer("2"));
    assert_eq!(call_model(&replayed, ask("a")).await, text_answer("1"));
    let again = refusal_message(&replayed, ask("b")).await;
    assert!(again.ends_with("calls.jsonl was played before (line 2, 3)"), "{again}");
    assert_eq!(call_model(&recording.replayed(), ask("a")).await, text_answer("1"), "after a restart");
}

#[tokio::test]
async fn a_line_is_the_request_and_the_answer() {
    let mut asked = ask("a");
    asked.system_prompt = "be good".to_owned();
    asked.tools = [tool("f", "{}")].into();
    let recording = TestRecording::of(vec![(asked, failing_answer())]).await;
    let text = recording.text();
    let line: serde_json::Value = serde_json::from_str(text.strip_suffix('\n').unwrap()).unwrap();
    assert_eq!(line["v"], 1);
    assert_eq!(line["provider"], "p");
    assert_eq!(line["request"]["system_prompt"], "be good");
    assert_eq!(line["request"]["messages"][0]["parts"][0]["text"], "a");
    assert_eq!(line["request"]["tools"][0]["name"], "f");
    assert_eq!(line["deltas"][0], serde_json::json!({"type": "text", "text": "be"}));
    assert_eq!(
        line["end"],
        serde_json::json!({
            "type": "failed", "kind": "rate_limited", "message": "slow down", "status": 429, "retry_after": 7,
        })
    );
    assert!(line["started_at"].as_u64().unwrap() > 1_600_000_000_000);
    assert_eq!(line["digest"].as_str().unwrap().len(), 32);
}

#[tokio::test]
async fn a_call_that_nobody_waits_for_is_recorded_as_cancelled() {
    let recording = TestRecording::new();
    let writer = Arc::new(RecordingWriter::open(&recording.path()).unwrap());
    let answers = vec![vec![text_answer("one").remove(0)], text_answer("never polled"), text_answer("two")];
    let model = RecordingModel::new("p", Arc::new(Canned(Mutex::new(answers))), writer);
    let mut cancelled = model.stream(ask("a"));
    assert!(cancelled.next().await.unwrap().is_ok());
    drop(cancelled);
    drop(model.stream(ask("a")));
    call_model(&model, ask("a")).await;
    assert_eq!(recording.text().lines().count(), 2, "what was never sent is no call");

    let replayed = recording.replayed();
    assert_eq!(call_model(&replayed, ask("a")).await, text_answer("two"), "one that has an end goes first");
    let cut = call_model(&replayed, ask("a")).await;
    assert_eq!(cut[0], text_answer("one")[0]);
    assert_eq!(cut[1].as_ref().unwrap_err().kind, ModelErrorKind::Connection);
}

#[tokio::test]
async fn what_differs_between_two_runs_that_say_the_same_does_not_count() {
    let history = |id: &str, slot: CallSlot, signature: &str| {
        let mut messages = vec![
            user("weather?"),
            assistant(vec![reasoning("hm", Some(signature), None), call(id, "f", "{}")]),
            result(id, ToolStatus::Succeeded, "sunny", vec![]),
        ];
        for part in messages.iter_mut().flat_map(|message| &mut message.parts) {
            match part {
                Part::ToolCall(call) => call.slot = slot,
                Part::ToolResult(result) => result.slot = slot,
                Part::Text { .. } | Part::Reasoning(_) | Part::Opaque(_) | Part::Image { .. } => {}
            }
        }
        request(messages)
    };
    let mut recorded = history("x", CallSlot::from((1, 0)), "s1");
    recorded.tools = [tool("f", r#"{"type":"object","properties":{}}"#)].into();
    let recording = TestRecording::of(vec![(recorded, text_answer("ok"))]).await;
    let mut asked = history("y", CallSlot::from((2, 3)), "s2");
    asked.timeouts = ModelTimeouts { total: Millis(1), ..ModelTimeouts::default() };
    let mut same_tool = (*tool("f", r#"{ "properties": {}, "type": "object" }"#)).clone();
    same_tool.requires_approval = true;
    asked.tools = [Arc::new(same_tool)].into();
    assert_eq!(call_model(&recording.replayed(), asked).await, text_answer("ok"));
}

/// A request whose two results are of the calls with these ids.
fn two_results(first: &str, second: &str) -> ModelRequest {
    request(vec![
        assistant(vec![call("a", "f", "{}"), call("b", "f", "{}")]),
        result(first, ToolStatus::Succeeded, "1", vec![]),
        result(second, ToolStatus::Succeeded, "2", vec![]),
    ])
}

#[tokio::test]
async fn whose_result_it_is_counts() {
    let recording = TestRecording::of(vec![(two_results("a", "b"), text_answer("ok"))]).await;
    let replayed = recording.replayed();
    refusal_message(&replayed, two_results("b", "a")).await;
    assert_eq!(call_model(&replayed, two_results("a", "b")).await, text_answer("ok"));
}

#[tokio::test]
async fn what_fits_nothing_is_told_where_it_differs_from_the_nearest() {
    let long = |question: &str| {
        request(vec![
            user("begin"),
            assistant(vec![text("yes?")]),
            user(question),
            assistant(vec![text("no")]),
        ])
    };
    let recording = TestRecording::of(vec![
        (ask("something else"), text_answer("1")),
        (long("the question about the weather in Rome"), text_answer("2")),
    ])
    .await;
    let replayed = recording.replayed();
    let told = async |change: &dyn Fn(&mut ModelRequest)| {
        let mut asked = long("the question about the weather in Rome");
        change(&mut asked);
        let told = refusal_message(&replayed, asked).await;
        told.split_once("in the nearest one, ").unwrap().1.to_owned()
    };
    let message = |text: &str| Arc::new(user(text));
    assert_eq!(
        told(&|asked| asked.messages[2] = message("the question about the weather in Bern")).await,
        r#"line 2, message 3 (User) differs: "on about the weather in Rome\"}],\"role\":\"user\"}" there, "on about the weather in Bern\"}],\"role\":\"user\"}" here"#
    );
    assert_eq!(
        told(&|asked| asked.model = "m-2".to_owned()).await,
        r#"line 2, the model differs: "m-1" there, "m-2" here"#
    );
    assert_eq!(
        told(&|asked| asked.tools = [tool("f", "{}")].into()).await,
        r#"line 2, the list of tools differs: "[]" there, "[{\"description\":\"Does f.\",\"name\":\"f\",\"schema\":{}}]" here"#
    );
    assert_eq!(
        told(&|asked| asked.messages.truncate(3)).await,
        "line 2, the conversation has 4 messages there and 3 here, the same as far as both go"
    );
    assert!(
        told(&|asked| asked.options.temperature = Some(0.5)).await.starts_with("line 2, the options differs")
    );
    assert!(
        told(&|asked| asked.system_prompt = "x".to_owned()).await.starts_with("line 2, the system prompt")
    );
}

#[tokio::test]
async fn an_empty_recording_answers_nothing() {
    let recording = TestRecording::of(vec![]).await;
    assert!(refusal_message(&recording.replayed(), ask("a")).await.ends_with("has no recording at all"));
}

#[tokio::test]
async fn a_killed_process_loses_its_last_line_and_no_other() {
    let recording = TestRecording::of(vec![(ask("a"), text_answer("1")), (ask("b"), text_answer("2"))]).await;
    let whole = recording.text();
    let second = whole.find('\n').unwrap() + 1;
    for end in [second + 1, second + 40, whole.len() - 2] {
        fs::write(recording.path(), &whole.as_bytes()[..end]).unwrap();
        let read = file::read(&recording.path()).unwrap();
        assert_eq!((read.lines.len(), read.cut), (1, Some(2)), "cut at {end}");
        recording.add(vec![(ask("c"), text_answer("3"))]).await;
        let read = file::read(&recording.path()).unwrap();
        assert_eq!((read.lines.len(), read.cut), (2, None), "gone on after a cut at {end}");
    }
}

#[tokio::test]
async fn a_file_of_something_else_is_left_as_it_is() {
    let whole = TestRecording::of(vec![(ask("a"), text_answer("1"))]).await.text();
    let recording = TestRecording::new();
    for (text, message) in [
        ("{\"version\":1,\"token\":\"x\"}".to_owned(), "its last line is neither a recorded call"),
        ("a note".to_owned(), "its last line is neither a recorded call"),
        ("a note\n".to_owned(), "it holds something else than recorded calls"),
        ("\n\n{\"v\":1}\n".to_owned(), "it holds something else than recorded calls"),
        (whole.replace("{\"v\":1,", "{\"v\":2,"), "it holds something else than recorded calls"),
        (format!("{whole}a note"), "its last line is neither a recorded call"),
    ] {
        fs::write(recording.path(), &text).unwrap();
        let error = RecordingWriter::open(&recording.path()).unwrap_err();
        assert!(error.message.starts_with(message), "{text}: {error}");
        assert_eq!(recording.text(), text);
    }
    for (text, left) in [("", ""), ("\n", "\n"), (&whole[..1], ""), (&whole[..60], "")] {
        fs::write(recording.path(), text).unwrap();
        RecordingWriter::open(&recording.path()).unwrap();
        assert_eq!(recording.text(), left);
    }
}

#[tokio::test]
async fn a_last_line_without_a_newline_is_a_line() {
    let recording = TestRecording::of(vec![(ask("a"), text_answer("1"))]).await;
    let text = recording.text();
    fs::write(recording.path(), text.trim_end()).unwrap();
    assert_eq!(file::read(&recording.path()).unwrap().cut, None);
    recording.add(vec![(ask("b"), text_answer("2"))]).await;
    assert_eq!(call_model(&recording.replayed(), ask("a")).await, text_answer("1"));
    assert_eq!(recording.text().lines().count(), 2);
}

#[tokio::test]
async fn lines_that_are_none_are_named() {
    let recording = TestRecording::of(vec![(ask("a"), text_answer("1"))]).await;
    let whole = recording.text();
    let error = |text: String| {
        fs::write(recording.path(), text).unwrap();
        ReplayModel::load(&recording.path()).unwrap_err().message
    };
    assert!(error(format!("\n{{\n{whole}")).starts_with("line 2: not JSON: "));
    assert_eq!(
        error(format!("{whole}{}", whole.replace("{\"v\":1,", "{\"v\":2,"))),
        "line 2: it is in format 2, this server reads format 1"
    );
    assert!(error("{\"v\":1}\n".to_owned()).starts_with("line 1: not a recorded call: missing field"));
    assert!(error("[]\n".to_owned()).starts_with("line 1: not a recorded call: "));
    let missing = ReplayModel::load(Path::new("/nowhere/at/all")).unwrap_err();
    assert!(missing.to_string().starts_with("recording /nowhere/at/all: "));
}

#[cfg(unix)]
#[tokio::test]
async fn nobody_else_can_read_it() {
    use std::os::unix::fs::PermissionsExt as _;

    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let recording = TestRecording::of(vec![]).await;
    assert_eq!(mode(&recording.path()), 0o600);
    fs::set_permissions(recording.path(), fs::Permissions::from_mode(0o644)).unwrap();
    recording.add(vec![]).await;
    assert_eq!(mode(&recording.path()), 0o600, "also a file that was there before");
}

#[tokio::test]
async fn several_writers_do_not_tear_lines() {
    let recording = TestRecording::new();
    let message = Message::text(agentloop_core::message::Role::User, "x".repeat(100_000));
    let writers: Vec<_> = (0..4)
        .map(|_| {
            let message = message.clone();
            let writer = Arc::new(RecordingWriter::open(&recording.path()).unwrap());
            let model =
                RecordingModel::new("p", Arc::new(Canned(Mutex::new(vec![text_answer("1"); 8]))), writer);
            std::thread::spawn(move || {
                for _ in 0..8 {
                    futures_util::FutureExt::now_or_never(call_model(&model, request(vec![message.clone()])))
                        .unwrap();
                }
            })
        })
        .collect();
    for writer in writers {
        writer.join().unwrap();
    }
    fs::OpenOptions::new().append(true).open(recording.path()).unwrap().write_all(b"{\"v").unwrap();
    let read = file::read(&recording.path()).unwrap();
    assert_eq!((read.lines.len(), read.cut), (32, Some(33)));
}
