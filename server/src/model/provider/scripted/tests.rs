use agentloop_core::context::assemble::{AssembledMessage, Assembler};
use agentloop_core::message::ToolStatus;
use futures_util::TryStreamExt as _;
use tokio::time::Instant;

use std::path::Path;

use super::*;
use crate::model::testing::fixtures::{assistant, call, request, result, text, user};

const WEATHER: &str = r#"
[[reply]]
when = { user_contains = "weather", step = 0 }
reasoning = "I need the forecast."
text = "Let me look that up."
tool_calls = [
    { name = "weather", arguments = { city = "Rome", ask = ["{{user}}"], days = 3 } },
    { name = "time" },
]

[[reply]]
when.tool_result_contains = "sunny"
text = "Good news: {{result}}"

[[reply]]
when.model = "broken"
text = "so far"
error = { kind = "rate_limited", message = "slow down", retry_after_ms = 500 }

[[reply]]
when.model = "cut"
tool_calls = [{ name = "f", arguments = '{"said": {{user}}' }]
finish = "length"

[[reply]]
when.model = "slow"
text = "one two three"
delay_ms = 100

[[reply]]
when.user_contains = "hello"
text = "You said: {{user}} {{{user}} {{other}}"
"#;

fn model() -> ScriptedModel {
    ScriptedModel::new(Script::parse("weather.toml", WEATHER).unwrap())
}

async fn deltas(request: ModelRequest) -> Result<Vec<Delta>, ModelError> {
    model().stream(request).try_collect().await
}

async fn finished(request: ModelRequest) -> AssembledMessage {
    let mut assembler = Assembler::new(1);
    for (seq, delta) in deltas(request).await.unwrap().into_iter().enumerate() {
        assembler.consume(seq as u64, delta).unwrap();
    }
    assembler.finish().unwrap()
}

fn of_model(model: &str, messages: Vec<Message>) -> ModelRequest {
    ModelRequest { model: model.to_owned(), ..request(messages) }
}

#[tokio::test]
async fn the_first_reply_that_fits_is_played() {
    let first = finished(request(vec![user("the weather?")])).await;
    assert_eq!(first.finish_reason, FinishReason::ToolCalls);
    assert_eq!(first.message.plain_text(), "Let me look that up.");
    let calls: Vec<_> =
        first.message.tool_calls().map(|call| (call.name.as_str(), call.arguments.as_str())).collect();
    assert_eq!(calls, [("weather", r#"{"ask":["the weather?"],"city":"Rome","days":3}"#), ("time", "{}")]);
    assert!(matches!(&first.message.parts[0], Part::Reasoning(r) if r.text == "I need the forecast."));

    let second = finished(request(vec![
        user("the weather?"),
        first.message,
        result("a", ToolStatus::Succeeded, "it is sunny", vec![]),
        result("b", ToolStatus::Succeeded, "noon", vec![]),
    ]))
    .await;
    assert_eq!(second.message.plain_text(), "Good news: noon");
    assert_eq!(second.finish_reason, FinishReason::Stop);
    assert_eq!((second.usage.input_tokens, second.usage.output_tokens), (14, 3));
}

#[tokio::test]
async fn results_of_earlier_rounds_do_not_count() {
    let history = vec![
        user("hello"),
        assistant(vec![call("a", "f", "{}")]),
        result("a", ToolStatus::Succeeded, "sunny", vec![]),
        assistant(vec![text("ok")]),
        user("hello again"),
    ];
    assert_eq!(
        finished(request(history)).await.message.plain_text(),
        "You said: hello again {hello again {{other}}"
    );
}

#[tokio::test]
async fn what_is_filled_in_is_no_template() {
    let finished = finished(request(vec![user("hello {{result}}")])).await;
    assert!(finished.message.plain_text().starts_with("You said: hello {{result}} "));
}

#[tokio::test]
async fn text_comes_word_by_word() {
    let deltas = deltas(of_model("slow", vec![user("x")])).await.unwrap();
    let text = |text: &str| Delta::Text { text: text.to_owned() };
    assert_eq!(deltas[..3], [text("one "), text("two "), text("three")]);
    assert_eq!(deltas.last(), Some(&Delta::Finish { reason: FinishReason::Stop }));
}

#[tokio::test]
async fn the_same_request_gives_the_same_answer() {
    let ask = || request(vec![user("the weather?")]);
    assert_eq!(deltas(ask()).await, deltas(ask()).await);
}

#[tokio::test]
async fn errors_come_after_what_was_said() {
    let items: Vec<_> = model().stream(of_model("broken", vec![])).collect().await;
    assert_eq!(items.len(), 3);
    assert_eq!(
        items[2],
        Err(ModelError {
            kind: ModelErrorKind::RateLimited,
            message: "slow down".to_owned(),
            status: None,
            retry_after: Some(Millis(500)),
        })
    );
}

#[tokio::test]
async fn arguments_may_be_broken() {
    let finished = finished(of_model("cut", vec![user("x")])).await;
    assert_eq!(finished.message.tool_calls().next().unwrap().arguments, r#"{"said": x"#);
    assert_eq!(finished.finish_reason, FinishReason::Length);
}

#[tokio::test]
async fn no_reply_is_a_bad_request() {
    let error = deltas(request(vec![user("x"), assistant(vec![text("y")])])).await.unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::BadRequest);
    assert_eq!(error.message, "none of the 6 replies of the script matches (model \"m-1\", step 1)");
}

#[tokio::test(start_paused = true)]
async fn delays_are_waited_and_count_against_timeouts() {
    let slow = |change: fn(&mut ModelTimeouts)| {
        let mut request = of_model("slow", vec![]);
        change(&mut request.timeouts);
        request
    };
    let start = Instant::now();
    assert!(deltas(slow(|_| ())).await.is_ok());
    assert_eq!(start.elapsed().as_millis(), 500);

    for (change, waited) in [
        ((|t| t.first_token = Millis(99)) as fn(&mut ModelTimeouts), 99),
        (|t| t.idle = Millis(50), 150),
        (|t| t.total = Millis(250), 250),
    ] {
        let start = Instant::now();
        assert_eq!(deltas(slow(change)).await.unwrap_err().kind, ModelErrorKind::Timeout);
        assert_eq!(start.elapsed().as_millis(), waited);
    }
}

#[test]
fn mistakes_are_named_with_their_place() {
    for (text, place, what) in [
        ("[[reply]]\ntxt = 1", "line 2, column 1: ", "unknown field `txt`"),
        ("[[reply]]\nwhen.who = 1", "line 2", "unknown field `who`"),
        ("[[replies]]\n", "line 1", "unknown field `replies`"),
        ("[[reply]]\n\ntext = 1", "line 3", "expected a string"),
        ("[[reply]]\nerror.kind = \"lenient\"", "line 2", "unknown variant `lenient`"),
        ("[[reply]]\ntool_calls = [{ name = \"f\", arguments = 7 }]", "line 2", "a table or a text"),
        ("[[reply]]\ntool_calls = [{}]", "line 2", "missing field `name`"),
        ("[[reply", "line 1", ""),
    ] {
        let error = Script::parse("s.toml", text).unwrap_err().to_string();
        assert!(error.starts_with("script s.toml: ") && error.lines().count() == 1, "{error}");
        assert!(error.contains(place) && error.contains(what), "{error}");
    }
    assert!(Script::parse("s.toml", "").unwrap_err().to_string().contains("missing field `reply`"));
}

#[test]
fn the_example_of_the_documentation_is_a_script() {
    let example: String = include_str!("mod.rs")
        .lines()
        .skip_while(|line| *line != "//! ```toml")
        .skip(1)
        .take_while(|line| *line != "//! ```")
        .map(|line| format!("{}\n", line.trim_start_matches("//!").trim_start()))
        .collect();
    assert_eq!(Script::parse("example", &example).unwrap().replies.len(), 4);
}

#[test]
fn scripts_are_read_from_files() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), WEATHER).unwrap();
    assert_eq!(Script::load(file.path()).unwrap().replies.len(), 6);
    let missing = Script::load(Path::new("no/such.toml")).unwrap_err();
    assert!(missing.to_string().starts_with("script no/such.toml: "), "{missing}");
}
