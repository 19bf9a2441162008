use agentloop_core::agent::{ModelOptions, ReasoningEffort, ResponseSchema};
use agentloop_core::message::{Message, Part, Reasoning, Role, SharedMessage, ToolStatus};

use serde_json::{Value, json};

use super::*;
use crate::model::provider::anthropic::AnthropicOptions;
use crate::model::provider::anthropic::state::ThoughtState;
use crate::model::testing::fixtures::{
    RandomConversation, assistant, call, link, origin, png, reasoning, request, result, text, tool, user,
};
use crate::model::{EncodedPool, EncodedPrefix};

fn uncached() -> Dialect {
    let options = AnthropicOptions { prompt_cache: false, ..AnthropicOptions::default() };
    Dialect { options, ..Dialect::default() }
}

fn cached() -> Dialect {
    Dialect::default()
}

fn written(request: &ModelRequest, dialect: &Dialect, policy: StatePolicy) -> (Value, Option<Digest>) {
    let call = CallContext { origin: Origin::new(&"p".into(), &request.model), policy, continues: false };
    let written = body(request, dialect, &ToolListCache::default(), &call).unwrap();
    (serde_json::from_slice(&written.body.to_vec()).unwrap(), written.prefix)
}

fn sent_with(request: &ModelRequest, dialect: &Dialect, policy: StatePolicy) -> Value {
    written(request, dialect, policy).0
}

fn sent(request: &ModelRequest, dialect: &Dialect) -> Value {
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
fn the_cache_mark_moves_to_the_last_block() {
    let marked = |messages: Vec<Message>| {
        let body = sent(&request(messages), &cached());
        let last = body["messages"].as_array().unwrap().last().unwrap().clone();
        last["content"]
            .as_array()
            .unwrap()
            .iter()
            .map(|block| block.get("cache_control").is_some())
            .collect::<Vec<_>>()
    };
    let calls = || assistant(vec![call("a", "f", "{}"), call("b", "f", "{}")]);
    let results = || ["a", "b"].map(|id| result(id, ToolStatus::Succeeded, "x", vec![]));
    assert_eq!(marked([vec![calls()], results().to_vec()].concat()), [false, true]);
    assert_eq!(marked([vec![calls()], results().to_vec(), vec![user("x")]].concat()), [false, false, true]);
    assert_eq!(marked(vec![assistant(vec![reasoning("x", Some("s"), None)])]), [true], "what is asked last");
}

/// Every block of a prompt in the order of the prompt cache, without marks, and the positions of the marked blocks.
fn prompt(body: &Value) -> (Vec<Value>, Vec<usize>) {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut blocks = [list(&body["tools"]), list(&body["system"])].concat();
    for turn in list(&body["messages"]) {
        blocks.extend(list(&turn["content"]).into_iter().map(|block| json!([turn["role"], block])));
    }
    let mut marked = Vec::new();
    for (place, block) in blocks.iter_mut().enumerate() {
        let block = if block.is_array() { &mut block[1] } else { block };
        if block.as_object_mut().unwrap().remove("cache_control").is_some() {
            marked.push(place);
        }
    }
    (blocks, marked)
}

#[test]
fn marks_move_with_a_growing_conversation() {
    let ids: Vec<String> = (0..12).map(|id| format!("c{id}")).collect();
    let thinks = reasoning("hm", Some("s"), None);
    let calls = ids.iter().map(|id| call(id, "f", "{}"));
    let results = ids.iter().map(|id| result(id, ToolStatus::Succeeded, "x", vec![]));
    let steps: [Vec<Message>; 5] = [
        vec![user("hi")],
        [vec![assistant([thinks.clone()].into_iter().chain(calls).collect())], results.collect()].concat(),
        vec![assistant(vec![call("d", "f", "{}")]), result("d", ToolStatus::Succeeded, "x", vec![])],
        vec![assistant(vec![text("done")]), user("and now?"), user("go on")],
        vec![assistant(vec![text("done"), thinks]), user("thanks")],
    ];
    let mut messages = Vec::new();
    let mut prompts: Vec<(Vec<Value>, Vec<usize>)> = Vec::new();
    for step in steps {
        messages.extend(step);
        let mut request = request(messages.clone());
        request.system_prompt = "be good".to_owned();
        request.tools = [tool("f", "{}"), tool("g", "{}")].into();
        let (blocks, marked) = prompt(&sent(&request, &cached()));
        if let Some((before, ends)) = prompts.last() {
            assert!(blocks.starts_with(before), "the prompt only grows");
            let end = ends.last().unwrap();
            assert!(
                marked.contains(end),
                "what the last request left is looked for where it ends: {marked:?}"
            );
        }
        prompts.push((blocks, marked));
    }
    let marked: Vec<&[usize]> = prompts.iter().map(|(_, marked)| marked.as_slice()).collect();
    // Tools at 0 and 1, the system prompt at 2, and the first question at 3.
    assert_eq!(marked, [&[1, 2, 3][..], &[1, 2, 3, 28], &[1, 2, 28, 30], &[1, 2, 30, 33], &[1, 2, 33, 36]]);
}

#[test]
fn there_are_no_more_marks_than_the_api_takes() {
    let mut request = request(vec![user("a"), assistant(vec![text("b")]), user("c")]);
    request.system_prompt = "be good".to_owned();
    request.tools = [tool("f", "{}")].into();
    assert_eq!(prompt(&sent(&request, &cached())).1, [0, 1, 2, 4]);
    request.options.provider_options = Some(r#"{"cache_control":{"type":"ephemeral"}}"#.to_owned());
    assert_eq!(prompt(&sent(&request, &cached())).1, [0, 1], "the API sets one itself");
    assert_eq!(prompt(&sent(&request, &uncached())).1, [0_usize; 0]);
}

#[test]
fn thoughts_can_be_dropped() {
    let mut request =
        request(vec![user("x"), assistant(vec![reasoning("t", Some("s"), None), call("a", "f", "{}")])]);
    request.options.reasoning_effort = Some(ReasoningEffort::High);
    let body = sent_with(&request, &uncached(), StatePolicy::Drop);
    assert_eq!(body["messages"][1]["content"].as_array().unwrap().len(), 1);
    assert_eq!(body.get("thinking"), None);
    assert!(sent(&request, &uncached())["thinking"].is_object());
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

/// A conversation with a model that binds its thinking to the prefix.
struct Bound {
    request: ModelRequest,
    origin: Origin,
}

impl Bound {
    fn new(model: &str) -> Self {
        let mut request = request(vec![]);
        request.model = model.to_owned();
        request.system_prompt = "be good".to_owned();
        request.tools = [tool("f", "{}")].into();
        Self { request, origin: Origin::new(&"p".into(), model) }
    }

    fn says(&mut self, message: Message) -> &mut Self {
        self.request.messages.push(Arc::new(message));
        self
    }

    /// Adds an answer with thinking that is bound to the request.
    fn thinks(&mut self, signature: &str, then: Vec<Part>) -> &mut Self {
        let (_, prefix) = written(&self.request, &cached(), StatePolicy::Keep);
        let state = ThoughtState { signature: Some(signature.into()), redacted: None, prefix };
        let state = state.to_provider_state(&self.origin);
        let thought = Part::Reasoning(Reasoning { text: "hm".into(), state, ..Reasoning::default() });
        self.says(assistant([vec![thought], then].concat()))
    }

    /// Signatures that are sent, in order.
    fn sends(&self) -> Vec<String> {
        let body = sent(&self.request, &cached());
        let turns = body["messages"].as_array().unwrap().clone();
        let blocks = turns.iter().flat_map(|turn| turn["content"].as_array().unwrap().clone());
        blocks.filter_map(|block| block["signature"].as_str().map(str::to_owned)).collect()
    }
}

fn two_rounds(model: &str) -> Bound {
    let mut bound = Bound::new(model);
    bound.says(user("hi")).thinks("one", vec![call("a", "f", "{}")]);
    bound.says(result("a", ToolStatus::Succeeded, "1", vec![])).thinks("two", vec![text("done")]);
    bound.says(user("and now?"));
    bound
}

#[test]
fn thoughts_go_back_behind_what_they_were_bound_to() {
    let mut bound = two_rounds("claude-opus-5-5");
    assert_eq!(bound.sends(), ["one", "two"]);
    bound.thinks("three", vec![text("yes")]).says(user("thanks"));
    assert_eq!(bound.sends(), ["one", "two", "three"]);
}

#[test]
fn thoughts_are_left_out_where_anything_before_them_changed() {
    let changes: [fn(&mut ModelRequest); 5] = [
        |request| request.system_prompt.push('!'),
        |request| request.tools = [].into(),
        |request| request.tools = [tool("f", "{}"), tool("g", "{}")].into(),
        |request| request.messages[0] = Arc::new(user("hello")),
        |request| request.messages.insert(0, Arc::new(Message::text(Role::System, "context"))),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let mut bound = two_rounds("claude-opus-5-5");
        change(&mut bound.request);
        assert!(bound.sends().is_empty(), "change {number}");
        // What it thinks from here on is bound to what it is sent now, without them.
        bound.thinks("three", vec![text("yes")]).says(user("thanks"));
        assert_eq!(bound.sends(), ["three"], "change {number}");
        let mut older = two_rounds("claude-opus-4-8");
        change(&mut older.request);
        assert_eq!(older.sends(), ["one", "two"], "these bind nothing, change {number}");
    }
}

#[test]
fn thoughts_come_back_with_what_they_were_bound_to() {
    let mut bound = two_rounds("claude-opus-5-5");
    let tools = std::mem::replace(&mut bound.request.tools, [tool("g", "{}")].into());
    bound.thinks("elsewhere", vec![text("yes")]).says(user("thanks"));
    assert_eq!(bound.sends(), ["elsewhere"]);
    bound.request.tools = tools;
    assert_eq!(bound.sends(), ["one", "two"]);
}

#[test]
fn thoughts_behind_what_cannot_be_sent_are_left_out() {
    let mut bound = Bound::new("claude-opus-5-5");
    bound.says(user("hi"));
    let (_, prefix) = written(&bound.request, &cached(), StatePolicy::Keep);
    let thought = |signature: &str| {
        let state =
            ThoughtState { signature: Some(signature.into()), redacted: None, prefix: prefix.clone() };
        Part::Reasoning(Reasoning { state: state.to_provider_state(&bound.origin), ..Reasoning::default() })
    };
    let parts = vec![thought("one"), text(" "), thought("two"), call("a", "f", "{")];
    bound.says(assistant(parts)).says(result("a", ToolStatus::Rejected, "no JSON", vec![]));
    assert_eq!(bound.sends(), ["one"], "the API refuses the blank text between them");
}

#[test]
fn thoughts_of_others_are_left_out() {
    let mut bound = two_rounds("claude-opus-4-8");
    bound.request.model = "claude-sonnet-5".to_owned();
    assert!(bound.sends().is_empty());
    let legacy = [user("hi"), assistant(vec![reasoning("t", Some("old"), None), text("a")]), user("b")];
    for (model, expected) in [("claude-opus-4-8", &["old"][..]), ("claude-opus-5-5", &[])] {
        let mut bound = Bound::new(model);
        bound.request.messages = legacy.iter().cloned().map(Arc::new).collect();
        assert_eq!(bound.sends(), expected, "{model}: nobody knows what it was bound to");
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
    // What it thinks then is bound to the same, whether that stands at the end or between.
    let mut bound = Bound::new("claude-opus-5-5");
    bound.says(user("a")).thinks("one", vec![text("b")]).thinks("two", vec![text("c")]).says(user("d"));
    assert_eq!(bound.sends(), ["one", "two"]);
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
