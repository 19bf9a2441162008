use crate::model::response::fields::tests::Shapes;
use crate::model::response::template::Said as _;
use crate::model::response::template::tests::check;

use super::*;

/// Every field that is read, and where it stands.
const SHAPES: Shapes = Shapes {
    root: "chunk",
    objects: &[
        ("chunk", &[("id", "text"), ("choices", "choices"), ("usage", "usage"), ("error", "null")]),
        (
            "choice",
            &[("index", "index"), ("delta", "delta"), ("finish_reason", "text"), ("logprobs", "null")],
        ),
        (
            "delta",
            &[
                ("role", "text"),
                ("content", "text"),
                ("reasoning", "text"),
                ("reasoning_content", "text"),
                ("refusal", "text"),
                ("reasoning_details", "null"),
                ("tool_calls", "calls"),
                ("function_call", "function"),
            ],
        ),
        (
            "call",
            &[
                ("index", "index"),
                ("id", "text"),
                ("type", "text"),
                ("function", "function"),
                ("extra_content", "null"),
            ],
        ),
        ("function", &[("name", "text"), ("arguments", "text")]),
        (
            "usage",
            &[
                ("prompt_tokens", "count"),
                ("completion_tokens", "count"),
                ("prompt_cache_hit_tokens", "count"),
                ("prompt_tokens_details", "prompt"),
                ("completion_tokens_details", "completion"),
            ],
        ),
        ("prompt", &[("cached_tokens", "count"), ("cache_write_tokens", "count")]),
        ("completion", &[("reasoning_tokens", "count")]),
    ],
    lists: &[("choices", "choice"), ("calls", "call")],
};

#[test]
fn both_ways_of_reading_say_the_same() {
    let (mut fast, mut lenient) = (0, 0);
    SHAPES.check(20_000, |text, value| match Said::fast(text) {
        Some(said) => {
            assert_eq!(said, Said::lenient(value), "{text}");
            assert!(value.get("error").is_none_or(Value::is_null), "{text}");
            fast += 1;
        }
        None => lenient += 1,
    });
    assert!(fast > 5_000 && lenient > 5_000, "{fast} {lenient}");
}

#[test]
fn what_is_usual_takes_the_short_way() {
    for text in [
        r#"{"id":"x","choices":[{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}],"usage":null}"#,
        r#"{"choices":[{"index":0,"delta":{"content":"a\n\u00fc"},"finish_reason":null}]}"#,
        r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":""}}]}}]}"#,
        r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"x\""}}]}}]}"#,
        r#"{"choices":[{"index":0,"delta":{"reasoning_content":"hm"}}]}"#,
        r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#,
        r#"{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15,"prompt_tokens_details":{"cached_tokens":4,"audio_tokens":0}}}"#,
    ] {
        assert!(Said::fast(text).is_some(), "{text}");
    }
    let Some(Said { content: Some(Cow::Borrowed(_)), .. }) =
        Said::fast(r#"{"choices":[{"delta":{"content":"plain"}}]}"#)
    else {
        panic!("a text without escapes is not copied");
    };
}

#[test]
fn by_template_an_event_says_the_same() {
    check::<Said<'static>>(&[
        r#"{"id":"c","created":1,"choices":[{"index":0,"delta":{"content":"word"},"finish_reason":null}],"usage":null}"#,
        r#"{"choices":[{"delta":{"role":"assistant","content":"word"},"logprobs":null}]}"#,
        r#"{"choices":[{"index":0,"delta":{"reasoning_content":"word","reasoning":"word"}}]}"#,
        r#"{"choices":[{"delta":{"content":"","reasoning":"word"},"finish_reason":""}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"index":2,"function":{"arguments":"word"}}]}}]}"#,
        r#"{"a\"obfuscation":"a1","choices":[{"delta":{"content":"word"}}],"b\"obfuscation":"b2","c":"\"obfuscation\":\""}"#,
    ]);
}

#[test]
fn an_event_that_says_more_than_one_thing_is_no_template() {
    for text in [
        r#"{"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}"#,
        r#"{"choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":1}}"#,
        r#"{"choices":[{"delta":{"content":"a","reasoning":"b"}}]}"#,
        r#"{"choices":[{"delta":{"refusal":"a"}}]}"#,
        r#"{"choices":[{"delta":{"content":"a","tool_calls":[{"function":{"arguments":"b"}}]}}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"id":"c","function":{"arguments":"b"}}]}}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"function":{"name":"f","arguments":"b"}}]}}]}"#,
        r#"{"choices":[{"delta":{"content":"\n"}}]}"#,
        r#"{"choices":[{"delta":{"content":""}}]}"#,
    ] {
        assert_eq!(Said::fast(text).unwrap().single(), None, "{text}");
    }
}
