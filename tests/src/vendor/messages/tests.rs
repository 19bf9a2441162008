use serde_json::{Value, json};

use crate::vendor::testing::{Bench, elements, without};
use crate::vendor::{Format, Piece, check};

fn question() -> Value {
    let schema = json!({ "type": "object", "properties": {} });
    json!({
        "max_tokens": 100, "stream": true, "system": "Be brief.",
        "tools": [{ "name": "ls", "input_schema": schema }],
        "messages": [{ "role": "user", "content": "hi" }],
    })
}

/// A question; thoughts, words and two calls in answer to it; and the calls' results.
fn round(bench: &mut Bench) -> Value {
    let mut body = question();
    let call = || Piece::call("ls", json!({}));
    let pieces = [Piece::thought("it"), Piece::Hidden, Piece::text("I look."), call(), call()];
    let content = bench.answered(&body, pieces)["content"].clone();
    let result =
        |at: usize| json!({ "type": "tool_result", "tool_use_id": content[at]["id"], "content": "a" });
    let results = json!([result(3), result(4)]);
    elements(&mut body["messages"]).push(json!({ "role": "assistant", "content": content }));
    elements(&mut body["messages"]).push(json!({ "role": "user", "content": results }));
    bench.takes(&body);
    body
}

const BOUND: &str = "bound to a different conversation";

#[test]
fn thoughts_are_bound_to_all_that_is_before_them() {
    let mut bench = Bench::of(Format::Messages, "claude-opus-5-5");
    let body = round(&mut bench);
    bench.refuses(&body, |body| body["system"] = json!("Be kind."), BOUND);
    bench.refuses(&body, |body| body["tools"][0]["description"] = json!("lists"), BOUND);
    bench.refuses(&body, |body| body["messages"][0]["content"] = json!("hello"), BOUND);
    bench.refuses(&body, |body| drop(elements(&mut body["messages"][1]["content"]).remove(0)), BOUND);
    bench.refuses(&body, |body| elements(&mut body["messages"][1]["content"]).swap(0, 1), BOUND);
    let marks = |body: &mut Value| {
        let marked =
            json!([{ "type": "text", "text": "Be brief.", "cache_control": { "type": "ephemeral" } }]);
        body["system"] = marked;
    };
    bench.takes_with(&body, marks);
    bench.takes_with(&body, |body| drop(elements(&mut body["messages"][1]["content"]).drain(..2)));
    let mut loose = Bench::of(Format::Messages, "claude-opus-5");
    let body = round(&mut loose);
    loose.takes_with(&body, |body| body["system"] = json!("Be kind."));
}

#[test]
fn thoughts_are_unchanged_and_of_the_same_model() {
    let mut bench = Bench::of(Format::Messages, "claude-opus-4-6");
    let body = round(&mut bench);
    let invalid = "Invalid `signature`";
    bench.refuses(&body, |body| body["messages"][1]["content"][0]["signature"] = json!("x"), invalid);
    bench.refuses(&body, |body| body["messages"][1]["content"][0]["thinking"] = json!("x"), invalid);
    bench.refuses(&body, |body| body["messages"][1]["content"][1]["data"] = json!("x"), invalid);
    bench.model("claude-opus-4-7").refuses(&body, |body| body["service_tier"] = json!("auto"), invalid);
}

#[test]
fn calls_and_results_go_together() {
    let mut bench = Bench::of(Format::Messages, "claude-opus-5-5");
    let body = round(&mut bench);
    let results = |body: &mut Value| body["messages"][2]["content"].take();
    bench.refuses(
        &body,
        |body| body["messages"][2]["content"] = json!([results(body)[0]]),
        "without `tool_result` blocks immediately after",
    );
    let text = json!({ "type": "text", "text": "and" });
    bench.refuses(
        &body,
        |body| elements(&mut body["messages"][2]["content"]).insert(0, text),
        "without `tool_result` blocks immediately after",
    );
    bench.refuses(&body, |body| drop(elements(&mut body["messages"]).remove(1)), "unexpected `tool_use_id`");
}

#[test]
fn models_take_what_they_take() {
    let body = question();
    let of = |model| Bench::of(Format::Messages, model);
    for (model, kind) in [
        ("claude-sonnet-4-5-20250929", "adaptive"),
        ("claude-opus-4-8", "enabled"),
        ("claude-opus-5-5", "disabled"),
        ("claude-sonnet-5-5", "disabled"),
        ("claude-fable-5-2", "between_tools"),
    ] {
        of(model).refuses(&body, |body| body["thinking"] = json!({ "type": kind }), "thinking.type");
    }
    let budget = |tokens: u64| {
        move |body: &mut Value| {
            body["thinking"] = json!({ "type": "enabled", "budget_tokens": tokens });
            body["max_tokens"] = json!(2000);
        }
    };
    of("claude-haiku-4-5").takes_with(&body, budget(1024));
    of("claude-haiku-4-5").refuses(&body, budget(1023), "greater than or equal to 1024");
    of("claude-haiku-4-5").refuses(&body, budget(2000), "must be greater than");
    of("claude-haiku-4-5").refuses(
        &body,
        |body| {
            budget(1024)(body);
            body["tool_choice"] = json!({ "type": "any" });
        },
        "forces tool use",
    );
    for parameter in ["temperature", "top_p", "top_k"] {
        of("claude-opus-5").refuses(&body, |body| body[parameter] = json!(1), "not supported for this model");
        of("claude-opus-4-6").takes_with(&body, |body| body[parameter] = json!(1));
    }
    let both = |body: &mut Value| (body["temperature"], body["top_p"]) = (json!(1), json!(1));
    of("claude-sonnet-4-5").refuses(&body, both, "cannot both");
    let forces = |body: &mut Value| body["tool_choice"] = json!({ "type": "any" });
    of("claude-opus-5-5").refuses(&body, forces, "forces tool use");
    of("claude-opus-5").takes_with(&body, forces);
    let effort =
        |effort: &'static str| move |body: &mut Value| body["output_config"] = json!({ "effort": effort });
    of("claude-opus-4-5").refuses(&body, effort("max"), "output_config.effort");
    of("claude-opus-5-5").takes_with(&body, effort("max"));
    let prefills = |body: &mut Value| {
        elements(&mut body["messages"]).push(json!({ "role": "assistant", "content": "It" }))
    };
    of("claude-opus-4-6").refuses(&body, prefills, "prefill");
    of("claude-opus-4-5").takes_with(&body, prefills);
}

#[test]
fn the_request_has_what_it_must_and_nothing_else() {
    let body = question();
    let bench = Bench::of(Format::Messages, "claude-opus-4-6");
    bench.takes(&body);
    bench.refuses(&body, |body| without(body, "max_tokens"), "max_tokens: Field required");
    bench.refuses(&body, |body| body["max_completion_tokens"] = json!(1), "Extra inputs");
    bench.refuses(&body, |body| body["tools"][0]["strict"] = json!(true), "additionalProperties");
    let format = json!({ "format": { "type": "json_schema", "schema": { "minimum": 1 } } });
    bench.refuses(&body, |body| body["output_config"] = format, "not supported");
    bench.refuses(&body, |body| body["messages"][0]["content"] = json!(""), "non-empty");
    bench.refuses(&body, |body| body["messages"][0]["role"] = json!("tool"), "Input should be");
}

#[test]
fn versions_have_rules_of_their_own() {
    let bench = Bench::of(Format::Messages, "claude-opus-4-6");
    let refuses = |body: &Value, version: &str, why: &str| {
        let mut asked = bench.asked(body);
        asked.headers.insert("anthropic-version".to_owned(), version.to_owned());
        let refusal = check(&asked, &bench.issued).expect_err("it is refused");
        assert!(refusal.message.contains(why), "{}", refusal.message);
    };
    let body = question();
    refuses(&body, "2024-01-01", "not a valid version");
    let (mut warm, mut cited, mut document) = (body.clone(), body.clone(), body.clone());
    warm["temperature"] = json!(1);
    let citation = json!({ "type": "text", "text": "hi", "citations": [{ "type": "char_location" }] });
    cited["messages"][0]["content"] = json!([citation]);
    let messages = elements(&mut document["messages"]);
    messages.push(json!({ "role": "assistant", "content": [{ "type": "document" }] }));
    messages.push(json!({ "role": "user", "content": "and?" }));
    for (body, why) in [(warm, "temperature"), (cited, "citations"), (document, "document")] {
        bench.takes(&body);
        refuses(&body, "2026-10-21", why);
    }
    let mut asked = bench.asked(&body);
    asked.headers.clear();
    check(&asked, &bench.issued).expect_err("a version is required");
}
