use crate::model::response::fields::tests::Shapes;
use crate::model::response::template::Said as _;
use crate::model::response::template::tests::check;

use super::*;

/// Every field that is read, and where it stands.
const SHAPES: Shapes = Shapes {
    root: "event",
    objects: &[
        (
            "event",
            &[
                ("type", "text"),
                ("index", "index"),
                ("content_block", "block"),
                ("delta", "delta"),
                ("message", "message"),
                ("usage", "usage"),
            ],
        ),
        ("message", &[("id", "text"), ("usage", "usage")]),
        (
            "block",
            &[
                ("type", "text"),
                ("text", "text"),
                ("thinking", "text"),
                ("signature", "text"),
                ("data", "text"),
                ("id", "text"),
                ("name", "text"),
                ("input", "input"),
            ],
        ),
        ("input", &[("x", "count")]),
        (
            "delta",
            &[
                ("type", "text"),
                ("text", "text"),
                ("thinking", "text"),
                ("signature", "text"),
                ("partial_json", "text"),
                ("stop_reason", "text"),
            ],
        ),
        (
            "usage",
            &[
                ("input_tokens", "count"),
                ("output_tokens", "count"),
                ("cache_read_input_tokens", "count"),
                ("cache_creation_input_tokens", "count"),
            ],
        ),
    ],
    lists: &[],
};

#[test]
fn both_ways_of_reading_say_the_same() {
    let (mut fast, mut lenient) = (0, 0);
    SHAPES.check(20_000, |text, value| match Said::fast(text) {
        Some(said) => {
            assert_eq!(said, Said::lenient(value), "{text}");
            fast += 1;
        }
        None => lenient += 1,
    });
    assert!(fast > 5_000 && lenient > 5_000, "{fast} {lenient}");
}

#[test]
fn what_is_usual_takes_the_short_way() {
    for text in [
        r#"{"type":"message_start","message":{"id":"m","type":"message","content":[],"stop_reason":null,"usage":{"input_tokens":3,"cache_creation":{"ephemeral_5m_input_tokens":0},"output_tokens":1}}}"#,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
        r#"{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"t","name":"f","input":{}}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a\nb"}}"#,
        r#"{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"x\""}}"#,
        r#"{"type":"content_block_stop","index":0}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":4}}"#,
        r#"{"type":"message_stop"}"#,
        r#"{"type": "ping"}"#,
    ] {
        assert!(Said::fast(text).is_some(), "{text}");
    }
}

#[test]
fn by_template_an_event_says_the_same() {
    check::<Said<'static>>(&[
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"word"}}"#,
        r#"{"delta":{"thinking":"word","type":"thinking_delta"},"type":"content_block_delta"}"#,
        r#"{"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":"word"},"p":"word"}"#,
    ]);
}

#[test]
fn an_event_that_says_more_than_one_thing_is_no_template() {
    for text in [
        r#"{"index":0,"delta":{"type":"text_delta","text":"a"}}"#,
        r#"{"type":"message_delta","index":0,"delta":{"type":"text_delta","text":"a"}}"#,
        r#"{"type":"content_block_delta","delta":{"type":"text_delta","text":"a"},"usage":{"output_tokens":1}}"#,
        r#"{"type":"content_block_delta","delta":{"type":"text_delta","text":"a","stop_reason":"end_turn"}}"#,
        r#"{"type":"content_block_delta","delta":{"type":"text_delta","text":"a","thinking":"b"}}"#,
        r#"{"type":"content_block_delta","delta":{"type":"signature_delta","signature":"a"}}"#,
        r#"{"type":"content_block_delta","delta":{"type":"text_delta","thinking":"a"}}"#,
        r#"{"type":"content_block_delta","delta":{"type":"text_delta","text":""}}"#,
    ] {
        assert_eq!(Said::fast(text).unwrap().single(), None, "{text}");
    }
}
