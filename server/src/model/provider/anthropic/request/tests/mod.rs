//! The body of a request: its options, its messages, and what the API does not take.

mod marks;
mod thoughts;

use agentloop_core::agent::{ModelOptions, ReasoningEffort, ResponseSchema};
use agentloop_core::message::{Message, Part, Role, SharedMessage, ToolStatus};

use serde_json::{Value, json};

use super::*;
use crate::model::provider::anthropic::AnthropicOptions;
use crate::model::testing::fixtures::{
    RandomConversation, assistant, call, link, origin, png, reasoning, request, result, text, tool, user,
};
use crate::model::{EncodedPool, EncodedPrefix};

fn uncached() -> ProviderDialect {
    let options = AnthropicOptions { prompt_cache: false, ..AnthropicOptions::default() };
    ProviderDialect { options, ..ProviderDialect::default() }
}

fn cached() -> ProviderDialect {
    ProviderDialect::default()
}

fn written(
    request: &ModelRequest,
    dialect: &ProviderDialect,
    policy: StatePolicy,
) -> (Value, Option<Digest>) {
    let call = CallContext { origin: Origin::new(&"p".into(), &request.model), policy, continues: false };
    let written = body(request, dialect, &ToolListCache::default(), &call).unwrap();
    (serde_json::from_slice(&written.body.to_vec()).unwrap(), written.prefix)
}

fn sent_with(request: &ModelRequest, dialect: &ProviderDialect, policy: StatePolicy) -> Value {
    written(request, dialect, policy).0
}

fn sent(request: &ModelRequest, dialect: &ProviderDialect) -> Value {
    sent_with(request, dialect, StatePolicy::Keep)
}

#[track_caller]
fn check_messages(messages: Vec<Message>, expected: Value) {
    assert_eq!(sent(&request(messages), &uncached())["messages"], expected);
}

#[test]
fn the_least_request() {
    assert_eq!(
        sent(&request(vec![user("hi")]), &uncached()),
        json!({
            "model": "m-1",
            "max_tokens": 4096,
            "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
            "stream": true,
        })
    );
}

#[test]
fn every_option() {
    let mut request = request(vec![user("hi")]);
    request.model = "claude-haiku-4-5".to_owned();
    request.system_prompt = "be good".to_owned();
    request.tools = [tool("weather", "{}"), tool("time", r#"{"type":"object","properties":{}}"#)].into();
    request.options = ModelOptions {
        temperature: Some(0.5),
        top_p: Some(0.9),
        max_output_tokens: Some(4_096),
        stop: vec!["END".to_owned()],
        tool_choice: Some(ToolChoice::Auto),
        reasoning_effort: Some(ReasoningEffort::Low),
        response_schema: Some(ResponseSchema {
            name: "answer".to_owned(),
            schema: r#"{"type":"object"}"#.to_owned(),
            strict: true,
        }),
        provider_options: Some(r#"{"metadata":{"user_id":"u"}}"#.to_owned()),
    };
    let ephemeral = json!({"type": "ephemeral"});
    assert_eq!(
        sent(&request, &cached()),
        json!({
            "model": "claude-haiku-4-5",
            "max_tokens": 4096,
            "system": [{"type": "text", "text": "be good", "cache_control": ephemeral}],
            "messages": [{"role": "user", "content": [
                {"type": "text", "text": "hi", "cache_control": ephemeral},
            ]}],
            "stream": true,
            "tools": [
                {"name": "weather", "description": "Does weather.", "input_schema": {"type": "object"}},
                {
                    "name": "time",
                    "description": "Does time.",
                    "input_schema": {"type": "object", "properties": {}},
                    "cache_control": ephemeral,
                },
            ],
            "tool_choice": {"type": "auto"},
            "thinking": {"type": "enabled", "budget_tokens": 2048},
            "output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}},
            "stop_sequences": ["END"],
            "metadata": {"user_id": "u"},
        })
    );
}

#[test]
fn effort_and_format_share_their_place() {
    let mut request = request(vec![]);
    request.model = "claude-opus-5".to_owned();
    request.options.reasoning_effort = Some(ReasoningEffort::Medium);
    request.options.response_schema =
        Some(ResponseSchema { name: "r".to_owned(), schema: "{}".to_owned(), strict: false });
    let body = sent(&request, &uncached());
    assert_eq!(
        body["output_config"],
        json!({"effort": "medium", "format": {"type": "json_schema", "schema": {}}})
    );
    assert_eq!(body["thinking"], json!({"type": "adaptive", "display": "summarized"}));
}

#[test]
fn tool_choices() {
    let chosen = |choice: ToolChoice, with_tools: bool| {
        let mut request = request(vec![]);
        if with_tools {
            request.tools = [tool("f", "{}")].into();
        }
        request.options.tool_choice = Some(choice);
        sent(&request, &uncached())["tool_choice"].clone()
    };
    assert_eq!(chosen(ToolChoice::None, true), json!({"type": "none"}));
    assert_eq!(chosen(ToolChoice::Required, true), json!({"type": "any"}));
    assert_eq!(chosen(ToolChoice::Named("f".to_owned()), true), json!({"type": "tool", "name": "f"}));
    assert_eq!(chosen(ToolChoice::Required, false), Value::Null);
}

#[test]
fn a_conversation_with_tools() {
    check_messages(
        vec![
            user("weather in Rome and Bern?"),
            user("please"),
            assistant(vec![
                reasoning("two calls", Some("sig"), None),
                reasoning("", None, Some("hidden")),
                text("Let me see."),
                call("a", "weather", "{ \"city\": \"Rome\" }"),
                reasoning("from elsewhere", None, None),
                call("b", "weather", "{\"city\":"),
            ]),
            result("a", ToolStatus::Succeeded, "sunny", vec![]),
            user("hurry"),
            result("b", ToolStatus::Rejected, "arguments are not JSON", vec![]),
            assistant(vec![text("Sunny in Rome.")]),
            user("thanks"),
        ],
        json!([
            {"role": "user", "content": [
                {"type": "text", "text": "weather in Rome and Bern?"},
                {"type": "text", "text": "please"},
            ]},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "two calls", "signature": "sig"},
                {"type": "redacted_thinking", "data": "hidden"},
                {"type": "text", "text": "Let me see."},
                {"type": "tool_use", "id": "a", "name": "weather", "input": {"city": "Rome"}},
                {"type": "tool_use", "id": "b", "name": "weather", "input": {"_invalid": "{\"city\":"}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": "sunny"},
                {"type": "tool_result", "tool_use_id": "b", "content": "arguments are not JSON", "is_error": true},
                {"type": "text", "text": "hurry"},
            ]},
            {"role": "assistant", "content": [{"type": "text", "text": "Sunny in Rome."}]},
            {"role": "user", "content": [{"type": "text", "text": "thanks"}]},
        ]),
    );
}

#[test]
fn pictures() {
    let image = |image| Part::Image { image };
    let url = json!({"type": "image", "source": {"type": "url", "url": "https://x.example/a.png"}});
    let inline =
        json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBO"}});
    check_messages(
        vec![
            Message { role: Role::User, parts: vec![image(link()), text("what?")] },
            assistant(vec![call("a", "f", ""), call("b", "f", ""), call("c", "f", "")]),
            result("a", ToolStatus::Succeeded, "map", vec![png()]),
            result("b", ToolStatus::Succeeded, " ", vec![png()]),
            result("c", ToolStatus::Succeeded, "", vec![]),
        ],
        json!([
            {"role": "user", "content": [url, {"type": "text", "text": "what?"}]},
            {"role": "assistant", "content": [
                {"type": "tool_use", "id": "a", "name": "f", "input": {}},
                {"type": "tool_use", "id": "b", "name": "f", "input": {}},
                {"type": "tool_use", "id": "c", "name": "f", "input": {}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "map"}, inline]},
                {"type": "tool_result", "tool_use_id": "b", "content": [inline]},
                {"type": "tool_result", "tool_use_id": "c"},
            ]},
        ]),
    );
}

#[test]
fn what_the_api_refuses_is_not_sent() {
    check_messages(
        vec![
            assistant(vec![text("earlier")]),
            user(" \n"),
            assistant(vec![]),
            assistant(vec![reasoning("unsigned", None, None)]),
            user("go on"),
        ],
        json!([
            {"role": "user", "content": [{"type": "text", "text": "(The conversation goes on from here.)"}]},
            {"role": "assistant", "content": [{"type": "text", "text": "earlier"}]},
            {"role": "user", "content": [{"type": "text", "text": "go on"}]},
        ]),
    );
}

#[test]
fn system_messages() {
    let system = |text: &str| Message::text(Role::System, text);
    let mut request = request(vec![system("first"), user("hi"), system("late")]);
    request.system_prompt = "be good".to_owned();
    let body = sent(&request, &uncached());
    assert_eq!(
        body["system"],
        json!([{"type": "text", "text": "be good"}, {"type": "text", "text": "first"}])
    );
    assert_eq!(body["messages"][0]["content"][1]["text"], json!("<system>\nlate\n</system>"));
}

#[test]
fn ids_are_unique_and_plain() {
    let body = sent(
        &request(vec![
            assistant(vec![call("call_1_0", "f", "{}")]),
            result("call_1_0", ToolStatus::Succeeded, "1", vec![]),
            assistant(vec![call("call_1_0", "f", "{}"), call("functions.f:0", "functions.f", "{}")]),
            result("call_1_0", ToolStatus::Succeeded, "2", vec![]),
            result("functions.f:0", ToolStatus::Succeeded, "3", vec![]),
        ]),
        &uncached(),
    );
    let at = |pointer: &str| body.pointer(pointer).and_then(Value::as_str).unwrap().to_owned();
    assert_eq!(at("/messages/1/content/0/id"), "call_1_0");
    assert_eq!(at("/messages/2/content/0/tool_use_id"), "call_1_0");
    assert_eq!(at("/messages/3/content/0/id"), "call_1_0_2");
    assert_eq!(at("/messages/4/content/0/tool_use_id"), "call_1_0_2");
    assert_eq!(at("/messages/3/content/1/id"), at("/messages/4/content/1/tool_use_id"));
    assert!(!at("/messages/3/content/1/id").contains([':', '.']));
    assert_eq!(at("/messages/3/content/1/name"), "functions_f");
}

#[test]
fn what_is_kept_of_a_conversation_changes_no_byte() {
    for seed in 0..200 {
        let (mut talk, encoded) =
            (RandomConversation::new(seed), EncodedPrefix::caching(&EncodedPool::default()));
        for _ in 0..30 {
            let dialect = if talk.one_of(4) == 0 { uncached() } else { cached() };
            let policy = if talk.one_of(4) == 0 { StatePolicy::Drop } else { StatePolicy::Keep };
            let body = |encoded: &EncodedPrefix, messages: &[SharedMessage]| {
                let (messages, encoded) = (messages.to_vec(), encoded.clone());
                let model = "claude-opus-5-5".to_owned();
                let request = ModelRequest { messages, encoded, model, ..request(vec![]) };
                let call = CallContext { origin: origin(), policy, continues: false };
                let written = super::body(&request, &dialect, &ToolListCache::default(), &call).unwrap();
                (
                    String::from_utf8(written.body.to_vec()).unwrap(),
                    written.prefix.expect("thoughts are bound"),
                )
            };
            let messages = talk.next();
            assert_eq!(body(&encoded, &messages), body(&EncodedPrefix::default(), &messages), "seed {seed}");
        }
        assert!(encoded.bytes() > 0);
    }
}

#[test]
fn what_only_the_api_reads_goes_back_as_it_came() {
    let origin = Origin::new(&"p".into(), "m-1");
    let search = r#"{"type":"server_tool_use","id":"srv_1","name":"web_search","input":{"query":"x"}}"#;
    let found =
        r#"{"type":"web_search_tool_result","tool_use_id":"srv_1","content":[{"encrypted_content":"y"}]}"#;
    let citations = r#"{"citations":[{"type":"web_search_result_location","encrypted_index":"z"}]}"#;
    let message = assistant(vec![
        Part::Opaque(origin.state(search)),
        Part::Opaque(origin.state(found)),
        Part::Text { text: "As found.".into(), state: Some(origin.state(citations)) },
        Part::Opaque(origin.state("no block")),
    ]);
    let json = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    let quoted = json!({"type": "text", "text": "As found.", "citations": json(citations)["citations"]});
    let history = vec![user("x"), message, user("thanks")];
    let body = sent(&request(history.clone()), &uncached());
    assert_eq!(body["messages"][1]["content"], json!([json(search), json(found), quoted]));
    let dropped = sent_with(&request(history.clone()), &uncached(), StatePolicy::Drop);
    assert_eq!(dropped["messages"][1]["content"], json!([{"type": "text", "text": "As found."}]));
    let mut other = request(history);
    other.model = "m-2".to_owned();
    assert_eq!(sent(&other, &uncached())["messages"][1], dropped["messages"][1]);
}

#[test]
fn the_model_never_has_the_last_word() {
    let go_on = json!({"type": "text", "text": "(Go on.)"});
    let body = sent(&request(vec![user("a"), assistant(vec![text("b")])]), &uncached());
    assert_eq!(body["messages"][2], json!({"role": "user", "content": [go_on]}));
    let history = vec![user("a"), assistant(vec![text("b")]), assistant(vec![text("c")]), user("d")];
    let body = sent(&request(history), &uncached());
    assert_eq!(body["messages"][2], json!({"role": "user", "content": [go_on]}));
    assert_eq!(body["messages"][3]["content"][0]["text"], json!("c"));
}

#[test]
fn an_answer_that_goes_on_is_sent_back_as_it_is() {
    let request = request(vec![user("a"), assistant(vec![text("b")])]);
    let call = CallContext { origin: origin(), policy: StatePolicy::Keep, continues: true };
    let written = body(&request, &cached(), &ToolListCache::default(), &call).unwrap();
    let body: Value = serde_json::from_slice(&written.body.to_vec()).unwrap();
    assert_eq!(body["messages"].as_array().unwrap().len(), 2);
}

#[test]
fn a_tool_is_demanded_only_where_that_is_taken() {
    let chosen = |model: &str, choice: ToolChoice| {
        let mut request = request(vec![user("hi")]);
        request.model = model.to_owned();
        request.tools = [tool("f", "{}")].into();
        request.options.tool_choice = Some(choice);
        sent(&request, &uncached())["tool_choice"].clone()
    };
    assert_eq!(chosen("claude-opus-5-5", ToolChoice::Required), Value::Null);
    assert_eq!(chosen("claude-opus-5-5", ToolChoice::None), json!({"type": "none"}));
    assert_eq!(chosen("claude-opus-5", ToolChoice::Required), json!({"type": "any"}));
}
