use agentloop_core::agent::{ModelOptions, ResponseSchema};
use agentloop_core::message::{Message, Part, ProviderState, Reasoning, Role, ToolCall, ToolStatus};
use serde_json::{Value, json};

use super::super::state::PartState;
use super::*;
use crate::model::request::origin::NO_SIGNATURE;
use crate::model::testing::fixtures::{assistant, call, link, png, request, result, text, tool, user};

const MODEL: &str = "gemini-3.8-flash";

fn origin() -> Origin {
    Origin::new(&"p".into(), MODEL)
}

fn written(request: &ModelRequest, policy: StatePolicy) -> Result<Value, String> {
    let origin = Origin::new(&"p".into(), &request.model);
    let body = body(request, &ProviderDialect::default(), &ToolListCache::default(), &origin, policy);
    body.map(|body| serde_json::from_slice(&body.to_vec()).unwrap()).map_err(|error| error.message)
}

fn sent(request: &ModelRequest) -> Value {
    written(request, StatePolicy::Keep).unwrap()
}

fn asking(messages: Vec<Message>) -> ModelRequest {
    ModelRequest { model: MODEL.to_owned(), ..request(messages) }
}

fn contents(messages: Vec<Message>) -> Value {
    sent(&asking(messages))["contents"].take()
}

fn state(signature: Option<&str>, id: Option<&str>) -> Option<ProviderState> {
    PartState { thought_signature: signature.map(str::to_owned), id: id.map(str::to_owned) }
        .to_provider_state(&origin())
}

/// A call with stored state of Gemini.
fn own(id: &str, signature: Option<&str>) -> Part {
    let Part::ToolCall(made) = call(id, "weather", "{}") else { unreachable!() };
    Part::ToolCall(ToolCall { state: state(signature, Some(id)), ..made })
}

fn said(text: &str, signature: &str) -> Part {
    Part::Text { text: text.to_owned(), state: state(Some(signature), None) }
}

#[test]
fn the_whole_request() {
    let mut request = asking(vec![user("hi")]);
    request.system_prompt = "Be brief.".to_owned();
    request.tools = [tool("ls", r#"{"properties":{"p":{"const":"."}}}"#), tool("_x", "{}")].into();
    request.options = ModelOptions {
        temperature: Some(0.5),
        max_output_tokens: Some(100),
        stop: vec!["END".to_owned()],
        reasoning_effort: Some(ReasoningEffort::Low),
        tool_choice: Some(ToolChoice::Named("ls".to_owned())),
        response_schema: Some(ResponseSchema {
            name: "answer".to_owned(),
            schema: r#"{"type":"object","properties":{"b":{},"a":{}}}"#.to_owned(),
            strict: true,
        }),
        provider_options: Some(
            r#"{"safetySettings":[],"generationConfig":{"seed":7},"stream":false}"#.to_owned(),
        ),
        ..ModelOptions::default()
    };
    assert_eq!(
        sent(&request),
        json!({
            "systemInstruction": {"parts": [{"text": "Be brief."}]},
            "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["ls"]}},
            "generationConfig": {
                "maxOutputTokens": 100, "stopSequences": ["END"], "responseMimeType": "application/json",
                "responseJsonSchema": {"type": "object", "properties": {"b": {}, "a": {}}},
                "thinkingConfig": {"thinkingLevel": "LOW", "includeThoughts": true}, "seed": 7,
            },
            "safetySettings": [],
            "tools": [{"functionDeclarations": [
                {"name": "ls", "description": "Does ls.", "parametersJsonSchema":
                    {"type": "object", "properties": {"p": {"enum": ["."]}}}},
                {"name": "_x", "description": "Does _x.", "parametersJsonSchema": {"type": "object"}},
            ]}],
            "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
        })
    );
    let plain = sent(&asking(vec![user("hi")]));
    assert_eq!(
        plain,
        json!({
            "generationConfig": {"thinkingConfig": {"includeThoughts": true}},
            "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
        })
    );
}

#[test]
fn thinking_is_asked_for_as_the_model_wants_it() {
    let config = |model: &str, effort: Option<ReasoningEffort>| {
        let mut request = request(vec![user("hi")]);
        request.model = model.to_owned();
        request.options.reasoning_effort = effort;
        request.options.temperature = Some(0.5);
        let mut sent = sent(&request);
        (
            sent["generationConfig"]["thinkingConfig"].take(),
            sent["generationConfig"]["temperature"].is_number(),
        )
    };
    use ReasoningEffort::{High, None as Off};
    let level = |level: &str| (json!({"thinkingLevel": level, "includeThoughts": true}), false);
    assert_eq!(config("gemini-4-argon", Some(High)), level("HIGH"));
    assert_eq!(config("gemini-4-argon", Some(Off)), level("LOW"), "it always thinks");
    assert_eq!(config("gemini-3.6-flash", Some(Off)), level("MINIMAL"));
    let budget =
        |budget: i32, shown: bool| (json!({"thinkingBudget": budget, "includeThoughts": shown}), true);
    assert_eq!(config("gemini-2.5-flash", Some(High)), budget(24_576, true));
    assert_eq!(config("gemini-2.5-flash", Some(Off)), budget(0, false));
    assert_eq!(config("gemini-2.0-flash", Some(High)), (Value::Null, true));
    assert_eq!(config("gemma-3-27b-it", None), (Value::Null, true));
    assert_eq!(config("my-endpoint", None), (Value::Null, true), "nobody knows what it takes");
    assert_eq!(config("my-endpoint", Some(High)), (level("HIGH").0, true));
}

#[test]
fn what_cannot_be_asked_is_refused_in_words() {
    let mut asked = asking(vec![user("hi")]);
    asked.tools = [tool("f", r#"{"properties":{"x":{"not":{}}}}"#)].into();
    assert_eq!(
        written(&asked, StatePolicy::Keep).unwrap_err(),
        "the schema of tool \"f\" has \"not\" at \"/properties/x\", which Gemini does not take; say it in another way"
    );
    asked.tools = [tool("7up", "{}")].into();
    assert!(written(&asked, StatePolicy::Keep).unwrap_err().contains("begin with a letter"));
    asked.tools = [tool("f", "{}")].into();
    asked.options.response_schema =
        Some(ResponseSchema { name: "a".to_owned(), schema: "{}".to_owned(), strict: true });
    assert!(written(&asked, StatePolicy::Keep).is_ok());
    asked.model = "gemini-2.5-flash".to_owned();
    assert!(written(&asked, StatePolicy::Keep).unwrap_err().contains("not both"));
}

#[test]
fn tool_choices() {
    let choice = |choice: ToolChoice| {
        let mut request = asking(vec![user("hi")]);
        request.tools = [tool("f", "{}")].into();
        request.options.tool_choice = Some(choice);
        sent(&request)["toolConfig"]["functionCallingConfig"]["mode"].take()
    };
    assert_eq!(choice(ToolChoice::Auto), "AUTO");
    assert_eq!(choice(ToolChoice::None), "NONE");
    assert_eq!(choice(ToolChoice::Required), "ANY");
    let mut without_tools = asking(vec![user("hi")]);
    without_tools.options.tool_choice = Some(ToolChoice::Required);
    assert_eq!(sent(&without_tools)["toolConfig"], Value::Null);
}

#[test]
fn a_conversation_is_contents_of_a_role() {
    let messages = vec![
        Message { role: Role::System, parts: vec![text("rules")] },
        Message { role: Role::User, parts: vec![text("look"), Part::Image { image: link() }] },
        assistant(vec![text("I look."), own("a", Some("S1")), own("b", None)]),
        result("a", ToolStatus::Succeeded, "sun", vec![png(), link()]),
        result("b", ToolStatus::Failed, "no", vec![]),
        user("and?"),
        assistant(vec![said("Done.", "S2")]),
        user("thanks"),
    ];
    let mut whole = sent(&asking(messages));
    assert_eq!(whole["systemInstruction"], json!({"parts": [{"text": "rules"}]}));
    let caption = "Images returned by the tool weather:";
    assert_eq!(
        whole["contents"].take(),
        json!([
            {"role": "user", "parts": [
                {"text": "look"},
                {"fileData": {"fileUri": "https://x.example/a.png", "mimeType": "image/png"}},
            ]},
            {"role": "model", "parts": [
                {"text": "I look."},
                {"functionCall": {"id": "a", "name": "weather", "args": {}}, "thoughtSignature": "S1"},
                {"functionCall": {"id": "b", "name": "weather", "args": {}}},
            ]},
            {"role": "user", "parts": [
                {"functionResponse": {"id": "a", "name": "weather", "response": {"output": "sun"},
                    "parts": [{"inlineData": {"mimeType": "image/png", "data": "iVBO"}}]}},
                {"text": caption},
                {"fileData": {"fileUri": "https://x.example/a.png", "mimeType": "image/png"}},
                {"functionResponse": {"id": "b", "name": "weather", "response": {"error": "no"}}},
            ]},
            {"role": "user", "parts": [{"text": "and?"}]},
            {"role": "model", "parts": [{"text": "Done.", "thoughtSignature": "S2"}]},
            {"role": "user", "parts": [{"text": "thanks"}]},
        ])
    );
}

#[test]
fn the_model_never_has_the_first_or_the_last_word() {
    let say = |who: &str, text: &str| json!({"role": who, "parts": [{"text": text}]});
    assert_eq!(
        contents(vec![assistant(vec![text("a")]), assistant(vec![text("b")])]),
        json!([
            say("user", "(The conversation goes on from here.)"),
            say("model", "a"),
            say("user", "(Go on.)"),
            say("model", "b"),
            say("user", "(Go on.)"),
        ])
    );
    assert_eq!(contents(vec![user("hi"), assistant(vec![text("")])]), json!([say("user", "hi")]));
}

/// Signatures of the parts of the model's messages.
fn signatures(request: &ModelRequest, policy: StatePolicy) -> Vec<Vec<Option<String>>> {
    let sent = written(request, policy).unwrap();
    let of_part = |part: &Value| part["thoughtSignature"].as_str().map(str::to_owned);
    let contents = sent["contents"].as_array().unwrap().iter().filter(|content| content["role"] == "model");
    contents.map(|content| content["parts"].as_array().unwrap().iter().map(of_part).collect()).collect()
}

#[test]
fn signatures_stay_with_their_parts() {
    let thought = Part::Reasoning(Reasoning {
        text: "hm".to_owned(),
        state: state(Some("S0"), None),
        ..Reasoning::default()
    });
    let unsigned = Part::Reasoning(Reasoning { text: "hm".to_owned(), ..Reasoning::default() });
    let last = Part::Opaque(origin().state(r#"{"text":"","thoughtSignature":"S4"}"#));
    let parts =
        vec![thought, unsigned, text("so"), said("and", "S1"), own("a", Some("S2")), own("b", None), last];
    let answers = vec![
        result("a", ToolStatus::Succeeded, "x", vec![]),
        result("b", ToolStatus::Succeeded, "y", vec![]),
    ];
    let request = asking([vec![user("hi"), assistant(parts)], answers].concat());
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(
        signatures(&request, StatePolicy::Keep),
        [[some("S0"), None, some("S1"), some("S2"), None, some("S4")]]
    );
    let placeholder = [[None, None, some(NO_SIGNATURE), None]];
    assert_eq!(signatures(&request, StatePolicy::Drop), placeholder);
    let mut other = request;
    other.model = "gemini-4-argon".to_owned();
    assert_eq!(signatures(&other, StatePolicy::Keep), placeholder, "of another family");
    other.model = "gemini-2.5-flash".to_owned();
    assert_eq!(signatures(&other, StatePolicy::Keep), [[None, None, None, None]], "it demands none");
}

/// Calls end in any order. The API matches results without ids with the calls by their order.
#[test]
fn results_are_sent_in_the_order_of_their_calls() {
    let ended = |id: &str, output: &str, images| result(id, ToolStatus::Succeeded, output, images);
    let calls = ["a", "b", "c"].map(|id| call(id, "weather", "{}"));
    let messages = vec![
        user("hi"),
        assistant(calls.to_vec()),
        ended("c", "third", vec![link()]),
        ended("a", "first", vec![]),
        ended("b", "second", vec![]),
        assistant(vec![call("d", "weather", "{}")]),
        ended("d", "fourth", vec![]),
    ];
    let sent = contents(messages);
    let outputs = |content: usize| {
        let parts = sent[content]["parts"].as_array().unwrap();
        parts.iter().filter_map(|part| part["functionResponse"]["response"]["output"].as_str()).collect()
    };
    let (round, next): (Vec<&str>, Vec<&str>) = (outputs(2), outputs(4));
    assert_eq!((round, next), (vec!["first", "second", "third"], vec!["fourth"]));
    let parts = sent[2]["parts"].as_array().unwrap();
    assert!(
        parts[2]["functionResponse"].is_object() && parts.len() > 3,
        "its image stays behind it: {parts:?}"
    );
}

#[test]
fn calls_of_other_models_are_marked_as_such() {
    let messages = vec![
        user("hi"),
        assistant(vec![call("call_1", "weather", "{}"), call("call_2", "weather", "no json")]),
        result("call_1", ToolStatus::Succeeded, "x", vec![]),
        result("call_2", ToolStatus::Succeeded, "y", vec![]),
        assistant(vec![own("a", Some("S"))]),
        result("a", ToolStatus::Succeeded, "z", vec![]),
    ];
    let sent = contents(messages);
    assert_eq!(
        sent[1]["parts"],
        json!([
            {"functionCall": {"name": "weather", "args": {}}, "thoughtSignature": NO_SIGNATURE},
            {"functionCall": {"name": "weather", "args": {"_invalid": "no json"}}},
        ])
    );
    assert_eq!(sent[2]["parts"][0]["functionResponse"]["id"], Value::Null, "its id is unknown here");
    assert_eq!(sent[3]["parts"][0]["thoughtSignature"], "S");
    assert_eq!(sent[4]["parts"][0]["functionResponse"]["id"], "a");
}

#[test]
fn parts_of_the_provider_go_back_as_they_came() {
    let code = r#"{"executableCode":{"language":"PYTHON","code":"1.50"}}"#;
    let parts = vec![Part::Opaque(origin().state(code)), Part::Opaque(origin().state("7")), text("so")];
    assert_eq!(
        contents(vec![user("hi"), assistant(parts), user("go")])[1]["parts"],
        json!([{"executableCode": {"language": "PYTHON", "code": "1.50"}}, {"text": "so"}])
    );
}

#[test]
fn calls_with_one_id_are_sent_under_those_of_their_results() {
    let own = |id: &str| {
        let Part::ToolCall(made) = call(id, "weather", "{}") else { unreachable!() };
        Part::ToolCall(ToolCall { state: state(Some("S"), Some("x")), ..made })
    };
    let sent = contents(vec![
        user("hi"),
        assistant(vec![own("x"), own("x_2")]),
        result("x", ToolStatus::Succeeded, "1", vec![]),
        result("x_2", ToolStatus::Succeeded, "2", vec![]),
    ]);
    let ids = |content: usize, field: &str| {
        let parts = sent[content]["parts"].as_array().unwrap();
        parts.iter().map(|part| part[field]["id"].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(ids(1, "functionCall"), ["x", "x_2"]);
    assert_eq!(ids(2, "functionResponse"), ["x", "x_2"]);
}

#[test]
fn a_later_system_message_keeps_its_place() {
    let system = |rules: &str| Message { role: Role::System, parts: vec![text(rules)] };
    let sent =
        sent(&asking(vec![system("a"), system("b"), user("hi"), assistant(vec![text("so")]), system("c")]));
    assert_eq!(sent["systemInstruction"], json!({"parts": [{"text": "a"}, {"text": "b"}]}));
    assert_eq!(sent["contents"][2], json!({"role": "user", "parts": [{"text": "<system>\nc\n</system>"}]}));
}
