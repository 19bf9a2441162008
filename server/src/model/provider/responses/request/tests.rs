use agentloop_core::agent::{ReasoningEffort, ResponseSchema};
use agentloop_core::message::{Message, Part, Reasoning, Role, ToolCall, ToolStatus};
use agentloop_core::model::traits::{ThinkingMode, TraitOverrides};
use agentloop_core::tool::Digest;
use serde_json::{Value, json};

use super::super::state::{ItemState, call_digest, reasoning_digest, text_digest};
use super::*;
use crate::model::testing::fixtures::{
    assistant, call, link, origin, png, request, result, text, tool, user,
};

fn call_of(request: &ModelRequest) -> CallContext {
    CallContext {
        origin: Origin::new(&"p".into(), &request.model),
        policy: StatePolicy::Keep,
        without_reasoning: false,
    }
}

fn sent_by(request: &ModelRequest, dialect: &ProviderDialect, call: &CallContext) -> Value {
    let body = body(request, dialect, &ToolListCache::default(), call).unwrap();
    serde_json::from_slice(&body.to_vec()).unwrap()
}

fn sent(request: &ModelRequest) -> Value {
    sent_by(request, &ProviderDialect::default(), &call_of(request))
}

fn input(messages: Vec<Message>) -> Value {
    sent(&request(messages))["input"].clone()
}

/// A reasoning item of the model `m-1`.
fn thought(id: &str) -> Part {
    let item = format!(r#"{{"id":"{id}","type":"reasoning","summary":[],"encrypted_content":"E{id}"}}"#);
    Part::Reasoning(Reasoning { state: Some(origin().state(item)), ..Reasoning::default() })
}

/// Digest of these reasoning items, which come before an item.
fn after(ids: &[&str]) -> Option<Digest> {
    ids.iter().fold(None, |row, id| {
        let Part::Reasoning(Reasoning { state: Some(state), .. }) = thought(id) else { unreachable!() };
        Some(reasoning_digest(row.as_ref(), &state.data))
    })
}

fn said_after(ids: &[&str], text: &str, phase: Option<&str>) -> Part {
    let phase = phase.map(str::to_owned);
    let state =
        ItemState { digest: text_digest(text), after: after(ids), phase }.to_provider_state(&origin());
    Part::Text { text: text.to_owned(), state }
}

fn said(text: &str, phase: Option<&str>) -> Part {
    said_after(&["rs"], text, phase)
}

fn asked(id: &str, name: &str, arguments: &str) -> Part {
    asked_after(&["rs"], id, name, arguments)
}

fn asked_after(ids: &[&str], id: &str, name: &str, arguments: &str) -> Part {
    let Part::ToolCall(made) = call(id, name, arguments) else { unreachable!() };
    let state = ItemState { digest: call_digest(id, name, arguments), after: after(ids), phase: None };
    let state = state.to_provider_state(&origin());
    Part::ToolCall(ToolCall { state, ..made })
}

#[test]
fn the_whole_request() {
    let mut request = request(vec![user("what is here?")]);
    request.model = "gpt-6.1-sol".to_owned();
    request.system_prompt = "Be brief.".to_owned();
    request.tools = [tool("ls", r#"{"properties":{"p":{"type":"string"}}}"#)].into();
    request.options = ModelOptions {
        max_output_tokens: Some(16_000),
        reasoning_effort: Some(ReasoningEffort::Medium),
        tool_choice: Some(ToolChoice::Named("ls".to_owned())),
        response_schema: Some(ResponseSchema {
            name: "answer".to_owned(),
            schema: r#"{"type":"object"}"#.to_owned(),
            strict: true,
        }),
        stop: vec!["END".to_owned()],
        temperature: Some(0.5),
        top_p: Some(0.5),
        provider_options: Some(r#"{"reasoning":{"summary":"detailed"},"service_tier":"flex"}"#.to_owned()),
    };
    let mut sent = sent(&request);
    let key = sent["prompt_cache_key"].take();
    assert!(key.as_str().unwrap().len() <= 64);
    assert_eq!(
        sent,
        json!({
            "model": "gpt-6.1-sol", "stream": true, "store": false, "instructions": "Be brief.",
            "prompt_cache_key": null, "max_output_tokens": 16_000, "service_tier": "flex",
            "reasoning": {"effort": "medium", "summary": "detailed"},
            "include": ["reasoning.encrypted_content"],
            "tool_choice": {"type": "function", "name": "ls"},
            "text": {"format": {
                "type": "json_schema", "name": "answer", "schema": {"type": "object"}, "strict": true,
            }},
            "tools": [{
                "type": "function", "name": "ls", "description": "Does ls.", "strict": false,
                "parameters": {"type": "object", "properties": {"p": {"type": "string"}}},
            }],
            "input": [{"role": "user", "content": "what is here?"}],
        }),
        "what a thinking model refuses is left out"
    );
}

#[test]
fn what_is_asked_of_a_model_depends_on_it() {
    let with = |model: &str, effort: Option<ReasoningEffort>, dialect: &ProviderDialect| {
        let mut request = request(vec![user("hi")]);
        request.model = model.to_owned();
        request.options.reasoning_effort = effort;
        request.options.temperature = Some(0.5);
        let sent = sent_by(&request, dialect, &call_of(&request));
        (sent["reasoning"].clone(), sent["include"].is_array(), sent["temperature"].is_number())
    };
    let plain = ProviderDialect::default();
    let summary = || json!({"summary": "auto"});
    let with_effort = |effort: &str| json!({"effort": effort, "summary": "auto"});
    assert_eq!(with("gpt-4o", Some(ReasoningEffort::High), &plain), (Value::Null, false, true));
    assert_eq!(with("gpt-5.4", None, &plain), (Value::Null, true, true), "it thinks only when asked to");
    assert_eq!(with("gpt-5.4", Some(ReasoningEffort::Low), &plain), (with_effort("low"), true, false));
    assert_eq!(with("gpt-5.6", None, &plain), (summary(), true, false));
    assert_eq!(with("gpt-5.6", Some(ReasoningEffort::None), &plain), (json!({"effort": "none"}), true, true));
    assert_eq!(with("gpt-6-astra", Some(ReasoningEffort::None), &plain), (with_effort("low"), true, false));
    assert_eq!(with("prod", None, &plain), (Value::Null, true, true), "nobody knows what it takes");
    assert_eq!(with("prod", Some(ReasoningEffort::High), &plain), (with_effort("high"), true, true));
    let never = TraitOverrides { thinks: Some(ThinkingMode::Never), ..TraitOverrides::default() };
    let configured =
        ProviderDialect { traits: [("prod".to_owned(), never)].into(), ..ProviderDialect::default() };
    assert_eq!(with("prod", None, &configured), (Value::Null, false, true));
}

#[test]
fn a_server_that_shows_no_reasoning_is_not_asked_to() {
    let mut request = request(vec![user("hi")]);
    request.model = "gpt-6.1-sol".to_owned();
    let call = CallContext { without_reasoning: true, ..call_of(&request) };
    let sent = sent_by(&request, &ProviderDialect { official: true, ..ProviderDialect::default() }, &call);
    assert_eq!((&sent["reasoning"], &sent["include"]), (&Value::Null, &Value::Null));
    assert_eq!(sent["stream_options"], json!({"include_obfuscation": false}));
}

#[test]
fn a_conversation_is_a_list_of_items() {
    let messages = vec![
        Message { role: Role::System, parts: vec![text("rules")] },
        Message { role: Role::User, parts: vec![text("look"), Part::Image { image: link() }] },
        assistant(vec![
            text("I look."),
            call("a", "weather", r#"{"x":1}"#),
            call("b", "bad name", "no json"),
        ]),
        result("a", ToolStatus::Succeeded, "sun", vec![]),
        result("b", ToolStatus::Failed, "no", vec![png()]),
        assistant(vec![text("Done.")]),
    ];
    assert_eq!(
        input(messages),
        json!([
            {"role": "system", "content": "rules"},
            {"role": "user", "content": [
                {"type": "input_text", "text": "look"},
                {"type": "input_image", "image_url": "https://x.example/a.png"},
            ]},
            {"role": "assistant", "content": "I look."},
            {"type": "function_call", "call_id": "a", "name": "weather", "arguments": r#"{"x":1}"#},
            {"type": "function_call", "call_id": "b", "name": "bad_name", "arguments": r#"{"_invalid":"no json"}"#},
            {"type": "function_call_output", "call_id": "a", "output": "sun"},
            {"type": "function_call_output", "call_id": "b", "output": [
                {"type": "input_text", "text": "error: no"},
                {"type": "input_image", "image_url": "data:image/png;base64,iVBO"},
            ]},
            {"role": "assistant", "content": "Done."},
        ])
    );
}

fn item(id: &str) -> Value {
    json!({"id": id, "type": "reasoning", "summary": [], "encrypted_content": format!("E{id}")})
}

#[test]
fn reasoning_goes_back_before_what_it_led_to() {
    let parts = vec![
        thought("rs_1"),
        said_after(&["rs_1"], "I look.", Some("commentary")),
        thought("rs_2"),
        thought("rs_3"),
        asked_after(&["rs_2", "rs_3"], "a", "f", "{}"),
        asked_after(&[], "b", "g", "{}"),
    ];
    let sent = input(vec![user("hi"), assistant(parts)]);
    assert_eq!(
        sent.as_array().unwrap()[1..],
        [
            item("rs_1"),
            json!({"role": "assistant", "content": "I look.", "phase": "commentary"}),
            item("rs_2"),
            item("rs_3"),
            json!({"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"}),
            json!({"type": "function_call", "call_id": "b", "name": "g", "arguments": "{}"}),
        ]
    );
}

/// Ids of the reasoning items that are sent.
fn goes_back(parts: Vec<Part>) -> Vec<String> {
    ids(&input(vec![user("hi"), assistant(parts)]))
}

fn ids(input: &Value) -> Vec<String> {
    let ids = input.as_array().unwrap().iter().filter_map(|item| item["id"].as_str());
    ids.map(str::to_owned).collect()
}

#[test]
fn reasoning_before_anything_else_stays_away() {
    assert_eq!(goes_back(vec![thought("rs"), said("so", None)]), ["rs"]);
    let edited = |made: Part, edit: &dyn Fn(&mut ToolCall)| {
        let Part::ToolCall(mut made) = made else { unreachable!() };
        edit(&mut made);
        Part::ToolCall(made)
    };
    let nothing: [&str; 0] = [];
    for after in [
        vec![],
        vec![text("so")],
        vec![text("")],
        vec![call("a", "f", "{}")],
        vec![edited(asked("a", "f", "{}"), &|call| call.arguments = r#"{"x":1}"#.to_owned())],
        vec![asked("a", "f", "no json")],
        vec![asked("a", "bad name", "{}")],
        vec![asked("functions.f:0", "f", "{}")],
        vec![thought("rs_2")],
        vec![said_after(&[], "so", None)],
        vec![said_after(&["rs_2"], "so", None)],
        vec![text("so"), asked("a", "f", "{}")],
    ] {
        let parts = [vec![thought("rs")], after].concat();
        assert_eq!(goes_back(parts.clone()), nothing, "{parts:?}");
    }
}

#[test]
fn an_id_that_is_there_already_is_another_call() {
    let round = || assistant(vec![thought("rs"), asked("a", "f", "{}")]);
    let answer = || result("a", ToolStatus::Succeeded, "x", vec![]);
    assert_eq!(ids(&input(vec![round(), answer(), round(), answer()])), ["rs"], "the second is renamed");
}

#[test]
fn state_of_others_stays_away() {
    let mut request =
        request(vec![user("hi"), assistant(vec![thought("rs"), said("so", Some("final_answer"))])]);
    let seen = |request: &ModelRequest, call: &CallContext| {
        let sent = sent_by(request, &ProviderDialect::default(), call);
        (
            ids(&sent["input"]).len(),
            sent["input"][if ids(&sent["input"]).is_empty() { 1 } else { 2 }]["phase"].is_string(),
        )
    };
    assert_eq!(seen(&request, &call_of(&request)), (1, true));
    let dropped = CallContext { policy: StatePolicy::Drop, ..call_of(&request) };
    assert_eq!(seen(&request, &dropped), (0, false));
    let elsewhere = CallContext { origin: Origin::new(&"q".into(), "m-1"), ..call_of(&request) };
    assert_eq!(seen(&request, &elsewhere), (0, false));
    request.model = "m-2".to_owned();
    assert_eq!(seen(&request, &call_of(&request)), (0, false));
}

#[test]
fn an_item_without_its_content_is_never_named() {
    let state = |item: &str| Some(origin().state(item));
    for bare in [
        r#"{"id":"rs","type":"reasoning","summary":[]}"#,
        r#"{"id":"rs","type":"reasoning","summary":[],"encrypted_content":null}"#,
        r#"{"id":"rs","type":"reasoning","summary":[],"encrypted_content":""}"#,
        "no json",
    ] {
        let bare = Part::Reasoning(Reasoning { state: state(bare), ..Reasoning::default() });
        assert!(goes_back(vec![bare, said("so", None)]).is_empty());
    }
}

#[test]
fn items_of_the_provider_go_back_as_they_came() {
    let search = r#"{"id":"ws_1","type":"web_search_call","status":"completed","action":{"n":1.50}}"#;
    let parts =
        vec![Part::Opaque(origin().state(search)), Part::Opaque(origin().state("7")), said("so", None)];
    let request = request(vec![user("hi"), assistant(parts)]);
    let body =
        body(&request, &ProviderDialect::default(), &ToolListCache::default(), &call_of(&request)).unwrap();
    assert!(String::from_utf8(body.to_vec()).unwrap().contains(search));
    assert_eq!(sent(&request)["input"].as_array().unwrap().len(), 3);
}

#[test]
fn requests_of_one_conversation_share_a_cache() {
    let key = |messages: Vec<Message>, prompt: &str| {
        let mut request = request(messages);
        request.system_prompt = prompt.to_owned();
        sent(&request)["prompt_cache_key"].as_str().unwrap().to_owned()
    };
    let first = key(vec![user("a")], "p");
    assert_eq!(first, key(vec![user("a"), assistant(vec![text("b")]), user("c")], "p"), "forks, too");
    assert_ne!(first, key(vec![user("b")], "p"));
    assert_ne!(first, key(vec![user("a")], "q"));
}
