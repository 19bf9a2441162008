//! `generateContent` over a local HTTP connection.

use super::*;
use crate::model::GeminiOptions;

/// After <https://ai.google.dev/api/generate-content> and <https://ai.google.dev/gemini-api/docs/thought-signatures>.
pub(super) const GEMINI: &str = concat!(
    "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"Grü\"}],\"role\":\"model\"},\"index\":0}],",
    "\"usageMetadata\":{\"promptTokenCount\":9},\"modelVersion\":\"gemini-3.8-flash\"}\r\n\r\n",
    "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"ezi\"}],\"role\":\"model\"},\"index\":0}]}\r\n\r\n",
    "data: {\"candidates\":[{\"content\":{\"parts\":[{\"functionCall\":{\"id\":\"a\",\"name\":\"f\",\"args\":{\"x\":12}},",
    "\"thoughtSignature\":\"U0lH\"}],\"role\":\"model\"},\"finishReason\":\"STOP\",\"index\":0}],",
    "\"usageMetadata\":{\"promptTokenCount\":9,\"candidatesTokenCount\":4}}\r\n\r\n",
);

pub(super) fn gemini() -> ProviderKind {
    ProviderKind::Gemini(GeminiOptions::default())
}

fn of_gemini(messages: Vec<agentloop_core::message::Message>) -> ModelRequest {
    ModelRequest { model: "gemini-3.8-flash".to_owned(), ..request(messages) }
}

#[tokio::test]
async fn from_end_to_end() {
    let server = TestServer::start(vec![events(GEMINI)]).await;
    let model = provider(gemini(), &server.base_url, Some(KEY));
    let first = assemble(model.stream(of_gemini(vec![user("hi")])).try_collect().await.unwrap());
    check_greeting(&first);
    assert_eq!((first.usage.input_tokens, first.usage.output_tokens), (9, 4));
    let asked = server.requests().remove(0);
    let line = "post /v1/models/gemini-3.8-flash:streamgeneratecontent?alt=sse http/1.1";
    assert!(asked.head.starts_with(line), "{}", asked.head);
    assert!(asked.head.contains(&format!("x-goog-api-key: {KEY}")));
    assert_eq!(asked.body["contents"], json!([{"role": "user", "parts": [{"text": "hi"}]}]));

    let again = of_gemini(vec![user("hi"), first.message, user("go on")]);
    let _second: Vec<Delta> = model.stream(again).try_collect().await.unwrap();
    let part = server.requests().remove(1).body["contents"][1]["parts"][1].take();
    let call = json!({"id": "a", "name": "f", "args": {"x": 12}});
    assert_eq!(part, json!({"functionCall": call, "thoughtSignature": "U0lH"}));
}

#[tokio::test]
async fn it_is_asked_where_the_base_url_means() {
    for (base, model, path) in [
        ("", "gemini-x", "/v1beta/models/gemini-x"),
        ("/", "gemini-x", "/v1beta/models/gemini-x"),
        ("/gemini", "gemini-x", "/gemini/v1beta/models/gemini-x"),
        ("/v1", "models/gemini-x", "/v1/models/gemini-x"),
        ("/v1beta/models", "gemini-x", "/v1beta/models/gemini-x"),
        ("/v1beta", "org/../x", "/v1beta/models/org%2f..%2fx"),
        (
            "/v1/projects/p/locations/global/publishers/google",
            "gemini-x",
            "/v1/projects/p/locations/global/publishers/google/models/gemini-x",
        ),
        (
            "/v1/projects/p/locations/global",
            "publishers/google/models/gemini-x",
            "/v1/projects/p/locations/global/publishers/google/models/gemini-x",
        ),
    ] {
        let server = TestServer::start(vec![events(GEMINI)]).await;
        let origin = server.base_url.trim_end_matches("/v1");
        let provider = provider(gemini(), &format!("{origin}{base}"), None);
        let asking = ModelRequest { model: model.to_owned(), ..request(vec![user("hi")]) };
        let _: Vec<Delta> = provider.stream(asking).try_collect().await.unwrap();
        let head = server.requests().remove(0).head;
        assert!(
            head.starts_with(&format!("post {path}:streamgeneratecontent?alt=sse http/1.1")),
            "{base}: {head}"
        );
    }
}

#[tokio::test]
async fn signatures_that_are_refused_are_left_out_once() {
    let refusal = r#"{"error":{"code":400,"message":"Function call is missing a thought_signature in functionCall parts.","status":"INVALID_ARGUMENT"}}"#;
    let refused = || answer("400 Bad Request", refusal);
    let first = TestServer::start(vec![events(GEMINI)]).await;
    let origin = provider(gemini(), &first.base_url, None);
    let said = assemble(origin.stream(of_gemini(vec![user("hi")])).try_collect().await.unwrap()).message;
    let history = || of_gemini(vec![user("hi"), said.clone(), user("go on")]);

    let server = TestServer::start(vec![refused(), events(GEMINI)]).await;
    let model = provider(gemini(), &server.base_url, None);
    check_greeting(&assemble(model.stream(history()).try_collect().await.unwrap()));
    let signature =
        |asked: usize| server.requests()[asked].body["contents"][1]["parts"][1]["thoughtSignature"].clone();
    assert_eq!(server.requests().len(), 2);
    assert_eq!((signature(0), signature(1)), (json!("U0lH"), json!("skip_thought_signature_validator")));

    let server = TestServer::start(vec![refused()]).await;
    let model = provider(gemini(), &server.base_url, None);
    let items: Vec<_> = model.stream(history()).collect().await;
    assert_eq!((items.len(), server.requests().len()), (1, 2), "asked once more and not again");
}
