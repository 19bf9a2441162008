use super::*;
use crate::model::response::fields::read;
use crate::model::response::template::TextEvent as _;
use crate::model::response::template::tests::check;

#[test]
fn by_template_an_event_says_the_same() {
    check::<ChatChunk<'static>>(&[
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
        assert_eq!(read::<ChatChunk<'_>>(text).unwrap().single_text(), None, "{text}");
    }
}
