use agentloop_core::context::assemble::{AssembledMessage, Assembler};
use agentloop_core::message::{Part, Usage};
use serde_json::json;

use super::*;
use crate::model::ModelErrorKind;
use crate::model::testing::fixtures::origin;
use crate::model::transport::http::ResponseReader;

fn read(events: &[Value]) -> Result<Vec<Delta>, ModelError> {
    let (mut reading, mut deltas) = (ResponseReader::new(ResponsesDecoder::new(origin())), Vec::new());
    for event in events {
        let _heard = reading.push(format!("data: {event}\n\n").as_bytes(), &mut deltas)?;
    }
    if !reading.is_done() {
        reading.end(None, &mut deltas)?;
    }
    Ok(deltas)
}

fn assembled(deltas: Vec<Delta>) -> AssembledMessage {
    let mut assembler = Assembler::new(1);
    for (delta, seq) in deltas.into_iter().zip(1..) {
        assembler.consume(seq, delta).unwrap();
    }
    assembler.finish().unwrap()
}

#[track_caller]
fn finished(events: &[Value]) -> AssembledMessage {
    assembled(read(events).unwrap())
}

fn completed() -> Value {
    json!({"type": "response.completed", "response": {"status": "completed", "usage": {
        "input_tokens": 9, "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 2},
        "output_tokens": 7, "output_tokens_details": {"reasoning_tokens": 5}, "total_tokens": 16,
    }}})
}

fn added(at: u64, item: Value) -> Value {
    json!({"type": "response.output_item.added", "output_index": at, "item": item})
}

fn over_at(at: u64, item: Value) -> Value {
    over(at, item)
}

fn over(at: u64, item: Value) -> Value {
    json!({"type": "response.output_item.done", "output_index": at, "item": item})
}

fn piece(kind: &str, at: u64, delta: &str) -> Value {
    json!({"type": format!("response.{kind}.delta"), "output_index": at, "delta": delta})
}

fn thought(encrypted: Option<&str>) -> Value {
    json!({"id": "rs_1", "type": "reasoning", "encrypted_content": encrypted, "summary": [
        {"type": "summary_text", "text": "First."}, {"type": "summary_text", "text": "Then."},
    ]})
}

fn message(text: &str) -> Value {
    json!({"id": "msg_1", "type": "message", "role": "assistant", "phase": "final_answer", "content": [
        {"type": "output_text", "text": text, "annotations": []},
    ]})
}

fn call(id: &str, arguments: &str) -> Value {
    json!({"id": format!("fc_{id}"), "type": "function_call", "call_id": id, "name": "f", "arguments": arguments})
}

/// The content and the stored state of each part of an answer.
fn parts_of(finished: &AssembledMessage) -> Vec<(String, Option<Value>)> {
    let json =
        |state: &agentloop_core::message::ProviderState| serde_json::from_str::<Value>(&state.data).unwrap();
    let part = |part: &Part| match part {
        Part::Text { text, state } => (format!("says {text}"), state.as_ref().map(json)),
        Part::Reasoning(thought) => (format!("thinks {}", thought.text), thought.state.as_ref().map(json)),
        Part::ToolCall(call) => {
            (format!("{} {}", call.provider_id, call.arguments), call.state.as_ref().map(json))
        }
        Part::Opaque(state) => (String::new(), Some(json(state))),
        other => panic!("{other:?}"),
    };
    finished.message.parts.iter().map(part).collect()
}

fn says(finished: &AssembledMessage) -> Vec<String> {
    parts_of(finished).into_iter().map(|(said, _)| said).collect()
}

#[test]
fn by_the_book() {
    let summary = |part: u64, delta: &str| json!({"type": "response.reasoning_summary_text.delta", "item_id": "rs_1", "output_index": 0, "summary_index": part, "delta": delta});
    let bare = json!({"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "half"});
    let answer = finished(&[
        json!({"type": "response.created", "response": {"status": "in_progress", "usage": null}}),
        json!({"type": "response.in_progress", "response": {}}),
        added(0, bare),
        summary(0, "Fir"),
        summary(0, "st."),
        summary(1, "Then."),
        over(0, thought(Some("whole"))),
        added(1, message("")),
        json!({"type": "response.content_part.added", "output_index": 1, "part": {"type": "output_text", "text": ""}}),
        piece("output_text", 1, "Grü"),
        piece("output_text", 1, "ezi"),
        json!({"type": "response.output_text.done", "output_index": 1, "text": "Grüezi"}),
        over(1, message("Grüezi")),
        added(2, call("a", "")),
        added(3, call("b", "")),
        piece("function_call_arguments", 3, "{\"y\":"),
        piece("function_call_arguments", 2, "{}"),
        piece("function_call_arguments", 3, "2}"),
        over(2, call("a", "{}")),
        over(3, call("b", "{\"y\":2}")),
        completed(),
    ]);
    let after = reasoning_digest(None, &thought(Some("whole")).to_string());
    let text = json!({"digest": text_digest("Grüezi"), "after": after, "phase": "final_answer"});
    assert_eq!(
        parts_of(&answer),
        [
            ("thinks First.\n\nThen.".to_owned(), Some(thought(Some("whole")))),
            ("says Grüezi".to_owned(), Some(text)),
            ("a {}".to_owned(), Some(json!({"digest": call_digest("a", "f", "{}")}))),
            ("b {\"y\":2}".to_owned(), Some(json!({"digest": call_digest("b", "f", "{\"y\":2}")}))),
        ]
    );
    assert_eq!(answer.finish_reason, FinishReason::ToolCalls);
    let usage = Usage {
        input_tokens: 9,
        output_tokens: 7,
        cached_input_tokens: 4,
        cache_write_tokens: 2,
        reasoning_tokens: 5,
        cost_micros: 0,
        unpriced_calls: 0,
    };
    assert_eq!(answer.usage, usage);
}

#[test]
fn items_are_kept_word_for_word() {
    let raw = r#"{"type":"response.output_item.done","output_index":0,"item":{"z":1.50,"type":"web_search_call","a":"\u00fc"}}"#;
    let (mut reading, mut deltas) = (ResponseReader::new(ResponsesDecoder::new(origin())), Vec::new());
    reading.push(format!("data: {raw}\n\n").as_bytes(), &mut deltas).unwrap();
    let [Delta::Opaque(state)] = deltas.as_slice() else { panic!("{deltas:?}") };
    assert_eq!(state.data, r#"{"z":1.50,"type":"web_search_call","a":"\u00fc"}"#);
}

#[test]
fn what_did_not_come_in_pieces_is_taken_from_the_whole() {
    let whole = [over(0, thought(None)), over(1, message("so")), over(2, call("a", "{}")), completed()];
    let expected = ["thinks First.\n\nThen.", "says so", "a {}"];
    assert_eq!(says(&finished(&whole)), expected);
    let half = [
        piece("reasoning_summary_text", 0, "First."),
        over(0, thought(None)),
        piece("output_text", 1, "s"),
        over(1, message("so")),
        added(2, call("a", "")),
        piece("function_call_arguments", 2, "{"),
        over(2, call("a", "{}")),
        completed(),
    ];
    assert_eq!(says(&finished(&half)), expected);
    let output = json!([thought(None), message("so"), call("a", "{}")]);
    let at_the_end = json!({"type": "response.completed", "response": {"output": output}});
    assert_eq!(says(&finished(std::slice::from_ref(&at_the_end))), expected);
    for known in 0..whole.len() {
        let mut events = whole[..known].to_vec();
        events.push(at_the_end.clone());
        assert_eq!(says(&finished(&events)), expected, "{known} came before");
    }
    let other_words = finished(&[piece("output_text", 0, "yes"), over(0, message("no")), completed()]);
    assert_eq!(says(&other_words), ["says yes"], "what was said stays said");
}

#[test]
fn pieces_without_numbers() {
    let strip = |mut event: Value, keys: &[&str]| {
        keys.iter().for_each(|key| {
            event.as_object_mut().unwrap().remove(*key);
        });
        event
    };
    let by_id = |kind: &str, id: &str, delta: &str| json!({"type": format!("response.{kind}.delta"), "item_id": id, "delta": delta});
    let added = |item: Value| strip(added(0, item), &["output_index"]);
    let over = |item: Value| strip(over(0, item), &["output_index"]);
    let events = [
        added(call("a", "")),
        added(call("b", "")),
        by_id("function_call_arguments", "fc_b", "{\"y\":2}"),
        by_id("function_call_arguments", "fc_a", "{}"),
        over(call("a", "{}")),
        over(call("b", "{\"y\":2}")),
        completed(),
    ];
    assert_eq!(says(&finished(&events)), ["a {}", "b {\"y\":2}"]);
    let nameless = json!({"type": "response.output_text.delta", "delta": "so"});
    assert_eq!(says(&finished(&[nameless, over(message("so")), completed()])), ["says so"]);
    let late =
        [piece("function_call_arguments", 0, "{\"x\""), over_at(0, call("a", "{\"x\":1}")), completed()];
    assert_eq!(says(&finished(&late)), ["a {\"x\":1}"], "the name comes with the whole");
}

#[test]
fn the_end_says_why() {
    let reason = |events: &[Value]| finished(events).finish_reason;
    let incomplete = |why: Value| json!({"type": "response.incomplete", "response": {"incomplete_details": {"reason": why}}});
    assert_eq!(reason(&[over(0, message("so")), completed()]), FinishReason::Stop);
    assert_eq!(reason(&[incomplete(json!("max_output_tokens"))]), FinishReason::Length);
    assert_eq!(reason(&[incomplete(Value::Null)]), FinishReason::Length);
    assert_eq!(reason(&[incomplete(json!("content_filter"))]), FinishReason::ContentFilter);
    assert_eq!(reason(&[incomplete(json!("steered"))]), FinishReason::Other("steered".to_owned()));
    let refusal = json!({"type": "message", "content": [{"type": "refusal", "refusal": "No."}]});
    for events in [vec![over(0, refusal), completed()], vec![piece("refusal", 0, "No."), completed()]] {
        let declined = finished(&events);
        assert_eq!(
            (says(&declined), declined.finish_reason),
            (vec!["says No.".to_owned()], FinishReason::Refusal)
        );
    }
    let mut cut = call("a", "{}");
    cut["status"] = json!("incomplete");
    for end in [completed(), incomplete(json!("max_output_tokens"))] {
        let answer = finished(&[over(0, cut.clone()), over(1, call("b", "{}")), end.clone()]);
        assert_eq!(answer.finish_reason, FinishReason::Length);
        assert_eq!(says(&answer), ["a {} (cut off)", "b {}"], "it must not be run");
        let unended = finished(&[added(0, call("a", "")), piece("function_call_arguments", 0, "{"), end]);
        assert_eq!(says(&unended), ["a { (cut off)"]);
    }
}

#[test]
fn errors() {
    let kind = |event: Value| read(&[piece("output_text", 0, "so"), event]).unwrap_err();
    let flat = json!({"type": "error", "code": "server_is_overloaded", "message": "busy", "param": null, "sequence_number": 3});
    assert_eq!((kind(flat.clone()).kind, kind(flat).message.as_str()), (ModelErrorKind::Unavailable, "busy"));
    let nested = |code: &str| json!({"type": "error", "sequence_number": 3, "error": {"type": code, "code": code, "message": "m", "param": null}});
    assert_eq!(kind(nested("rate_limit_exceeded")).kind, ModelErrorKind::RateLimited);
    assert_eq!(kind(nested("context_length_exceeded")).kind, ModelErrorKind::ContextOverflow);
    assert_eq!(kind(nested("insufficient_quota")).kind, ModelErrorKind::Unauthorised);
    let failed = |code: &str| json!({"type": "response.failed", "response": {"status": "failed", "error": {"code": code, "message": "m"}}});
    assert_eq!(kind(failed("server_error")).kind, ModelErrorKind::Unavailable);
    assert_eq!(kind(failed("context_length_exceeded")).kind, ModelErrorKind::ContextOverflow);
    assert_eq!(kind(failed("invalid_prompt")).kind, ModelErrorKind::BadRequest);
    assert_eq!(
        kind(json!({"error": {"code": 502, "message": "upstream"}})).kind,
        ModelErrorKind::Unavailable
    );
    assert_eq!(read(&[piece("output_text", 0, "so")]).unwrap_err().kind, ModelErrorKind::Malformed);
    assert_eq!(
        read(&[over(0, message("so"))]).unwrap_err().kind,
        ModelErrorKind::Malformed,
        "no end is no end"
    );
}

#[test]
fn nonsense_is_bounded() {
    for event in [json!(7), json!([]), json!({}), json!({"type": 7}), json!({"type": "response.unheard_of"})]
    {
        assert_eq!(says(&finished(&[event, over(0, message("so")), completed()])), ["says so"]);
    }
    let calls: Vec<Value> =
        (0..=CALLS_PER_MESSAGE_MAX as u64).map(|at| added(at, call(&at.to_string(), ""))).collect();
    assert_eq!(read(&calls).unwrap_err().kind, ModelErrorKind::TooLarge);
    let items: Vec<Value> = (0..=ITEMS_MAX as u64).map(|at| added(at, json!({"type": "x"}))).collect();
    assert_eq!(read(&items).unwrap_err().kind, ModelErrorKind::TooLarge);
}

#[test]
fn a_document_is_an_answer() {
    let document = |document: Value| {
        let mut deltas = Vec::new();
        ResponsesDecoder::new(origin()).document(&document, &mut deltas).map(|()| assembled(deltas))
    };
    let output = json!([thought(Some("e")), message("so"), call("a", "{}")]);
    let answer = document(json!({"object": "response", "status": "completed", "output": output})).unwrap();
    assert_eq!(says(&answer), ["thinks First.\n\nThen.", "says so", "a {}"]);
    let cut = document(
        json!({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}, "output": []}),
    );
    assert_eq!(cut.unwrap().finish_reason, FinishReason::Length);
    let failed = document(
        json!({"status": "failed", "error": {"code": "server_error", "message": "m"}, "output": []}),
    );
    assert_eq!(failed.unwrap_err().kind, ModelErrorKind::Unavailable);
    assert_eq!(document(json!({"choices": []})).unwrap_err().kind, ModelErrorKind::BadRequest);
}

#[test]
fn reasoning_is_bound_to_what_it_led_to() {
    let item = |id: &str, encrypted: Option<&str>| json!({"id": id, "type": "reasoning", "summary": [], "encrypted_content": encrypted});
    let (one, two) = (item("rs_1", Some("A")), item("rs_2", Some("B")));
    let bare = item("rs_3", None);
    let after = |events: Vec<Value>| {
        let finished = finished(&[events, vec![over(9, message("so")), completed()]].concat());
        parts_of(&finished).pop().and_then(|(_, state)| state)?.get("after").cloned()
    };
    let first = reasoning_digest(None, &one.to_string());
    let both = reasoning_digest(Some(&first), &two.to_string());
    assert_eq!(after(vec![]), None);
    assert_eq!(after(vec![over(0, one.clone())]), Some(json!(first)));
    assert_eq!(after(vec![over(0, one.clone()), over(1, two)]), Some(json!(both)));
    assert_eq!(after(vec![over(0, one.clone()), over(1, bare)]), None, "it cannot go back as it was");
    assert_eq!(after(vec![over(0, one), over(1, call("a", "{}"))]), None, "it led to the call");
}

#[test]
fn arguments_in_other_forms_are_not_lost() {
    let mut object = call("a", "");
    object["arguments"] = json!({"path": "/x"});
    assert_eq!(says(&finished(&[over(0, object.clone()), completed()])), [r#"a {"path":"/x"}"#]);
    let whole =
        json!({"type": "response.completed", "response": {"status": "completed", "output": [object]}});
    assert_eq!(says(&finished(&[whole])), [r#"a {"path":"/x"}"#]);
    object = call("a", "");
    object["arguments"] = json!(["/x"]);
    assert_eq!(says(&finished(&[over(0, object), completed()])), [r#"a ["/x"]"#], "it is rejected");
    let done =
        json!({"type": "response.function_call_arguments.done", "output_index": 0, "arguments": "{\"x\":1}"});
    let pieces = [added(0, call("a", "")), piece("function_call_arguments", 0, "{\"x\""), done, completed()];
    assert_eq!(says(&finished(&pieces)), ["a {\"x\":1}"]);
}

#[test]
fn text_that_comes_only_at_the_end_of_its_part_is_not_lost() {
    let done = |part: u64, text: &str| json!({"type": "response.output_text.done", "output_index": 0, "content_index": part, "text": text});
    let delta = |part: u64, delta: &str| json!({"type": "response.output_text.delta", "output_index": 0, "content_index": part, "delta": delta});
    let begun = || added(0, message(""));
    assert_eq!(says(&finished(&[begun(), done(0, "one"), completed()])), ["says one"]);
    let mixed =
        [begun(), delta(0, "on"), done(0, "one"), done(1, " two"), delta(2, " three"), done(2, " three")];
    let mixed = [mixed.to_vec(), vec![over(0, message("one two three")), completed()]].concat();
    assert_eq!(says(&finished(&mixed)), ["says one two three"]);
    let unnumbered = [begun(), piece("output_text", 0, "on"), done(0, "one"), completed()];
    assert_eq!(says(&finished(&unnumbered)), ["says one"]);
    let refusal =
        json!({"type": "response.refusal.done", "output_index": 0, "content_index": 0, "refusal": "No."});
    let declined = finished(&[begun(), refusal, completed()]);
    assert_eq!(
        (says(&declined), declined.finish_reason),
        (vec!["says No.".to_owned()], FinishReason::Refusal)
    );
}

#[test]
fn failures_that_stay_are_told_from_those_that_pass() {
    let failed = |code: &str| json!({"type": "response.failed", "response": {"status": "failed", "error": {"code": code, "message": "m"}}});
    let flat = |code: &str| json!({"type": "error", "code": code, "message": "m"});
    for code in [
        "invalid_encrypted_content",
        "bio_policy",
        "misalignment_policy_violation",
        "data_residency_mismatch",
        "invalid_image",
        "invalid_image_format",
        "image_too_large",
        "failed_to_download_image",
        "unsupported_parameter",
        "string_above_max_length",
    ] {
        for event in [failed(code), flat(code)] {
            assert_eq!(read(&[event]).unwrap_err().kind, ModelErrorKind::BadRequest, "{code}");
        }
    }
    for code in ["server_error", "vector_store_timeout", "something_new"] {
        assert_eq!(read(&[failed(code)]).unwrap_err().kind, ModelErrorKind::Unavailable, "{code}");
    }
    for event in [failed("content_filter"), flat("content_filter")] {
        assert_eq!(finished(&[event]).finish_reason, FinishReason::ContentFilter);
    }
}
