//! Providers against a local HTTP server.

mod cuts;
mod gemini;
mod responses;
mod server;

use std::sync::Arc;

use agentloop_core::context::assemble::{AssembledMessage, Assembler};
use agentloop_core::limits::SHORT_TEXT_BYTES_MAX;
use agentloop_core::message::FinishReason;
use agentloop_core::model::delta::Delta;
use agentloop_core::time::Millis;
use futures_util::{StreamExt as _, TryStreamExt as _};
use serde_json::{Value, json};

use self::server::{CannedAnswer, TestServer, Then, answer, events};
use crate::model::testing::fixtures::{assistant, reasoning, request, text, user};
use crate::model::{
    AnthropicOptions, HttpOptions, Model, ModelError, ModelErrorKind, ModelRequest, Models as _,
    OpenAiOptions, ProviderKind, ProviderOptions, ProviderRegistry,
};
use crate::secret::Secret;

const KEY: &str = "sk-very-secret-key";

const CHAT: &str = concat!(
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"Grü\"}}]}\n\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"ezi\"}}]}\n\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"function\":",
    "{\"name\":\"f\",\"arguments\":\"{\\\"x\\\"\"}}]}}]}\n\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\":12}\"}}]}}]}\n\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\n",
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":4}}\n\n",
    "data: [DONE]\n\n",
);

const MESSAGES: &str = concat!(
    "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":9}}}\n\n",
    "event: ping\ndata: {\"type\":\"ping\"}\n\n",
    "event: content_block_start\n",
    "data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"Grü\"}}\n\n",
    "event: content_block_delta\n",
    "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"ezi\"}}\n\n",
    "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n",
    "data: {\"type\":\"content_block_start\",\"index\":1,\"content_block\":{\"type\":\"tool_use\",\"id\":\"a\",\"name\":\"f\"}}\n\n",
    "data: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":",
    "{\"type\":\"input_json_delta\",\"partial_json\":\"{\\\"x\\\":12}\"}}\n\n",
    "data: {\"type\":\"content_block_stop\",\"index\":1}\n\n",
    "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"tool_use\"},\"usage\":{\"output_tokens\":4}}\n\n",
    "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
);

fn openai() -> ProviderKind {
    ProviderKind::OpenAi(OpenAiOptions::default())
}

fn anthropic() -> ProviderKind {
    ProviderKind::Anthropic(AnthropicOptions::default())
}

fn provider(kind: ProviderKind, base_url: &str, key: Option<&str>) -> Arc<dyn Model> {
    let options = ProviderOptions {
        base_url: Some(base_url.to_owned()),
        api_key: key.map(Secret::new),
        ..ProviderOptions::new("p", kind)
    };
    let registry = ProviderRegistry::new(HttpOptions { system_proxy: false }, [options]).unwrap();
    registry.resolve("p/m-1").unwrap().0
}

fn assemble(deltas: Vec<Delta>) -> AssembledMessage {
    let mut assembler = Assembler::new(1);
    for (seq, delta) in deltas.into_iter().enumerate() {
        assembler.consume(seq as u64, delta).unwrap();
    }
    assembler.finish().unwrap()
}

/// Calls a provider whose server gives this answer.
async fn ask(kind: ProviderKind, answer: CannedAnswer) -> Result<Vec<Delta>, ModelError> {
    ask_for(request(vec![user("hi")]), kind, answer).await
}

async fn ask_for(
    request: ModelRequest,
    kind: ProviderKind,
    answer: CannedAnswer,
) -> Result<Vec<Delta>, ModelError> {
    let server = TestServer::start(vec![answer]).await;
    provider(kind, &server.base_url, Some(KEY)).stream(request).try_collect().await
}

async fn error(kind: ProviderKind, answer: CannedAnswer) -> ModelError {
    ask(kind, answer).await.unwrap_err()
}

#[track_caller]
fn check_greeting(finished: &AssembledMessage) {
    assert_eq!(finished.message.plain_text(), "Grüezi");
    let call = finished.message.tool_calls().next().unwrap();
    assert_eq!(
        (call.provider_id.as_str(), call.name.as_str(), call.arguments.as_str()),
        ("a", "f", "{\"x\":12}")
    );
    assert_eq!(finished.finish_reason, FinishReason::ToolCalls);
}

#[tokio::test]
async fn chat_completions_from_end_to_end() {
    let server = TestServer::start(vec![events(CHAT)]).await;
    let model = provider(openai(), &server.base_url, Some(KEY));
    let finished = assemble(model.stream(request(vec![user("hi")])).try_collect().await.unwrap());
    check_greeting(&finished);
    assert_eq!((finished.usage.input_tokens, finished.usage.output_tokens), (9, 4));
    let asked = server.requests().remove(0);
    assert!(asked.head.starts_with("post /v1/chat/completions http/1.1"), "{}", asked.head);
    assert!(asked.head.contains(&format!("authorization: bearer {KEY}")));
    assert!(asked.head.contains("content-type: application/json"));
    assert_eq!(asked.body["messages"], json!([{"role": "user", "content": "hi"}]));
    assert_eq!((&asked.body["model"], &asked.body["stream"]), (&json!("m-1"), &json!(true)));
}

#[tokio::test]
async fn messages_from_end_to_end() {
    let server = TestServer::start(vec![events(MESSAGES)]).await;
    let model = provider(anthropic(), &server.base_url, Some(KEY));
    let finished = assemble(model.stream(request(vec![user("hi")])).try_collect().await.unwrap());
    check_greeting(&finished);
    assert_eq!((finished.usage.input_tokens, finished.usage.output_tokens), (9, 4));
    let asked = server.requests().remove(0);
    assert!(asked.head.starts_with("post /v1/messages http/1.1"), "{}", asked.head);
    assert!(asked.head.contains(&format!("x-api-key: {KEY}")));
    assert!(asked.head.contains("anthropic-version: 2023-06-01"));
    assert_eq!(asked.body["max_tokens"], json!(4096));
}

#[tokio::test]
async fn local_servers_get_no_key() {
    for kind in [openai(), anthropic()] {
        let server = TestServer::start(vec![events(CHAT)]).await;
        let _ = provider(kind, &server.base_url, None).stream(request(vec![])).next().await;
        let head = server.requests().remove(0).head;
        assert!(!head.contains("authorization") && !head.contains("x-api-key"), "{head}");
    }
}

#[tokio::test]
async fn nothing_is_sent_before_it_is_polled_and_dropping_cancels() {
    let mut server = TestServer::start(vec![events("data: {}\n\n").then(Then::Hold)]).await;
    let model = provider(openai(), &server.base_url, None);
    drop(model.stream(request(vec![])));
    let mut stream = model.stream(request(vec![]));
    tokio::select! {
        item = stream.next() => panic!("{item:?}"),
        () = async { while server.requests().is_empty() { tokio::task::yield_now().await } } => {}
    }
    drop(stream);
    server.gone().await;
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn the_end_of_the_answer_is_the_end_of_the_stream() {
    for (kind, body) in [(openai(), CHAT), (anthropic(), MESSAGES)] {
        let deltas = ask(kind, events(body).then(Then::Hold)).await.unwrap();
        assert_eq!(deltas.last(), Some(&Delta::Finish { reason: FinishReason::ToolCalls }));
    }
}

#[tokio::test]
async fn statuses_become_kinds() {
    let body = r#"{"error":{"message":"no","type":"x"}}"#;
    for (head, kind, retry_after) in [
        ("429 Too Many Requests\r\nretry-after: 2", ModelErrorKind::RateLimited, Some(Millis(2_000))),
        ("429 Too Many Requests\r\nretry-after-ms: 30", ModelErrorKind::RateLimited, Some(Millis(30))),
        ("503 Unavailable\r\nretry-after: 1", ModelErrorKind::Unavailable, Some(Millis(1_000))),
        ("500 Internal Server Error", ModelErrorKind::Unavailable, None),
        ("529 Overloaded", ModelErrorKind::Unavailable, None),
        ("401 Unauthorized", ModelErrorKind::Unauthorised, None),
        ("404 Not Found", ModelErrorKind::BadRequest, None),
    ] {
        for provider in [openai(), anthropic()] {
            let status = Some(head[..3].parse().unwrap());
            let error = error(provider, answer(head, body)).await;
            assert!(error.message.starts_with("no (POST http://127.0.0.1:"), "{error}");
            assert!(error.message.ends_with(&format!(": HTTP {})", &head[..3])), "{error}");
            assert_eq!((error.kind, error.status, error.retry_after), (kind, status, retry_after));
        }
    }
    let silent = error(openai(), answer("502 Bad Gateway", "")).await;
    assert!(silent.message.starts_with("Bad Gateway (POST "), "{silent}");
}

#[tokio::test]
async fn errors_hold_no_key() {
    let body =
        json!({"error": {"message": format!("Incorrect API key: {KEY}. Sent: Bearer {KEY}")}}).to_string();
    for kind in [openai(), anthropic()] {
        let refused = error(kind.clone(), answer("401 Unauthorized", &body)).await;
        let streamed = error(kind, events(format!("event: error\ndata: {body}\n\n"))).await;
        for error in [refused, streamed] {
            assert!(!format!("{error:?} {error}").contains(KEY), "{error:?}");
            assert!(error.message.starts_with("Incorrect API key: [redacted]"), "{error:?}");
        }
    }
}

#[tokio::test]
async fn nobody_listens() {
    let model = provider(openai(), "http://127.0.0.1:1/v1?key=in-the-query", Some(KEY));
    let error = model.stream(request(vec![])).next().await.unwrap().unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::Connection);
    let about = "(POST http://127.0.0.1:1/v1/chat/completions)";
    assert!(error.message.ends_with(about) && !error.message.contains("query"), "{error}");
}

#[tokio::test]
async fn a_handshake_that_does_not_end() {
    let server = TestServer::start(vec![CannedAnswer { bytes: Vec::new(), then: Then::Hold }]).await;
    let model = provider(openai(), &server.base_url.replace("http:", "https:"), None);
    let mut request = request(vec![]);
    request.timeouts.connect = Millis(50);
    let error = model.stream(request).next().await.unwrap().unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::Timeout, "{error}");
}

#[tokio::test]
async fn a_broken_stream_ends_in_an_error_after_what_came() {
    let server = TestServer::start(vec![answer(
        "200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 10000",
        "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n",
    )])
    .await;
    let model = provider(openai(), &server.base_url, None);
    let items: Vec<_> = model.stream(request(vec![])).collect().await;
    assert_eq!(items.len(), 2);
    assert_eq!(items[0], Ok(Delta::Text { text: "a".to_owned() }));
    assert_eq!(items[1].as_ref().unwrap_err().kind, ModelErrorKind::Connection);
}

async fn late(change: fn(&mut ModelRequest), answer: CannedAnswer) -> String {
    let mut request = request(vec![]);
    change(&mut request);
    let error = ask_for(request, openai(), answer).await.unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::Timeout);
    error.message.split(" (POST").next().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn every_wait_ends() {
    let silence = || CannedAnswer { bytes: Vec::new(), then: Then::Hold };
    let first_token: fn(&mut ModelRequest) = |request| request.timeouts.first_token = Millis(50);
    assert_eq!(late(first_token, silence()).await, "no event came in time");
    assert_eq!(late(first_token, events(": wait\n\n").then(Then::Hold)).await, "no event came in time");
    let keep_alive = events("").then(Then::Repeat(b": wait\n\n".to_vec()));
    assert_eq!(late(first_token, keep_alive).await, "no event came in time");

    let idle: fn(&mut ModelRequest) = |request| request.timeouts.idle = Millis(50);
    assert_eq!(late(idle, events("data: {}\n\n").then(Then::Hold)).await, "the stream went silent");

    let total: fn(&mut ModelRequest) = |request| request.timeouts.total = Millis(50);
    let endless = events("").then(Then::Repeat(b"data: {}\n\n".to_vec()));
    assert_eq!(late(total, endless).await, "the response took too long in all");
    assert_eq!(late(total, silence()).await, "the response took too long in all");
}

#[tokio::test]
async fn an_error_body_that_does_not_end_still_says_what_it_said() {
    let mut request = request(vec![]);
    request.timeouts.first_token = Millis(500);
    let slow = answer("503 Unavailable\r\ncontent-length: 100", "try later").then(Then::Hold);
    let error = ask_for(request, openai(), slow).await.unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::Unavailable);
    assert!(error.message.starts_with("try later (POST "), "{error}");
}

#[tokio::test]
async fn error_bodies_are_bounded() {
    let endless = answer("400 Bad Request", "").then(Then::Repeat(b"no ".repeat(10_000)));
    let error = error(openai(), endless).await;
    assert_eq!(error.kind, ModelErrorKind::BadRequest);
    assert!(error.message.starts_with("no no ") && error.message.len() <= SHORT_TEXT_BYTES_MAX);
}

#[tokio::test]
async fn answers_that_are_no_stream() {
    let json = |body: Value| answer("200 OK\r\ncontent-type: application/json", body.to_string());
    let disguised = error(openai(), json(json!({"error": {"message": "busy", "code": 429}}))).await;
    assert_eq!(disguised.kind, ModelErrorKind::RateLimited);
    assert!(disguised.message.starts_with("busy (POST "), "{disguised}");
    for (answer, kind, word) in [
        (json(json!({"error": null})), ModelErrorKind::BadRequest, "not of this API"),
        (json(json!({"choices": []})), ModelErrorKind::BadRequest, "is base_url right?"),
        (answer("200 OK\r\ncontent-type: application/json", "{"), ModelErrorKind::BadRequest, "no JSON"),
        (answer("200 OK\r\ncontent-type: text/html", "<html>"), ModelErrorKind::Malformed, "text/html"),
        (
            answer("200 OK\r\ncontent-type: text/event-stream\r\ncontent-encoding: gzip", "x"),
            ModelErrorKind::Malformed,
            "gzip",
        ),
    ] {
        let error = error(openai(), answer).await;
        assert_eq!(error.kind, kind, "{error}");
        assert!(error.message.contains(word) && error.message.contains("HTTP 200"), "{error}");
    }
    let cut = "200 OK\r\ncontent-type: application/json\r\ncontent-length: 1000";
    assert_eq!(error(openai(), answer(cut, "{")).await.kind, ModelErrorKind::Connection);
}

#[tokio::test]
async fn an_answer_in_one_document_is_read() {
    let json = |body: Value| answer("200 OK\r\ncontent-type: application/json", body.to_string());
    let message = json!({"content": "hi"});
    let chat = json!({"choices": [{"message": message, "finish_reason": "stop"}], "error": null});
    let messages = json!({"content": [{"type": "text", "text": "hi"}], "stop_reason": "end_turn"});
    let output = json!([{"type": "message", "content": [{"type": "output_text", "text": "hi"}]}]);
    let responses = json!({"object": "response", "status": "completed", "error": null, "output": output});
    let part = json!({"content": {"parts": [{"text": "hi"}]}, "finishReason": "STOP"});
    let all = [
        (openai(), chat),
        (anthropic(), messages),
        (responses::responses(), responses),
        (gemini::gemini(), json!({"candidates": [part]})),
    ];
    for (kind, body) in all {
        let finished = assemble(ask(kind, json(body)).await.unwrap());
        assert_eq!(finished.message.plain_text(), "hi");
        assert_eq!(finished.finish_reason, FinishReason::Stop);
    }
}

#[tokio::test]
async fn messages_go_where_the_base_url_means() {
    for (base, path) in [
        ("", "/v1/messages"),
        ("/", "/v1/messages"),
        ("/v1", "/v1/messages"),
        ("/anthropic", "/anthropic/v1/messages"),
        ("/anthropic/v1/", "/anthropic/v1/messages"),
        ("/custom/messages", "/custom/messages"),
    ] {
        let server = TestServer::start(vec![events(MESSAGES)]).await;
        let base_url = server.base_url.replace("/v1", base);
        let model = provider(anthropic(), &base_url, Some(KEY));
        let _: Vec<Delta> = model.stream(request(vec![user("hi")])).try_collect().await.unwrap();
        let head = server.requests().remove(0).head;
        assert!(head.starts_with(&format!("post {path} http/1.1")), "{base}: {head}");
    }
}

#[tokio::test]
async fn version_betas_and_the_keys_header_can_be_set() {
    let server = TestServer::start(vec![events(MESSAGES)]).await;
    let kind = ProviderKind::Anthropic(AnthropicOptions {
        api_version: Some("2026-10-21".to_owned()),
        betas: vec!["one".to_owned(), "two".to_owned()],
        ..AnthropicOptions::default()
    });
    let options = ProviderOptions {
        base_url: Some(server.base_url.clone()),
        api_key: Some(Secret::new(KEY)),
        key_header: Some("authorization".to_owned()),
        ..ProviderOptions::new("p", kind)
    };
    let registry = ProviderRegistry::new(HttpOptions { system_proxy: false }, [options]).unwrap();
    let model = registry.resolve("p/m-1").unwrap().0;
    let _: Vec<Delta> = model.stream(request(vec![user("hi")])).try_collect().await.unwrap();
    let head = server.requests().remove(0).head;
    assert!(
        head.contains("anthropic-version: 2026-10-21") && head.contains("anthropic-beta: one,two"),
        "{head}"
    );
    assert!(head.contains(&format!("authorization: bearer {KEY}")) && !head.contains("x-api-key"), "{head}");
}

const PAUSED: &str = concat!(
    "data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":9}}}\n\n",
    "data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"I look. \"}}\n\n",
    "data: {\"type\":\"content_block_stop\",\"index\":0}\n\n",
    "data: {\"type\":\"content_block_start\",\"index\":1,\"content_block\":{\"type\":\"server_tool_use\",\"id\":\"s\"}}\n\n",
    "data: {\"type\":\"content_block_stop\",\"index\":1}\n\n",
    "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"pause_turn\"},\"usage\":{\"output_tokens\":4}}\n\n",
    "data: {\"type\":\"message_stop\"}\n\n",
);

#[tokio::test]
async fn a_paused_answer_goes_on() {
    let server = TestServer::start(vec![events(PAUSED), events(PAUSED), events(MESSAGES)]).await;
    let model = provider(anthropic(), &server.base_url, Some(KEY));
    let finished = assemble(model.stream(request(vec![user("hi")])).try_collect().await.unwrap());
    assert_eq!(finished.message.plain_text(), "I look. I look. Grüezi");
    assert_eq!(finished.message.tool_calls().count(), 1);
    assert_eq!(finished.finish_reason, FinishReason::ToolCalls);
    assert_eq!((finished.usage.input_tokens, finished.usage.output_tokens), (27, 12));
    let asked = server.requests();
    assert_eq!(asked.len(), 3);
    let last = &asked[2].body["messages"];
    assert_eq!(last.as_array().unwrap().len(), 2, "nothing of the user's follows");
    let said = last[1]["content"].as_array().unwrap();
    let kinds: Vec<&str> = said.iter().map(|block| block["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["text", "server_tool_use", "text", "server_tool_use"]);
}

#[tokio::test]
async fn an_answer_does_not_pause_for_ever() {
    let server = TestServer::start((0..40).map(|_| events(PAUSED)).collect()).await;
    let model = provider(anthropic(), &server.base_url, Some(KEY));
    let error = model.stream(request(vec![user("hi")])).try_collect::<Vec<_>>().await.unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::TooLarge);
    assert_eq!(server.requests().len(), 33);
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let target = TestServer::start(vec![events(CHAT)]).await;
    for status in ["301 Moved", "302 Found", "307 Temporary", "308 Permanent"] {
        let head = format!("{status}\r\nlocation: {}/chat/completions", target.base_url);
        let error = error(openai(), answer(&head, "")).await;
        assert_eq!(error.kind, ModelErrorKind::BadRequest);
        assert!(error.message.contains("redirects"), "{error}");
    }
    assert!(target.requests().is_empty());
}

#[tokio::test]
async fn endless_answers_are_too_large() {
    let text = json!({"choices": [{"delta": {"content": "x".repeat(100_000)}}]});
    let chatter = format!("data: {text}\n\n").into_bytes();
    for repeated in [chatter, b"data: one long line".repeat(1_000), b": comment".repeat(1_000)] {
        let error = error(openai(), events("").then(Then::Repeat(repeated))).await;
        assert_eq!(error.kind, ModelErrorKind::TooLarge);
    }
}

#[tokio::test]
async fn thoughts_that_are_refused_are_left_out() {
    let refusal = r#"{"type":"error","error":{"type":"invalid_request_error","message":"messages.1.content.0: Invalid `signature` in `thinking` block"}}"#;
    let refused = || answer("400 Bad Request", refusal);
    let history = || vec![user("hi"), assistant(vec![reasoning("t", Some("s"), None), text("a")]), user("b")];

    let server = TestServer::start(vec![refused(), events(MESSAGES)]).await;
    let model = provider(anthropic(), &server.base_url, None);
    check_greeting(&assemble(model.stream(request(history())).try_collect().await.unwrap()));
    let blocks =
        |asked: usize| server.requests()[asked].body["messages"][1]["content"].as_array().unwrap().len();
    assert_eq!((server.requests().len(), blocks(0), blocks(1)), (2, 2, 1));

    let server = TestServer::start(vec![refused()]).await;
    let model = provider(anthropic(), &server.base_url, None);
    let items: Vec<_> = model.stream(request(history())).collect().await;
    assert_eq!(items.len(), 1);
    assert_eq!(items[0].as_ref().unwrap_err().kind, ModelErrorKind::BadRequest);
    assert_eq!(server.requests().len(), 2, "asked once more and not again");
}

#[tokio::test]
async fn connections_are_used_again() {
    let length = CHAT.len();
    let bytes = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {length}\r\n\r\n{CHAT}"
    );
    let server = TestServer::start(vec![CannedAnswer { bytes: bytes.into_bytes(), then: Then::Hold }]).await;
    let model = provider(openai(), &server.base_url, None);
    assert!(model.stream(request(vec![])).try_collect::<Vec<_>>().await.is_ok());
    let mut second = request(vec![]);
    second.timeouts.first_token = Millis(50);
    let error = model.stream(second).try_collect::<Vec<_>>().await.unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::Timeout, "it went to the connection that answers only once");
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn a_request_that_a_filter_refused_is_an_answer() {
    let azure =
        json!({"error": {"code": "content_filter", "message": "The response was filtered", "status": 400}});
    let moderated =
        json!({"error": {"code": 403, "message": "flagged", "metadata": {"flagged_input": "bad"}}});
    for (head, body) in [("400 Bad Request", azure), ("403 Forbidden", moderated)] {
        let deltas = ask(openai(), answer(head, body.to_string())).await.unwrap();
        assert_eq!(deltas, [Delta::Finish { reason: FinishReason::ContentFilter }]);
    }
}

#[tokio::test]
async fn an_encoded_error_body_is_not_shown() {
    let encoded = answer("400 Bad Request\r\ncontent-encoding: gzip", b"\x1f\x8b\x08");
    let error = error(openai(), encoded).await;
    assert_eq!((error.kind, error.status), (ModelErrorKind::BadRequest, Some(400)));
    assert!(error.message.starts_with("Bad Request; the error's text is gzip-encoded"), "{error}");
}

#[tokio::test]
async fn a_lone_surrogate_is_replaced() {
    let body = CHAT.replace("ezi", "\\ud83d");
    let finished = assemble(ask(openai(), events(body)).await.unwrap());
    assert_eq!(finished.message.plain_text(), "Grü\u{fffd}");
}
