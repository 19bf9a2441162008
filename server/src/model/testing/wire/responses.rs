//! The Responses API over a local HTTP connection.

use super::*;
use crate::model::ResponsesOptions;

/// After <https://platform.openai.com/docs/api-reference/responses-streaming>.
pub(super) const RESPONSES: &str = concat!(
    "event: response.created\ndata: {\"type\":\"response.created\",\"sequence_number\":0,\"response\":{\"id\":\"resp_1\"}}\n\n",
    "event: response.output_item.added\n",
    "data: {\"type\":\"response.output_item.added\",\"sequence_number\":1,\"output_index\":0,",
    "\"item\":{\"id\":\"rs_1\",\"type\":\"reasoning\",\"summary\":[]}}\n\n",
    "data: {\"type\":\"response.output_item.done\",\"sequence_number\":2,\"output_index\":0,",
    "\"item\":{\"id\":\"rs_1\",\"type\":\"reasoning\",\"summary\":[],\"encrypted_content\":\"gAAA\"}}\n\n",
    "data: {\"type\":\"response.output_item.added\",\"output_index\":1,",
    "\"item\":{\"id\":\"msg_1\",\"type\":\"message\",\"role\":\"assistant\",\"content\":[]}}\n\n",
    "data: {\"type\":\"response.output_text.delta\",\"output_index\":1,\"delta\":\"Grü\",\"logprobs\":[],\"obfuscation\":\"x\"}\n\n",
    "data: {\"type\":\"response.output_text.delta\",\"output_index\":1,\"delta\":\"ezi\"}\n\n",
    "data: {\"type\":\"response.output_item.done\",\"output_index\":1,\"item\":{\"id\":\"msg_1\",\"type\":\"message\",",
    "\"role\":\"assistant\",\"phase\":\"commentary\",\"content\":[{\"type\":\"output_text\",\"text\":\"Grüezi\"}]}}\n\n",
    "data: {\"type\":\"response.output_item.added\",\"output_index\":2,",
    "\"item\":{\"id\":\"fc_1\",\"type\":\"function_call\",\"call_id\":\"a\",\"name\":\"f\",\"arguments\":\"\"}}\n\n",
    "data: {\"type\":\"response.function_call_arguments.delta\",\"output_index\":2,\"delta\":\"{\\\"x\\\"\"}\n\n",
    "data: {\"type\":\"response.function_call_arguments.delta\",\"output_index\":2,\"delta\":\":12}\"}\n\n",
    "data: {\"type\":\"response.output_item.done\",\"output_index\":2,\"item\":{\"id\":\"fc_1\",\"type\":\"function_call\",",
    "\"status\":\"completed\",\"call_id\":\"a\",\"name\":\"f\",\"arguments\":\"{\\\"x\\\":12}\"}}\n\n",
    "event: response.completed\n",
    "data: {\"type\":\"response.completed\",\"response\":{\"status\":\"completed\",",
    "\"usage\":{\"input_tokens\":9,\"output_tokens\":4}}}\n\n",
);

pub(super) fn responses() -> ProviderKind {
    ProviderKind::OpenAiResponses(ResponsesOptions::default())
}

fn or_chat() -> ProviderKind {
    ProviderKind::OpenAiResponses(ResponsesOptions { or_chat: true })
}

async fn answered(
    model: &Arc<dyn Model>,
    messages: Vec<agentloop_core::message::Message>,
) -> AssembledMessage {
    assemble(model.stream(request(messages)).try_collect().await.unwrap())
}

#[tokio::test]
async fn from_end_to_end() {
    let server = TestServer::start(vec![events(RESPONSES)]).await;
    let model = provider(responses(), &server.base_url, Some(KEY));
    let first = answered(&model, vec![user("hi")]).await;
    check_greeting(&first);
    assert_eq!((first.usage.input_tokens, first.usage.output_tokens), (9, 4));
    let asked = server.requests().remove(0);
    assert!(asked.head.starts_with("post /v1/responses http/1.1"), "{}", asked.head);
    assert!(asked.head.contains(&format!("authorization: bearer {KEY}")));
    assert_eq!(asked.body["input"], json!([{"role": "user", "content": "hi"}]));
    assert_eq!((&asked.body["store"], &asked.body["stream"]), (&json!(false), &json!(true)));

    let _second = answered(&model, vec![user("hi"), first.message, user("go on")]).await;
    let input = server.requests().remove(1).body["input"].take();
    let thought = json!({"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "gAAA"});
    assert_eq!(input[1], thought, "as it came");
    assert_eq!(input[2], json!({"role": "assistant", "content": "Grüezi", "phase": "commentary"}));
    assert_eq!(input[3]["type"], "function_call");
}

#[tokio::test]
async fn a_whole_url_and_another_header_are_taken() {
    let server = TestServer::start(vec![events(RESPONSES)]).await;
    let origin = server.base_url.trim_end_matches("/v1");
    let options = ProviderOptions {
        base_url: Some(format!("{origin}/openai/v1/responses?api-version=preview")),
        api_key: Some(Secret::new(KEY)),
        key_header: Some("api-key".to_owned()),
        ..ProviderOptions::new("p", responses())
    };
    let registry = ProviderRegistry::new(HttpOptions { system_proxy: false }, [options]).unwrap();
    let model = registry.resolve("p/m-1").unwrap().0;
    check_greeting(&answered(&model, vec![user("hi")]).await);
    let head = server.requests().remove(0).head;
    assert!(head.starts_with("post /openai/v1/responses?api-version=preview http/1.1"), "{head}");
    assert!(head.contains(&format!("api-key: {KEY}")) && !head.contains("authorization"), "{head}");
}

/// A conversation with reasoning of this model and the call that followed it.
async fn history() -> Vec<agentloop_core::message::Message> {
    let first = assemble(ask(responses(), events(RESPONSES)).await.unwrap());
    vec![user("hi"), first.message, user("go on")]
}

#[tokio::test]
async fn state_that_is_refused_is_left_out_once() {
    for refusal in [
        r#"{"error":{"message":"The encrypted content for item rs_1 could not be verified.","code":"invalid_encrypted_content"}}"#,
        r#"{"error":{"message":"Item with id 'rs_1' not found. Items are not persisted when `store` is set to false."}}"#,
        r#"{"error":{"message":"Item 'rs_1' of type 'reasoning' was provided without its required following item."}}"#,
    ] {
        let refused = || answer("400 Bad Request", refusal);
        let server = TestServer::start(vec![refused(), events(RESPONSES)]).await;
        let model = provider(responses(), &server.base_url, None);
        check_greeting(&answered(&model, history().await).await);
        let items = |asked: usize| server.requests()[asked].body["input"].as_array().unwrap().len();
        assert_eq!((server.requests().len(), items(0), items(1)), (2, 5, 4));

        let server = TestServer::start(vec![refused()]).await;
        let model = provider(responses(), &server.base_url, None);
        let items: Vec<_> = model.stream(request(history().await)).collect().await;
        assert_eq!(items.len(), 1);
        assert_eq!(items[0].as_ref().unwrap_err().kind, ModelErrorKind::BadRequest);
        assert_eq!(server.requests().len(), 2, "asked once more and not again");
    }
}

#[tokio::test]
async fn state_that_is_refused_in_a_stream_is_left_out_too() {
    let error =
        r#"{"code":"invalid_encrypted_content","message":"The encrypted content could not be verified."}"#;
    let created = r#"data: {"type":"response.created","response":{}}"#;
    let failed =
        format!(r#"data: {{"type":"response.failed","response":{{"status":"failed","error":{error}}}}}"#);
    let refused = events(format!("{created}\n\n{failed}\n\n"));
    let server = TestServer::start(vec![refused, events(RESPONSES)]).await;
    let model = provider(responses(), &server.base_url, None);
    check_greeting(&answered(&model, history().await).await);
    let items = |asked: usize| server.requests()[asked].body["input"].as_array().unwrap().len();
    assert_eq!((server.requests().len(), items(0), items(1)), (2, 5, 4));
}

const NO_SUMMARIES: &str = r#"{"error":{"message":"Your organization must be verified to generate reasoning summaries.","param":"reasoning.summary","code":"unsupported_value"}}"#;

#[tokio::test]
async fn an_account_that_may_not_see_reasoning_is_not_asked_to_show_it() {
    let server = TestServer::start(vec![answer("400 Bad Request", NO_SUMMARIES), events(RESPONSES)]).await;
    let model = provider(responses(), &server.base_url, None);
    let mut asking = request(vec![user("hi")]);
    asking.model = "gpt-6.1-sol".to_owned();
    for _ in 0..2 {
        check_greeting(&assemble(model.stream(asking.clone()).try_collect().await.unwrap()));
    }
    let asks = server
        .requests()
        .iter()
        .map(|asked| asked.body["reasoning"]["summary"].is_string())
        .collect::<Vec<_>>();
    assert_eq!(asks, [true, false, false], "it is remembered");
}

#[tokio::test]
async fn every_call_that_began_before_the_refusal_is_repeated() {
    let refused = || answer("400 Bad Request", NO_SUMMARIES);
    let answers = vec![refused(), events(RESPONSES), refused(), events(RESPONSES), refused()];
    let server = TestServer::start(answers).await;
    let model = provider(responses(), &server.base_url, None);
    let mut asking = request(vec![user("hi")]);
    asking.model = "gpt-6.1-sol".to_owned();
    let [first, second, third] = [(), (), ()].map(|()| model.stream(asking.clone()));
    for began in [first, second] {
        check_greeting(&assemble(began.try_collect().await.unwrap()));
    }
    let error = third.try_collect::<Vec<_>>().await.unwrap_err();
    assert_eq!((error.kind, server.requests().len()), (ModelErrorKind::BadRequest, 6), "once and not again");
}

#[tokio::test]
async fn a_server_that_knows_only_chat_is_asked_in_chat() {
    for (status, body) in [
        ("404 Not Found", "404 page not found"),
        ("405 Method Not Allowed", ""),
        ("501 Not Implemented", "no"),
    ] {
        let server = TestServer::start(vec![answer(status, body), events(CHAT)]).await;
        let model = provider(or_chat(), &server.base_url, Some(KEY));
        for _ in 0..2 {
            check_greeting(&answered(&model, vec![user("hi")]).await);
        }
        let paths: Vec<_> =
            server.requests().iter().map(|asked| asked.head.split(' ').nth(1).unwrap().to_owned()).collect();
        assert_eq!(paths, ["/v1/responses", "/v1/chat/completions", "/v1/chat/completions"]);
        assert!(server.requests()[1].head.contains(&format!("authorization: bearer {KEY}")));
    }
}

#[tokio::test]
async fn a_model_that_is_not_there_is_no_missing_api() {
    let body = r#"{"error":{"message":"The model `x` does not exist","code":"model_not_found"}}"#;
    for (kind, answered) in [
        (or_chat(), answer("404 Not Found", body)),
        (responses(), answer("404 Not Found", "")),
        (or_chat(), answer("400 Bad Request", "")),
    ] {
        let server = TestServer::start(vec![answered]).await;
        let model = provider(kind, &server.base_url, None);
        let items: Vec<_> = model.stream(request(vec![user("hi")])).collect().await;
        assert_eq!(items.len(), 1);
        assert_eq!(items[0].as_ref().unwrap_err().kind, ModelErrorKind::BadRequest);
        assert_eq!(server.requests().len(), 1);
    }
}

#[tokio::test]
async fn chat_says_how_to_get_to_responses() {
    let body = r#"{"error":{"message":"Function tools with reasoning_effort are not supported for gpt-5.6 in /v1/chat/completions. To use function tools, use /v1/responses or set reasoning_effort to 'none'.","param":"reasoning_effort"}}"#;
    let refused = error(openai(), answer("400 Bad Request", body)).await;
    assert!(refused.message.ends_with("; set kind = \"openai-responses\" for this provider"), "{refused}");
    let other = error(openai(), answer("400 Bad Request", "no")).await;
    assert!(!other.message.contains("kind ="), "{other}");
}
