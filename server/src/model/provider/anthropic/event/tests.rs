use super::*;
use crate::model::response::fields::read;
use crate::model::response::template::TextEvent as _;
use crate::model::response::template::tests::check;

#[test]
fn by_template_an_event_says_the_same() {
    check::<MessagesEvent<'static>>(&[
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
        assert_eq!(read::<MessagesEvent<'_>>(text).unwrap().single_text(), None, "{text}");
    }
}
