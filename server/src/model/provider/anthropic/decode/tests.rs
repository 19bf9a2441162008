use agentloop_core::context::assemble::{AssembledMessage, Assembler};
use agentloop_core::message::{Part, ProviderState, Reasoning};

use super::*;
use crate::model::ModelErrorKind;

fn decode(lines: &[&str]) -> Result<Vec<Delta>, ModelError> {
    let (mut decoder, mut deltas) = (MessagesDecoder::default(), Vec::new());
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

#[track_caller]
fn check_error(lines: &[&str], kind: ModelErrorKind, message: &str) {
    let error = decode(lines).unwrap_err();
    assert_eq!((error.kind, error.message.as_str()), (kind, message));
}

const START: &str = r#"{"type":"message_start","message":{"id":"m","usage":{"input_tokens":3,"output_tokens":1,"cache_read_input_tokens":100,"cache_creation_input_tokens":20}}}"#;
const PING: &str = r#"{"type":"ping"}"#;
const END_TURN: &str = r#"{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":15}}"#;
const TOOL_USE: &str =
    r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":15}}"#;
const STOP: &str = r#"{"type":"message_stop"}"#;
const TEXT: &str = r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#;
const HELLO: &str =
    r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello"}}"#;
const TEXT_END: &str = r#"{"type":"content_block_stop","index":0}"#;

#[test]
fn text_and_usage() {
    let finished = finished(&[START, TEXT, PING, HELLO, HELLO, TEXT_END, END_TURN, STOP]);
    assert_eq!(finished.message.plain_text(), "HelloHello");
    assert_eq!(finished.finish_reason, FinishReason::Stop);
    assert_eq!(
        finished.usage,
        Usage {
            input_tokens: 123,
            output_tokens: 15,
            cached_input_tokens: 100,
            cache_write_tokens: 20,
            reasoning_tokens: 0,
            cost_micros: 0,
            unpriced_calls: 0,
        }
    );
}

#[test]
fn thinking_is_kept_with_its_signature() {
    let finished = finished(&[
        START,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm "}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"yes"}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"c2ln"}}"#,
        r#"{"type":"content_block_stop","index":0}"#,
        r#"{"type":"content_block_start","index":1,"content_block":{"type":"redacted_thinking","data":"b3Bh"}}"#,
        r#"{"type":"content_block_stop","index":1}"#,
        r#"{"type":"content_block_start","index":2,"content_block":{"type":"thinking","thinking":""}}"#,
        r#"{"type":"content_block_delta","index":2,"delta":{"type":"signature_delta","signature":"b21pdA"}}"#,
        r#"{"type":"content_block_stop","index":2}"#,
        r#"{"type":"content_block_start","index":3,"content_block":{"type":"text","text":"Yes."}}"#,
        r#"{"type":"content_block_stop","index":3}"#,
        END_TURN,
        STOP,
    ]);
    let reasoning = |text: &str, signature: Option<&str>, redacted: Option<&str>| {
        let state = ThoughtState {
            signature: signature.map(str::to_owned),
            redacted: redacted.map(str::to_owned),
            prefix: None,
        };
        let state = state.to_provider_state(&Origin::default());
        Part::Reasoning(Reasoning { text: text.to_owned(), state, ..Reasoning::default() })
    };
    assert_eq!(
        finished.message.parts,
        [
            reasoning("hm yes", Some("c2ln"), None),
            reasoning("", None, Some("b3Bh")),
            reasoning("", Some("b21pdA"), None),
            Part::text("Yes."),
        ]
    );
}

#[test]
fn tool_calls() {
    let finished = finished(&[
        START,
        TEXT,
        HELLO,
        TEXT_END,
        r#"{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"toolu_1","name":"f","input":{}}}"#,
        r#"{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":""}}"#,
        r#"{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"x\""}}"#,
        r#"{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":":1}"}}"#,
        r#"{"type":"content_block_stop","index":1}"#,
        r#"{"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"toolu_2","name":"g","input":{}}}"#,
        r#"{"type":"content_block_stop","index":2}"#,
        r#"{"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"toolu_3","name":"h","input":{"y":2}}}"#,
        r#"{"type":"content_block_stop","index":3}"#,
        TOOL_USE,
        STOP,
    ]);
    let calls: Vec<_> = finished
        .message
        .tool_calls()
        .map(|call| (call.provider_id.as_str(), call.name.as_str(), call.arguments.as_str()))
        .collect();
    assert_eq!(calls, [("toolu_1", "f", "{\"x\":1}"), ("toolu_2", "g", "{}"), ("toolu_3", "h", "{\"y\":2}")]);
    assert_eq!(finished.finish_reason, FinishReason::ToolCalls);
}

#[test]
fn stop_reasons() {
    for (word, reason) in [
        ("end_turn", FinishReason::Stop),
        ("stop_sequence", FinishReason::Stop),
        ("max_tokens", FinishReason::Length),
        ("model_context_window_exceeded", FinishReason::ContextWindow),
        ("refusal", FinishReason::Refusal),
        ("pause_turn", FinishReason::Other("pause_turn".to_owned())),
    ] {
        let end = format!(r#"{{"type":"message_delta","delta":{{"stop_reason":"{word}"}}}}"#);
        assert_eq!(finished(&[START, TEXT, HELLO, TEXT_END, &end, STOP]).finish_reason, reason);
    }
}

#[test]
fn a_context_that_is_full_from_the_start_is_an_error() {
    let full = r#"{"type":"message_delta","delta":{"stop_reason":"model_context_window_exceeded"}}"#;
    let message = "the context was full before the response began";
    check_error(&[START, full, STOP], ModelErrorKind::ContextOverflow, message);
    check_error(&[START, TEXT, TEXT_END, full, STOP], ModelErrorKind::ContextOverflow, message);
}

#[test]
fn ends_of_all_kinds() {
    let text = |lines: &[&str]| finished(lines).message.plain_text();
    assert_eq!(text(&[START, TEXT, HELLO, TEXT_END, END_TURN]), "Hello");
    assert_eq!(text(&[START, TEXT, HELLO, TEXT_END, STOP]), "Hello");
    assert_eq!(text(&[START, TEXT, HELLO, TEXT_END, END_TURN, "[DONE]"]), "Hello");
    assert_eq!(text(&[START, END_TURN, STOP, "nonsense"]), "");
    let cut = "the stream ends before the response does";
    for lines in [&[][..], &[START], &[START, TEXT, HELLO], &[START, TEXT, HELLO, TEXT_END], &["[DONE]"]] {
        check_error(lines, ModelErrorKind::Malformed, cut);
    }
    let open_call = r#"{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"t","name":"f","input":{}}}"#;
    check_error(
        &[START, open_call, TOOL_USE],
        ModelErrorKind::Malformed,
        "the stream ends inside a tool call",
    );
}

#[test]
fn counts_of_gateways() {
    let finished = finished(&[
        r#"{"type":"message_start","message":{"usage":{"input_tokens":0,"output_tokens":0}}}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"input_tokens":9,"output_tokens":4}}"#,
        r#"{"type":"message_delta","delta":{},"usage":{"output_tokens":5}}"#,
        STOP,
    ]);
    assert_eq!((finished.usage.input_tokens, finished.usage.output_tokens), (9, 5));
}

/// Text and stored state of each part.
fn kept(finished: &AssembledMessage) -> Vec<(String, Option<Value>)> {
    let json = |state: &ProviderState| serde_json::from_str::<Value>(&state.data).unwrap();
    let kept = |part: &Part| match part {
        Part::Text { text, state } => (text.clone(), state.as_ref().map(json)),
        Part::Opaque(state) => (String::new(), Some(json(state))),
        other => panic!("{other:?}"),
    };
    finished.message.parts.iter().map(kept).collect()
}

#[test]
fn citations_and_tools_of_the_provider_are_kept() {
    let finished = finished(&[
        START,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"server_tool_use","id":"s","name":"web_search","input":{}}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"query\":"}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"\"x\"}"}}"#,
        r#"{"type":"content_block_stop","index":0}"#,
        r#"{"type":"content_block_start","index":1,"content_block":{"type":"web_search_tool_result","tool_use_id":"s","content":[{"encrypted_content":"e","n":1.50}]}}"#,
        r#"{"type":"content_block_stop","index":1}"#,
        r#"{"type":"content_block_start","index":2,"content_block":{"type":"text","text":""}}"#,
        r#"{"type":"content_block_delta","index":2,"delta":{"type":"text_delta","text":"It says "}}"#,
        r#"{"type":"content_block_stop","index":2}"#,
        r#"{"type":"content_block_start","index":3,"content_block":{"type":"text","text":"","citations":[]}}"#,
        r#"{"type":"content_block_delta","index":3,"delta":{"type":"text_delta","text":"so"}}"#,
        r#"{"type":"content_block_delta","index":3,"delta":{"type":"citations_delta","citation":{"i":1}}}"#,
        r#"{"type":"content_block_delta","index":3,"delta":{"type":"citations_delta","citation":{"i":2}}}"#,
        r#"{"type":"content_block_stop","index":3}"#,
        r#"{"type":"content_block_start","index":4,"content_block":{"type":"text","text":"."}}"#,
        r#"{"type":"content_block_stop","index":4}"#,
        END_TURN,
        STOP,
    ]);
    let search = json!({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "x"}});
    let content = json!([{"encrypted_content": "e", "n": 1.5}]);
    let found = json!({"type": "web_search_tool_result", "tool_use_id": "s", "content": content});
    let plain = |text: &str| (text.to_owned(), None);
    assert_eq!(
        kept(&finished),
        [
            (String::new(), Some(search)),
            (String::new(), Some(found)),
            plain("It says "),
            ("so".to_owned(), Some(json!({"citations": [{"i": 1}, {"i": 2}]}))),
            plain("."),
        ]
    );
}

#[test]
fn what_a_block_of_the_providers_holds_is_bounded() {
    let open = r#"{"type":"content_block_start","index":0,"content_block":{"type":"server_tool_use"}}"#;
    let long = "x".repeat(PROVIDER_STATE_BYTES_MAX / 2 + 1);
    let grow = json!({"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": long}});
    let grow = grow.to_string();
    let error = decode(&[START, open, &grow, &grow]).unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::TooLarge);

    let open = r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking"}}"#;
    let grow = json!({"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": long}});
    let grow = grow.to_string();
    let error = decode(&[START, open, &grow, &grow]).unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::TooLarge);
}

#[test]
fn an_answer_in_one_document() {
    let document = json!({
        "type": "message", "role": "assistant", "stop_reason": "tool_use",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "text", "text": "Let me see."},
            {"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1}},
        ],
        "usage": {"input_tokens": 3, "output_tokens": 4, "output_tokens_details": {"thinking_tokens": 2}},
    });
    let (mut decoder, mut deltas) = (MessagesDecoder::default(), Vec::new());
    decoder.document(&document, &mut deltas).unwrap();
    let mut assembler = Assembler::new(1);
    for (seq, delta) in deltas.into_iter().enumerate() {
        assembler.consume(seq as u64, delta).unwrap();
    }
    let finished = assembler.finish().unwrap();
    assert_eq!(finished.message.plain_text(), "Let me see.");
    assert_eq!(finished.message.tool_calls().next().unwrap().arguments, r#"{"x":1}"#);
    assert_eq!(finished.finish_reason, FinishReason::ToolCalls);
    let usage = finished.usage;
    assert_eq!((usage.input_tokens, usage.output_tokens, usage.reasoning_tokens), (3, 4, 2));
    for document in [json!({}), json!([]), json!({"content": "text"})] {
        let error = MessagesDecoder::default().document(&document, &mut Vec::new()).unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::BadRequest, "{document}");
    }
}

#[test]
fn what_is_not_known_is_skipped() {
    let finished = finished(&[
        START,
        r#"{"type":"something_new","x":1}"#,
        r#"{"type":"content_block_start","index":1,"content_block":{"type":"text","text":"a"}}"#,
        r#"{"type":"content_block_delta","index":1,"delta":{"type":"something_delta","thing":{}}}"#,
        r#"{"type":"content_block_stop","index":1}"#,
        r#"{"type":"content_block_stop","index":77}"#,
        "",
        "{}",
        "null",
        END_TURN,
        STOP,
    ]);
    assert_eq!(finished.message.parts, [Part::text("a")]);
}

#[test]
fn errors_inside_the_stream() {
    let cases = [
        ("overloaded_error", "Overloaded", ModelErrorKind::Unavailable),
        ("api_error", "Internal server error", ModelErrorKind::Unavailable),
        ("rate_limit_error", "slow", ModelErrorKind::RateLimited),
        (
            "invalid_request_error",
            "prompt is too long: 2 tokens > 1 maximum",
            ModelErrorKind::ContextOverflow,
        ),
    ];
    for (code, message, kind) in cases {
        let data = format!(r#"{{"type":"error","error":{{"type":"{code}","message":"{message}"}}}}"#);
        check_error(&[START, TEXT, HELLO, &data], kind, message);
    }
}

#[test]
fn what_contradicts_the_protocol_is_malformed() {
    let stray =
        r#"{"type":"content_block_delta","index":5,"delta":{"type":"input_json_delta","partial_json":"{}"}}"#;
    assert_eq!(decode(&[START, stray]).unwrap_err().kind, ModelErrorKind::Malformed);
    assert_eq!(decode(&["{"]).unwrap_err().kind, ModelErrorKind::Malformed);
}

#[test]
fn blocks_and_calls_are_bounded() {
    let open = |kind: &str| {
        format!(
            r#"{{"type":"content_block_start","index":0,"content_block":{{"type":"{kind}","name":"f"}}}}"#
        )
    };
    for (kind, max) in [("text", PARTS_PER_MESSAGE_MAX), ("tool_use", CALLS_PER_MESSAGE_MAX)] {
        let open = open(kind);
        let lines = vec![open.as_str(); max + 1];
        assert_eq!(decode(&lines).unwrap_err().kind, ModelErrorKind::TooLarge, "{kind}");
    }
}

#[test]
fn a_call_that_is_cut_off_before_its_input_is_not_one_without_input() {
    const CALL: &str = r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t","name":"wipe","input":{}}}"#;
    const LENGTH: &str =
        r#"{"type":"message_delta","delta":{"stop_reason":"max_tokens"},"usage":{"output_tokens":15}}"#;
    let arguments = |end: &str| {
        let finished = finished(&[START, CALL, TEXT_END, end, STOP]);
        finished.message.tool_calls().map(|call| call.arguments.clone()).collect::<Vec<_>>()
    };
    assert_eq!(arguments(TOOL_USE), ["{}"]);
    assert_eq!(arguments(LENGTH), ["(cut off)"]);
}

#[test]
fn input_in_other_forms_is_not_lost() {
    let arguments = |input: Value, piece: Option<Value>| {
        let block = json!({"type": "tool_use", "id": "t", "name": "f", "input": input});
        let open = json!({"type": "content_block_start", "index": 0, "content_block": block}).to_string();
        let grow = piece.map(|piece| {
            let delta = json!({"type": "input_json_delta", "partial_json": piece});
            json!({"type": "content_block_delta", "index": 0, "delta": delta}).to_string()
        });
        let mut lines = vec![START, &open];
        lines.extend(grow.as_deref());
        lines.extend([TEXT_END, TOOL_USE, STOP]);
        let finished = finished(&lines);
        finished.message.tool_calls().map(|call| call.arguments.clone()).collect::<Vec<_>>()
    };
    assert_eq!(arguments(json!("{\"path\":\"/x\"}"), None), ["{\"path\":\"/x\"}"]);
    assert_eq!(arguments(json!("/x"), None), ["/x"], "it is rejected");
    assert_eq!(arguments(json!(["/x"]), None), ["[\"/x\"]"], "it is rejected");
    assert_eq!(arguments(json!({}), Some(json!({"path": "/x"}))), ["{\"path\":\"/x\"}"]);
    for empty in [json!({}), json!([]), json!(""), json!("{}"), Value::Null] {
        assert_eq!(arguments(empty.clone(), None), ["{}"], "{empty}");
        assert_eq!(arguments(empty, Some(json!("{\"x\":1}"))), ["{\"x\":1}"]);
    }
}

#[test]
fn counts_in_other_forms_are_read() {
    let usage = r#"{"type":"message_start","message":{"usage":{"input_tokens":"12","output_tokens":3.0,"cache_read_input_tokens":1.5}}}"#;
    let finished = finished(&[usage, TEXT, HELLO, TEXT_END, STOP]);
    assert_eq!(finished.usage, Usage { input_tokens: 12, output_tokens: 3, ..Usage::default() });
}
