use agentloop_core::context::assemble::{AssembledMessage, Assembler};
use agentloop_core::message::{Part, Reasoning, Usage};
use serde_json::json;

use super::*;
use crate::model::ModelErrorKind;

/// Decodes these data lines up to the end of the stream.
fn decode(lines: &[&str]) -> Result<Vec<Delta>, ModelError> {
    let (mut decoder, mut deltas) = (ChatDecoder::default(), Vec::new());
    for data in lines {
        let event = SseEvent { name: "".into(), data: (*data).into() };
        decoder.event(&event, &mut deltas)?;
        if decoder.is_done() {
            return Ok(deltas);
        }
    }
    decoder.end(&mut deltas)?;
    Ok(deltas)
}

fn finished(lines: &[&str]) -> AssembledMessage {
    let mut assembler = Assembler::new(1);
    for (seq, delta) in decode(lines).unwrap().into_iter().enumerate() {
        assembler.consume(seq as u64, delta).unwrap();
    }
    assembler.finish().unwrap()
}

fn chunk(delta: &str, finish_reason: &str) -> String {
    format!(
        r#"{{"id":"x","object":"chat.completion.chunk","choices":[{{"index":0,"delta":{delta},"finish_reason":{finish_reason}}}]}}"#
    )
}

#[track_caller]
fn check_text(lines: &[&str], text: &str, reason: FinishReason) {
    let finished = finished(lines);
    assert_eq!((finished.message.plain_text().as_str(), finished.finish_reason), (text, reason));
}

#[track_caller]
fn check_error(lines: &[&str], kind: ModelErrorKind, message: &str) {
    let error = decode(lines).unwrap_err();
    assert_eq!((error.kind, error.message.as_str()), (kind, message));
}

/// An event with one text is handled without being read in full. Here each kind of text comes in events that are alike,
/// and in events whose spaces keep them from being so.
#[test]
fn events_that_are_alike_say_what_they_would_alone() {
    let call = |rest: &str| format!(r#"{{"tool_calls":[{{"index":0,{rest}}}]}}"#);
    let deltas = [
        r#"{"reasoning_content":"Let "}"#.to_owned(),
        r#"{"reasoning_content":"me "}"#.to_owned(),
        r#"{"reasoning_content":"see\n"}"#.to_owned(),
        r#"{"content":"It "}"#.to_owned(),
        r#"{"content":"is "}"#.to_owned(),
        r#"{"reasoning_content":"No"}"#.to_owned(),
        r#"{"content":"8 \u00b0C"}"#.to_owned(),
        r#"{"reasoning":"And "}"#.to_owned(),
        r#"{"reasoning":"now"}"#.to_owned(),
        call(r#""id":"c1","function":{"name":"mail","arguments":""}"#),
        call(r#""function":{"arguments":"{\"to\":"}"#),
        call(r#""function":{"arguments":"\"bob\"}"}"#),
        call(r#""function":{"arguments":" "}"#),
    ];
    let alike: Vec<String> = deltas.iter().map(|delta| chunk(delta, "null")).collect();
    let unlike = alike.iter().enumerate().map(|(at, chunk)| format!("{{{}{}", " ".repeat(at), &chunk[1..]));
    let unlike: Vec<String> = unlike.collect();
    let whole = |lines: &[String]| {
        let end = chunk("{}", r#""tool_calls""#);
        decode(&lines.iter().chain([&end]).map(String::as_str).collect::<Vec<_>>()).unwrap()
    };
    assert_eq!(whole(&alike), whole(&unlike));
    assert!(whole(&alike).contains(&Delta::Text { text: "8 °C".to_owned() }));
}

#[test]
fn openai() {
    let lines = [
        &chunk(r#"{"role":"assistant","content":"","refusal":null}"#, "null"),
        &chunk(r#"{"content":"Hel"}"#, "null"),
        &chunk(r#"{"content":"lo"}"#, "null"),
        &chunk("{}", r#""stop""#),
        r#"{"id":"x","choices":[],"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15,
            "prompt_tokens_details":{"cached_tokens":4},"completion_tokens_details":{"reasoning_tokens":2}}}"#,
        "[DONE]",
    ];
    let finished = finished(&lines);
    assert_eq!(finished.message.plain_text(), "Hello");
    assert_eq!(finished.finish_reason, FinishReason::Stop);
    assert_eq!(
        finished.usage,
        Usage {
            input_tokens: 10,
            output_tokens: 5,
            cached_input_tokens: 4,
            cache_write_tokens: 0,
            reasoning_tokens: 2,
            cost_micros: 0,
            unpriced_calls: 0,
        }
    );
}

#[test]
fn finish_is_the_last_delta() {
    let deltas = decode(&[
        &chunk(r#"{"content":"a"}"#, r#""stop""#),
        r#"{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}"#,
        "[DONE]",
    ]);
    assert_eq!(deltas.unwrap().last(), Some(&Delta::Finish { reason: FinishReason::Stop }));
}

#[test]
fn tool_calls() {
    let finished = finished(&[
        &chunk(
            r#"{"content":null,"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":""}}]}"#,
            "null",
        ),
        &chunk(r#"{"tool_calls":[{"index":0,"function":{"arguments":"{\"x\""}}]}"#, "null"),
        &chunk(
            r#"{"tool_calls":[{"index":0,"function":{"arguments":":1}"}},{"index":1,"id":"b","function":{"name":"g","arguments":"{}"}}]}"#,
            "null",
        ),
        &chunk("{}", r#""tool_calls""#),
        "[DONE]",
    ]);
    let calls: Vec<_> = finished
        .message
        .tool_calls()
        .map(|c| (c.provider_id.as_str(), c.name.as_str(), c.arguments.as_str()))
        .collect();
    assert_eq!(calls, [("a", "f", "{\"x\":1}"), ("b", "g", "{}")]);
    assert_eq!(finished.finish_reason, FinishReason::ToolCalls);
}

#[test]
fn the_old_function_call() {
    let finished = finished(&[
        &chunk(r#"{"function_call":{"name":"f","arguments":"{\"x\""}}"#, "null"),
        &chunk(r#"{"function_call":{"arguments":":1}"}}"#, "null"),
        &chunk("{}", r#""function_call""#),
    ]);
    let call = finished.message.tool_calls().next().unwrap();
    assert_eq!((call.name.as_str(), call.arguments.as_str()), ("f", "{\"x\":1}"));
    assert_eq!(finished.finish_reason, FinishReason::ToolCalls);
}

#[test]
fn stop_with_tool_calls_means_the_calls() {
    let lines =
        [&chunk(r#"{"tool_calls":[{"id":"a","function":{"name":"f","arguments":{"x":1}}}]}"#, r#""stop""#)];
    let deltas = decode(&lines.map(String::as_str)).unwrap();
    assert_eq!(deltas.last(), Some(&Delta::Finish { reason: FinishReason::ToolCalls }));
}

#[test]
fn what_openrouter_wants_back_is_put_together() {
    let detail = |text: &str| json!({"type": "reasoning.text", "text": text, "index": 0});
    let finished = finished(&[
        &chunk(&json!({"reasoning": "hm", "reasoning_details": [detail("hm")]}).to_string(), "null"),
        &chunk(&json!({"reasoning": " yes", "reasoning_details": [detail(" yes")]}).to_string(), "null"),
        &chunk(
            r#"{"content":"Yes.","reasoning_details":[{"type":"reasoning.text","signature":"s","index":0}]}"#,
            "null",
        ),
        &chunk(r#"{"content":null}"#, r#""stop""#),
    ]);
    let Part::Reasoning(reasoning) = &finished.message.parts[0] else { panic!("{finished:?}") };
    let state: Value = serde_json::from_str(&reasoning.state.as_ref().unwrap().data).unwrap();
    let detail = json!({"type": "reasoning.text", "text": "hm yes", "index": 0, "signature": "s"});
    assert_eq!(state, json!({"field": "reasoning", "details": [detail]}));
    assert_eq!(finished.message.plain_text(), "Yes.");
}

#[test]
fn what_google_wants_back_stays_with_its_call() {
    let call = |id: &str, extra: Value| json!({"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}, "extra_content": extra});
    let signed = json!({"google": {"thought_signature": "SIG"}});
    let finished = finished(&[
        &chunk(&json!({"tool_calls": [call("a", signed.clone())]}).to_string(), "null"),
        &chunk(&json!({"tool_calls": [call("b", Value::Null)]}).to_string(), r#""stop""#),
    ]);
    let calls: Vec<_> = finished.message.tool_calls().collect();
    let state: Value = serde_json::from_str(&calls[0].state.as_ref().unwrap().data).unwrap();
    assert_eq!(state, json!({"extra_content": signed}));
    assert_eq!((calls.len(), &calls[1].state), (2, &None));
}

#[test]
fn an_answer_in_one_document() {
    let call = json!({"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let message =
        json!({"role": "assistant", "content": "Yes.", "reasoning_content": "hm", "tool_calls": [call]});
    let document = json!({
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 4},
    });
    let (mut decoder, mut deltas) = (ChatDecoder::default(), Vec::new());
    decoder.document(&document, &mut deltas).unwrap();
    let mut assembler = Assembler::new(1);
    for (seq, delta) in deltas.into_iter().enumerate() {
        assembler.consume(seq as u64, delta).unwrap();
    }
    let finished = assembler.finish().unwrap();
    assert_eq!(finished.message.plain_text(), "Yes.");
    assert_eq!(finished.message.tool_calls().count(), 1);
    assert_eq!((finished.usage.input_tokens, finished.usage.output_tokens), (3, 4));
    for document in [json!({}), json!([]), json!({"choices": [{"delta": {}}]})] {
        let error = ChatDecoder::default().document(&document, &mut Vec::new()).unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::BadRequest, "{document}");
    }
}

#[test]
fn reasoning_under_either_name() {
    for field in ["reasoning_content", "reasoning"] {
        let finished = finished(&[
            &chunk(&json!({field: "hm", "content": null}).to_string(), "null"),
            &chunk(&json!({field: " yes", "content": ""}).to_string(), "null"),
            &chunk(r#"{"content":"Yes."}"#, r#""stop""#),
        ]);
        let state = Some(Origin::default().state(format!(r#"{{"field":"{field}"}}"#)));
        let reasoning = Reasoning { text: "hm yes".to_owned(), state, ..Reasoning::default() };
        let text = Part::text("Yes.");
        assert_eq!(finished.message.parts, [Part::Reasoning(reasoning), text]);
    }
    let both = chunk(r#"{"reasoning_content":"hm","reasoning":"hm"}"#, r#""stop""#);
    assert_eq!(decode(&[&both]).unwrap()[0], Delta::Reasoning { text: "hm".to_owned() });
}

#[test]
fn refusals() {
    check_text(
        &[&chunk(r#"{"refusal":"I can't"}"#, "null"), &chunk(r#"{"refusal":" do that."}"#, r#""stop""#)],
        "I can't do that.",
        FinishReason::Refusal,
    );
}

#[test]
fn a_context_that_is_full_from_the_start_is_an_error() {
    check_error(
        &[&chunk(r#"{"role":"assistant","content":""}"#, r#""model_context_window_exceeded""#), "[DONE]"],
        ModelErrorKind::ContextOverflow,
        "the context was full before the response began",
    );
}

#[test]
fn finish_reasons() {
    for (word, reason) in [
        ("stop", FinishReason::Stop),
        ("length", FinishReason::Length),
        ("model_length", FinishReason::ContextWindow),
        ("model_context_window_exceeded", FinishReason::ContextWindow),
        ("content_filter", FinishReason::ContentFilter),
        ("eos", FinishReason::Stop),
        ("recitation", FinishReason::Other("recitation".to_owned())),
    ] {
        check_text(&[&chunk(r#"{"content":"x"}"#, &format!("{word:?}"))], "x", reason);
    }
}

#[test]
fn ends_of_all_kinds() {
    let text = chunk(r#"{"content":"x"}"#, "null");
    let stop = chunk("{}", r#""stop""#);
    check_text(&[&text, &stop], "x", FinishReason::Stop);
    check_text(&[&text, "[DONE]"], "x", FinishReason::Stop);
    check_text(&[&text, &stop, &text, " [DONE] "], "xx", FinishReason::Stop);
    check_text(&[&text, &stop, "[DONE]", "nonsense"], "x", FinishReason::Stop);
    check_text(&[&stop], "", FinishReason::Stop);
    let cut = "the stream ends before the response does";
    check_error(&[&text], ModelErrorKind::Malformed, cut);
    check_error(&["[DONE]"], ModelErrorKind::Malformed, cut);
    check_error(&[], ModelErrorKind::Malformed, cut);
    check_error(&[&chunk(r#"{"content":"x"}"#, r#""""#)], ModelErrorKind::Malformed, cut);
}

#[test]
fn odd_chunks_are_tolerated() {
    check_text(
        &[
            "",
            r#"{"choices":[]}"#,
            r#"{"choices":null,"usage":null}"#,
            r#"{"prompt_filter_results":[]}"#,
            "{}",
            "null",
            "7",
            r#"{"choices":[{"delta":null}],"error":null}"#,
            r#"{"choices":[{"index":1,"delta":{"content":"other choice"},"finish_reason":"length"}]}"#,
            r#"{"choices":[{"delta":{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}}]}"#,
            r#"{"choices":[{"delta":{"content":7,"tool_calls":null}}]}"#,
            r#"{"choices":[{"index":0,"finish_reason":"stop"}],"usage":{"prompt_tokens":-1,"completion_tokens":"x"}}"#,
        ],
        "ab",
        FinishReason::Stop,
    );
}

#[test]
fn errors_inside_the_stream() {
    let text = chunk(r#"{"content":"x"}"#, "null");
    let cases = [
        (r#"{"error":{"message":"busy","type":"server_error"}}"#, ModelErrorKind::Unavailable, "busy"),
        (r#"{"error":{"message":"slow","code":429}}"#, ModelErrorKind::RateLimited, "slow"),
        (r#"{"error":"out of memory"}"#, ModelErrorKind::Unavailable, "out of memory"),
        (
            r#"{"error":{"message":"long","code":"context_length_exceeded"}}"#,
            ModelErrorKind::ContextOverflow,
            "long",
        ),
        (
            r#"{"id":"x","choices":[{"index":0,"delta":{},"finish_reason":"error"}],"error":{"code":502,"message":"up"}}"#,
            ModelErrorKind::Unavailable,
            "up",
        ),
    ];
    for (data, kind, message) in cases {
        check_error(&[&text, data], kind, message);
    }
    let event = SseEvent { name: "error".into(), data: r#"{"message":"bad"}"#.into() };
    let error = ChatDecoder::default().event(&event, &mut Vec::new()).unwrap_err();
    assert_eq!((error.kind, error.message.as_str()), (ModelErrorKind::Unavailable, "bad"));
}

#[test]
fn what_is_no_json_is_malformed() {
    assert_eq!(decode(&["{\"choices\":"]).unwrap_err().kind, ModelErrorKind::Malformed);
    assert_eq!(decode(&[&"[".repeat(100_000)]).unwrap_err().kind, ModelErrorKind::Malformed);
}
