use agentloop_core::agent::ResponseSchema;
use agentloop_core::message::{Message, Part, Reasoning, Role, SharedMessage, ToolCall, ToolStatus};

use serde_json::{Value, json};

use super::*;
use crate::model::provider::openai::OpenAiOptions;
use crate::model::provider::openai::state::SendReasoning;
use crate::model::testing::fixtures::{
    RandomConversation, assistant, call, link, origin, png, reasoning, request, result, text, tool, user,
};
use crate::model::{EncodedPool, EncodedPrefix};

fn sent(request: &ModelRequest, dialect: &ProviderDialect) -> Result<Value, ModelError> {
    let body = body(request, dialect, &ToolListCache::default(), &origin(), StatePolicy::Keep)?;
    Ok(serde_json::from_slice(&body.to_vec()).unwrap())
}

fn local() -> ProviderDialect {
    ProviderDialect {
        options: OpenAiOptions::default(),
        official: false,
        signatures: Some("google"),
        default_max_tokens: None,
    }
}

fn official() -> ProviderDialect {
    ProviderDialect { official: true, ..local() }
}

#[track_caller]
fn check_messages(messages: Vec<Message>, dialect: &ProviderDialect, expected: Value) {
    assert_eq!(sent(&request(messages), dialect).unwrap()["messages"], expected);
}

#[test]
fn the_least_request() {
    assert_eq!(
        sent(&request(vec![user("hi")]), &local()).unwrap(),
        json!({
            "model": "m-1",
            "messages": [{"role": "user", "content": "hi"}],
            "stream": true,
            "stream_options": {"include_usage": true},
        })
    );
    let quiet = OpenAiOptions { include_usage: false, ..OpenAiOptions::default() };
    let quiet = ProviderDialect { options: quiet, ..local() };
    assert_eq!(sent(&request(vec![]), &quiet).unwrap().get("stream_options"), None);
}

#[test]
fn every_option() {
    let mut request = request(vec![user("hi")]);
    request.system_prompt = "be good".to_owned();
    request.tools =
        [tool("weather", r#"{"properties":{"city":{"type":"string"}}}"#), tool("time", "{}")].into();
    request.options = ModelOptions {
        temperature: Some(0.5),
        top_p: Some(0.9),
        max_output_tokens: Some(100),
        stop: vec!["END".to_owned()],
        tool_choice: Some(ToolChoice::Required),
        reasoning_effort: Some(ReasoningEffort::High),
        response_schema: Some(ResponseSchema {
            name: "answer".to_owned(),
            schema: r#"{"type":"object"}"#.to_owned(),
            strict: true,
        }),
        provider_options: Some(r#"{"seed":7,"temperature":null}"#.to_owned()),
    };
    assert_eq!(
        sent(&request, &local()).unwrap(),
        json!({
            "model": "m-1",
            "messages": [{"role": "system", "content": "be good"}, {"role": "user", "content": "hi"}],
            "stream": true,
            "stream_options": {"include_usage": true},
            "tools": [
                {"type": "function", "function": {
                    "name": "weather",
                    "description": "Does weather.",
                    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
                }},
                {"type": "function", "function": {
                    "name": "time",
                    "description": "Does time.",
                    "parameters": {"type": "object"},
                }},
            ],
            "tool_choice": "required",
            "top_p": 0.9,
            "max_tokens": 100,
            "stop": ["END"],
            "reasoning_effort": "high",
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "answer", "schema": {"type": "object"}, "strict": true},
            },
            "seed": 7,
        })
    );
}

#[test]
fn tool_choices() {
    let chosen = |choice: ToolChoice, with_tools: bool| {
        let mut request = request(vec![]);
        if with_tools {
            request.tools = [tool("f", "{}")].into();
        }
        request.options.tool_choice = Some(choice);
        sent(&request, &local()).unwrap()["tool_choice"].clone()
    };
    assert_eq!(chosen(ToolChoice::Auto, true), json!("auto"));
    assert_eq!(chosen(ToolChoice::None, true), json!("none"));
    assert_eq!(
        chosen(ToolChoice::Named("f".to_owned()), true),
        json!({"type": "function", "function": {"name": "f"}})
    );
    assert_eq!(chosen(ToolChoice::Required, false), Value::Null);
}

#[test]
fn the_bound_has_the_name_that_the_server_knows() {
    let limited = |dialect: ProviderDialect, max: Option<u32>| {
        let mut request = request(vec![]);
        request.options.max_output_tokens = max;
        let body = sent(&request, &dialect).unwrap();
        ["max_tokens", "max_completion_tokens", "n_predict"].map(|name| body[name].as_u64())
    };
    assert_eq!(limited(local(), Some(5)), [Some(5), None, None]);
    assert_eq!(limited(official(), Some(5)), [None, Some(5), None]);
    assert_eq!(limited(local(), None), [None, None, None]);
    let named = OpenAiOptions { max_tokens_field: Some("n_predict".to_owned()), ..OpenAiOptions::default() };
    let named = ProviderDialect { options: named, default_max_tokens: Some(9), ..official() };
    assert_eq!(limited(named.clone(), None), [None, None, Some(9)]);
    assert_eq!(limited(named, Some(5)), [None, None, Some(5)]);
}

#[test]
fn a_conversation_with_tools() {
    check_messages(
        vec![
            user("weather in Rome and Bern?"),
            assistant(vec![
                reasoning("two calls", None, None),
                call("a", "weather", "{ \"city\": \"Rome\" }"),
                call("b", "weather", "{\"city\":"),
            ]),
            result("a", ToolStatus::Succeeded, "sunny", vec![]),
            result("b", ToolStatus::Rejected, "arguments are not JSON", vec![]),
            assistant(vec![text("Sunny in Rome."), text(" Bern?")]),
            user("try again"),
        ],
        &local(),
        json!([
            {"role": "user", "content": "weather in Rome and Bern?"},
            {"role": "assistant", "content": null, "tool_calls": [
                {"id": "a", "type": "function",
                 "function": {"name": "weather", "arguments": "{ \"city\": \"Rome\" }"}},
                {"id": "b", "type": "function",
                 "function": {"name": "weather", "arguments": "{\"_invalid\":\"{\\\"city\\\":\"}"}},
            ]},
            {"role": "tool", "tool_call_id": "a", "content": "sunny"},
            {"role": "tool", "tool_call_id": "b", "content": "error: arguments are not JSON"},
            {"role": "assistant", "content": "Sunny in Rome. Bern?"},
            {"role": "user", "content": "try again"},
        ]),
    );
}

#[test]
fn pictures() {
    let image = |image| Part::Image { image };
    check_messages(
        vec![Message { role: Role::User, parts: vec![text("what is this?"), image(png()), image(link())] }],
        &local(),
        json!([{"role": "user", "content": [
            {"type": "text", "text": "what is this?"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBO"}},
            {"type": "image_url", "image_url": {"url": "https://x.example/a.png"}},
        ]}]),
    );
    check_messages(
        vec![Message { role: Role::User, parts: vec![text("one"), text("two")] }],
        &local(),
        json!([{"role": "user", "content": "one\n\ntwo"}]),
    );
}

#[test]
fn pictures_of_tools_follow_the_last_result() {
    check_messages(
        vec![
            assistant(vec![call("a", "weather", "{}"), call("b", "weather", "{}")]),
            result("a", ToolStatus::Succeeded, "map", vec![png()]),
            result("b", ToolStatus::Succeeded, "none", vec![]),
        ],
        &local(),
        json!([
            {"role": "assistant", "content": null, "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "weather", "arguments": "{}"}},
                {"id": "b", "type": "function", "function": {"name": "weather", "arguments": "{}"}},
            ]},
            {"role": "tool", "tool_call_id": "a", "content": "map"},
            {"role": "tool", "tool_call_id": "b", "content": "none"},
            {"role": "user", "content": [
                {"type": "text", "text": "Images returned by the tool weather:"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBO"}},
            ]},
        ]),
    );
}

#[test]
fn reasoning_goes_back_only_where_it_is_asked_for() {
    let history = || {
        vec![
            assistant(vec![reasoning("why", None, None), call("a", "f", "{}")]),
            assistant(vec![call("b", "f", "{}")]),
            assistant(vec![reasoning("why", None, None), text("done")]),
        ]
    };
    let thoughts = |dialect: &ProviderDialect| {
        let body = sent(&request(history()), dialect).unwrap();
        [0, 1, 2].map(|i| body["messages"][i].get("reasoning_content").cloned())
    };
    assert_eq!(thoughts(&local()), [None, None, None]);
    let asking = OpenAiOptions { send_reasoning: Some(true), ..OpenAiOptions::default() };
    let asking = ProviderDialect { options: asking, ..local() };
    assert_eq!(thoughts(&asking), [Some(json!("why")), Some(json!("")), None]);
}

#[test]
fn reasoning_goes_back_by_the_models_name() {
    use SendReasoning::{Always, Never, WithCalls};
    let dialect = |send_reasoning| ProviderDialect {
        options: OpenAiOptions { send_reasoning, ..OpenAiOptions::default() },
        ..local()
    };
    for (model, by_name, asked) in [
        ("deepseek-v4-pro", Always, Always),
        ("moonshotai/Kimi-K3", WithCalls, WithCalls),
        ("glm-5.3", WithCalls, WithCalls),
        ("qwen3", Never, WithCalls),
    ] {
        assert_eq!(dialect(None).send_reasoning(model), by_name, "{model}");
        assert_eq!(dialect(Some(true)).send_reasoning(model), asked, "{model}");
        assert_eq!(dialect(Some(false)).send_reasoning(model), Never, "{model}");
    }
}

/// A reasoning part with stored state.
fn thought(origin: &Origin, text: &str, state: &str) -> Part {
    Part::Reasoning(Reasoning { text: text.into(), state: Some(origin.state(state)), ..Reasoning::default() })
}

/// A tool call with a signature.
fn signed_call(origin: &Origin, id: &str, state: &str) -> Part {
    let Part::ToolCall(call) = call(id, "f", "{}") else { unreachable!("it is a call") };
    Part::ToolCall(ToolCall { state: Some(origin.state(state)), ..call })
}

#[test]
fn reasoning_goes_back_to_its_own_model_in_its_own_field() {
    let foreign = Origin::new(&"other".into(), "m-1");
    let plain = r#"{"field":"reasoning"}"#;
    let mut request = request(vec![
        assistant(vec![thought(&origin(), "own", plain), call("a", "f", "{}")]),
        assistant(vec![thought(&foreign, "foreign", plain), call("b", "f", "{}")]),
        assistant(vec![thought(&origin(), "lenient", "{}"), call("c", "f", "{}")]),
    ]);
    request.options.provider_options = None;
    let options = OpenAiOptions { send_reasoning: Some(true), ..OpenAiOptions::default() };
    let body = sent(&request, &ProviderDialect { options, ..local() }).unwrap();
    assert_eq!(body["messages"][0]["reasoning"], json!("own"));
    assert_eq!(body["messages"][0].get("reasoning_content"), None);
    assert_eq!(body["messages"][1]["reasoning_content"], json!(""));
    assert_eq!(body["messages"][2]["reasoning_content"], json!(""));
}

#[test]
fn openrouters_details_go_back_unchanged() {
    let details = json!([
        {"type": "reasoning.text", "text": "x", "signature": "s", "index": 0},
        {"type": "reasoning.encrypted", "data": "d", "index": 1},
    ]);
    let state = json!({"field": "reasoning", "details": details}).to_string();
    let history = vec![assistant(vec![thought(&origin(), "x", &state), call("a", "f", "{}")])];
    let body = sent(&request(history.clone()), &local()).unwrap();
    assert_eq!(body["messages"][0]["reasoning_details"], details);
    let lists = ToolListCache::default();
    let dropped =
        super::body(&request(history.clone()), &local(), &lists, &origin(), StatePolicy::Drop).unwrap();
    assert!(!String::from_utf8(dropped.to_vec()).unwrap().contains("reasoning_details"));
    let mut other = request(history);
    other.model = "m-2".to_owned();
    let elsewhere = Origin::new(&"p".into(), "m-2");
    let body = super::body(&other, &local(), &lists, &elsewhere, StatePolicy::Keep).unwrap();
    assert!(!String::from_utf8(body.to_vec()).unwrap().contains("reasoning_details"));
}

#[test]
fn googles_signatures_go_back_where_they_came_from() {
    let own = r#"{"extra_content":{"google":{"thought_signature":"SIG"}}}"#;
    let history = vec![
        assistant(vec![signed_call(&origin(), "a", own), call("b", "f", "{}")]),
        assistant(vec![call("c", "f", "{}"), call("d", "f", "{}")]),
        assistant(vec![signed_call(&Origin::new(&"other".into(), "m-1"), "e", own)]),
    ];
    let signatures = |model: &str, dialect: &ProviderDialect, policy| {
        let mut request = request(history.clone());
        request.model = model.to_owned();
        let body = super::body(&request, dialect, &ToolListCache::default(), &origin(), policy).unwrap();
        let body: Value = serde_json::from_slice(&body.to_vec()).unwrap();
        let calls = body["messages"]
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|message| message["tool_calls"].as_array().unwrap().clone());
        let shown = |call: Value| match &call["extra_content"] {
            Value::Null => String::new(),
            Value::Object(extra) => {
                let (namespace, value) = extra.iter().next().unwrap();
                format!("{namespace}:{}", value["thought_signature"].as_str().unwrap())
            }
            other => panic!("{other}"),
        };
        calls.map(shown).collect::<Vec<_>>()
    };
    let dummy = "google:skip_thought_signature_validator";
    let keep = StatePolicy::Keep;
    assert_eq!(signatures("google/gemini-3.8-flash", &local(), keep), ["google:SIG", "", dummy, "", dummy]);
    assert_eq!(signatures("gemini-4-argon", &local(), StatePolicy::Drop), [dummy, "", dummy, "", dummy]);
    let vertex = ProviderDialect { signatures: Some("vertex"), ..local() };
    let dummy = "vertex:skip_thought_signature_validator";
    assert_eq!(signatures("google/gemini-4-argon", &vertex, keep), ["google:SIG", "", dummy, "", dummy]);
    let openrouter = ProviderDialect { signatures: None, ..local() };
    for (model, dialect) in [("gemini-2.5-pro", &local()), ("gemini-4-argon", &openrouter), ("m-1", &local())]
    {
        assert_eq!(signatures(model, dialect, keep), ["google:SIG", "", "", "", ""], "{model}");
    }
}

#[test]
fn openai_gets_ids_that_it_takes() {
    let history = || {
        vec![
            assistant(vec![call("functions.f:0", "functions.f", "{}")]),
            result("functions.f:0", ToolStatus::Succeeded, "1", vec![]),
            assistant(vec![call("functions.f:0", "functions.f", "{}")]),
            result("functions.f:0", ToolStatus::Succeeded, "2", vec![]),
        ]
    };
    let ids = |dialect: &ProviderDialect| {
        let body = sent(&request(history()), dialect).unwrap();
        let id = |pointer| body.pointer(pointer).and_then(Value::as_str).unwrap().to_owned();
        (
            [id("/messages/0/tool_calls/0/id"), id("/messages/1/tool_call_id")],
            [id("/messages/2/tool_calls/0/id"), id("/messages/3/tool_call_id")],
        )
    };
    let (first, second) = ids(&local());
    assert_eq!(first, ["functions.f:0", "functions.f:0"]);
    assert_eq!(second, ["functions.f:0_2", "functions.f:0_2"]);
    let (first, second) = ids(&official());
    assert!(first[0] == first[1] && second[0] == second[1] && first != second);
    assert!(first[0].len() <= 40 && !first[0].contains(['.', ':']), "{first:?}");
}

#[test]
fn openai_is_told_which_requests_are_of_one_conversation() {
    let key = |messages: Vec<Message>, dialect: &ProviderDialect| {
        let body = sent(&request(messages), dialect).unwrap();
        body.get("prompt_cache_key").map(|key| key.as_str().unwrap().to_owned())
    };
    let first = key(vec![user("hi")], &official()).unwrap();
    assert_eq!(first.len(), 32);
    let longer = vec![user("hi"), assistant(vec![text("hello")]), user("and now?")];
    assert_eq!(key(longer, &official()), Some(first.clone()));
    assert_ne!(key(vec![user("hello")], &official()), Some(first));
    assert_eq!(key(vec![user("hi")], &local()), None, "others may refuse what they do not know");
    let mut chosen = request(vec![user("hi")]);
    chosen.options.provider_options = Some(r#"{"prompt_cache_key":"mine"}"#.to_owned());
    assert_eq!(sent(&chosen, &official()).unwrap()["prompt_cache_key"], "mine");
}

#[test]
fn what_is_no_json_is_refused() {
    let mut broken = request(vec![]);
    broken.tools = [tool("f", "[]")].into();
    assert_eq!(
        sent(&broken, &local()).unwrap_err(),
        ModelError::bad_request("the schema of tool \"f\" is not a JSON object")
    );
    let mut broken = request(vec![]);
    broken.options.response_schema =
        Some(ResponseSchema { name: "r".to_owned(), schema: "x".to_owned(), strict: false });
    assert!(sent(&broken, &local()).unwrap_err().message.starts_with("response schema \"r\" is not JSON"));
}

#[test]
fn a_longer_conversation_begins_like_a_shorter_one_byte_for_byte() {
    let history = [
        user("hi"),
        assistant(vec![text("let me see"), call("a", "f", "{}")]),
        result("a", ToolStatus::Succeeded, "map", vec![png()]),
        assistant(vec![call("a", "f", "{}")]),
        result("a", ToolStatus::Failed, "none", vec![]),
        user("and now?"),
    ];
    let body = |messages: usize| {
        let mut request = request(history[..messages].to_vec());
        request.tools = [tool("f", "{}")].into();
        String::from_utf8(
            super::body(&request, &local(), &ToolListCache::default(), &origin(), StatePolicy::Keep)
                .unwrap()
                .to_vec(),
        )
        .unwrap()
    };
    for messages in 1..history.len() {
        let shorter = body(messages);
        assert!(body(messages + 1).starts_with(shorter.strip_suffix("]}").unwrap()), "{shorter}");
    }
}

#[test]
fn what_is_kept_of_a_conversation_changes_no_byte() {
    let asking = OpenAiOptions { send_reasoning: Some(true), ..OpenAiOptions::default() };
    let dialects = [local(), official(), ProviderDialect { options: asking, ..local() }];
    for seed in 0..200 {
        let (mut talk, encoded, mut kind) =
            (RandomConversation::new(seed), EncodedPrefix::caching(&EncodedPool::default()), 0);
        for _ in 0..30 {
            if talk.one_of(10) == 0 {
                kind = talk.one_of(dialects.len());
            }
            let body = |encoded: &EncodedPrefix, messages: &[SharedMessage]| {
                let (messages, encoded) = (messages.to_vec(), encoded.clone());
                let request = ModelRequest { messages, encoded, ..request(vec![]) };
                let lists = ToolListCache::default();
                let body =
                    super::body(&request, &dialects[kind], &lists, &origin(), StatePolicy::Keep).unwrap();
                String::from_utf8(body.to_vec()).unwrap()
            };
            let messages = talk.next();
            assert_eq!(body(&encoded, &messages), body(&EncodedPrefix::default(), &messages), "seed {seed}");
            assert!(encoded.bytes() > 0 || messages.is_empty());
        }
    }
}
