use agentloop_core::context::assemble::{AssembledMessage, Assembler};
use agentloop_core::message::{Part, ProviderState};
use serde_json::json;

use super::*;
use crate::model::ModelErrorKind;
use crate::model::testing::fixtures::origin;
use crate::model::transport::http::ResponseReader;

fn read(events: &[Value]) -> Result<Vec<Delta>, ModelError> {
    let (mut reading, mut deltas) = (ResponseReader::new(GeminiDecoder::new(origin())), Vec::new());
    for event in events {
        let _heard = reading.push(format!("data: {event}\r\n\r\n").as_bytes(), &mut deltas)?;
    }
    reading.end(None, &mut deltas)?;
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

fn parts(parts: Value) -> Value {
    json!({"candidates": [{"content": {"role": "model", "parts": parts}, "index": 0}]})
}

fn ends(reason: &str) -> Value {
    json!({"candidates": [{"finishReason": reason}], "usageMetadata": {
        "promptTokenCount": 9, "cachedContentTokenCount": 4, "candidatesTokenCount": 3, "thoughtsTokenCount": 5,
        "toolUsePromptTokenCount": 2, "totalTokenCount": 19,
    }})
}

/// The content and the stored state of each part of an answer.
fn parts_of(finished: &AssembledMessage) -> Vec<(String, Option<Value>)> {
    let json = |state: &ProviderState| serde_json::from_str::<Value>(&state.data).unwrap();
    let part = |part: &Part| match part {
        Part::Text { text, state } => (format!("says {text}"), state.as_ref().map(json)),
        Part::Reasoning(thought) => (format!("thinks {}", thought.text), thought.state.as_ref().map(json)),
        Part::ToolCall(call) => (format!("{} {}", call.name, call.arguments), call.state.as_ref().map(json)),
        Part::Opaque(state) => (String::new(), Some(json(state))),
        other => panic!("{other:?}"),
    };
    finished.message.parts.iter().map(part).collect()
}

fn says(text: &str) -> (String, Option<Value>) {
    (text.to_owned(), None)
}

fn signed(text: &str, signature: &str) -> (String, Option<Value>) {
    (text.to_owned(), Some(json!({"thoughtSignature": signature})))
}

#[test]
fn by_the_book() {
    let answer = finished(&[
        parts(json!([{"text": "First.", "thought": true}])),
        parts(json!([{"text": " Then.", "thought": true}])),
        parts(json!([{"text": "Grü"}])),
        parts(json!([{"text": "ezi"}])),
        parts(json!([
            {"functionCall": {"id": "x1", "name": "f", "args": {"b": 1.5, "a": "ü"}}, "thoughtSignature": "S1"},
            {"functionCall": {"name": "g"}},
        ])),
        ends("STOP"),
    ]);
    assert_eq!(
        parts_of(&answer),
        [
            says("thinks First. Then."),
            says("says Grüezi"),
            ("f {\"a\":\"ü\",\"b\":1.5}".to_owned(), Some(json!({"thoughtSignature": "S1", "id": "x1"}))),
            says("g {}"),
        ]
    );
    assert_eq!(answer.finish_reason, FinishReason::ToolCalls);
    let usage = Usage {
        input_tokens: 11,
        output_tokens: 8,
        cached_input_tokens: 4,
        reasoning_tokens: 5,
        ..Usage::default()
    };
    assert_eq!(answer.usage, usage);
}

#[test]
fn signatures_belong_to_the_part_that_they_came_with() {
    let answer = finished(&[
        parts(json!([{"text": "hm", "thought": true, "thoughtSignature": "S0"}])),
        parts(json!([{"text": "a"}])),
        parts(json!([{"text": "b", "thoughtSignature": "S1"}])),
        parts(json!([{"text": "c"}])),
        parts(json!([{"text": "", "thoughtSignature": "S2"}])),
        ends("STOP"),
    ]);
    assert_eq!(
        parts_of(&answer),
        [
            signed("thinks hm", "S0"),
            says("says a"),
            signed("says b", "S1"),
            says("says c"),
            (String::new(), Some(json!({"text": "", "thoughtSignature": "S2"}))),
        ]
    );
    let tools = finished(&[
        parts(
            json!([{"executableCode": {"code": "1"}}, {"codeExecutionResult": {"output": "1"}}, {}, {"text": ""}]),
        ),
        ends("STOP"),
    ]);
    assert_eq!(tools.message.parts.len(), 2, "what only the provider reads is kept whole");
}

#[test]
fn the_end_says_why() {
    let reason = |events: &[Value]| read(events).map(|deltas| assembled(deltas).finish_reason);
    let said = || parts(json!([{"text": "so"}]));
    for (word, expected) in [
        ("STOP", FinishReason::Stop),
        ("MAX_TOKENS", FinishReason::Length),
        ("SAFETY", FinishReason::ContentFilter),
        ("RECITATION", FinishReason::ContentFilter),
        ("PROHIBITED_CONTENT", FinishReason::ContentFilter),
        ("IMAGE_SAFETY", FinishReason::ContentFilter),
        ("SOMETHING_NEW", FinishReason::Other("SOMETHING_NEW".to_owned())),
    ] {
        assert_eq!(reason(&[said(), ends(word)]), Ok(expected), "{word}");
    }
    let call = || parts(json!([{"functionCall": {"name": "f", "args": {}}}]));
    assert_eq!(
        reason(&[call(), ends("FUNCTION_CALL")]),
        Ok(FinishReason::ToolCalls),
        "of servers that say so"
    );
    assert_eq!(reason(&[call(), ends("MAX_TOKENS")]), Ok(FinishReason::Length));
    for word in ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "OTHER", "LANGUAGE"] {
        let error = reason(&[said(), ends(word)]).unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::Malformed, "{word}");
        assert!(error.message.contains(word));
    }
    assert_eq!(reason(&[ends("MISSING_THOUGHT_SIGNATURE")]).unwrap_err().kind, ModelErrorKind::BadRequest);
    let blocked =
        json!({"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 3}});
    assert_eq!(reason(&[blocked]), Ok(FinishReason::ContentFilter));
    assert_eq!(reason(&[said()]).unwrap_err().kind, ModelErrorKind::Malformed, "no end is no end");
}

#[test]
fn what_follows_the_end_counts() {
    let late = json!({"usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 2}});
    let answer = finished(&[parts(json!([{"text": "so"}])), ends("STOP"), late]);
    assert_eq!((answer.usage.input_tokens, answer.usage.output_tokens), (1, 2));
}

#[test]
fn errors_in_the_stream() {
    let error = |event: Value| read(&[parts(json!([{"text": "so"}])), event]).unwrap_err().kind;
    let busy = json!({"error": {"code": 503, "message": "overloaded", "status": "UNAVAILABLE"}});
    assert_eq!(error(busy.clone()), ModelErrorKind::Unavailable);
    assert_eq!(error(json!([busy])), ModelErrorKind::Unavailable);
    assert_eq!(error(json!({"error": {"code": 429, "message": "m"}})), ModelErrorKind::RateLimited);
}

#[test]
fn nonsense_is_bounded() {
    for event in
        [json!(7), json!([]), json!({}), json!({"candidates": 7}), parts(json!([7, null, {"text": 7}]))]
    {
        let answer = finished(&[event, parts(json!([{"text": "so"}])), ends("STOP")]);
        assert_eq!(answer.message.plain_text(), "so");
    }
    let other = json!({"candidates": [{"index": 1, "content": {"parts": [{"text": "other"}]}}]});
    assert_eq!(finished(&[other, parts(json!([{"text": "so"}])), ends("STOP")]).message.plain_text(), "so");
    let calls = vec![json!({"functionCall": {"name": "f"}}); CALLS_PER_MESSAGE_MAX + 1];
    assert_eq!(read(&[parts(json!(calls))]).unwrap_err().kind, ModelErrorKind::TooLarge);
}

#[test]
fn a_document_is_an_answer() {
    let document = |document: Value| {
        let mut deltas = Vec::new();
        GeminiDecoder::new(origin()).document(&document, &mut deltas).map(|()| assembled(deltas))
    };
    let said = || json!({"candidates": [{"content": {"parts": [{"text": "so"}]}, "finishReason": "STOP"}]});
    assert_eq!(document(said()).unwrap().message.plain_text(), "so");
    assert_eq!(
        document(json!([parts(json!([{"text": "and "}])), said()])).unwrap().message.plain_text(),
        "and so"
    );
    let failed = document(json!([{"error": {"code": 429, "message": "m"}}]));
    assert_eq!(failed.unwrap_err().kind, ModelErrorKind::RateLimited);
    assert_eq!(document(json!({"choices": []})).unwrap_err().kind, ModelErrorKind::BadRequest);
}

#[test]
fn a_call_whose_arguments_stream_is_not_run_without_them() {
    let call = |call: Value| parts(json!([{"functionCall": call}]));
    let piece = |more: bool| json!({"partialArgs": [{"jsonPath": "$.path", "stringValue": "/x"}], "willContinue": more});
    let answer = finished(&[
        call(json!({"name": "f", "willContinue": true})),
        call(piece(true)),
        call(piece(false)),
        call(json!({"name": "g", "args": {"y": 1}})),
        ends("STOP"),
    ]);
    let calls: Vec<_> = parts_of(&answer).into_iter().map(|(said, _)| said).collect();
    assert_eq!(calls, [format!("f {STREAMED_ARGUMENTS}"), "g {\"y\":1}".to_owned()]);
    assert!(serde_json::from_str::<Value>(STREAMED_ARGUMENTS).is_err(), "it is rejected");
}

#[test]
fn a_call_within_a_thought_is_a_call() {
    let call = json!({"functionCall": {"name": "f", "args": {}}, "thought": true, "thoughtSignature": "S"});
    let answer = finished(&[parts(json!([{"text": "hm", "thought": true}, call])), ends("STOP")]);
    let expected =
        [("thinks hm".to_owned(), None), ("f {}".to_owned(), Some(json!({"thoughtSignature": "S"})))];
    assert_eq!(parts_of(&answer), expected);
}

#[test]
fn counts_in_other_forms_are_read() {
    let usage = json!({"usageMetadata": {"promptTokenCount": "12", "candidatesTokenCount": 3.0}});
    let answer =
        finished(&[parts(json!([{"text": "so"}])), json!({"candidates": [{"finishReason": "STOP"}]}), usage]);
    assert_eq!((answer.usage.input_tokens, answer.usage.output_tokens), (12, 3));
}
