use std::sync::Arc;

use agentloop_core::message::ToolStatus;
use serde::Deserialize;

use super::*;
use crate::model::testing::fixtures::{assistant, call, png, reasoning, result, text, tool, user};

/// A text and its token counts in two vocabularies of OpenAI: the newer `o200k` and the older `cl100k`.
#[derive(Deserialize)]
struct Sample {
    name: String,
    text: String,
    o200k: u32,
    cl100k: u32,
}

fn samples() -> Vec<Sample> {
    serde_json::from_str(include_str!("samples.json")).unwrap()
}

#[test]
fn every_kind_of_text_is_estimated_near_its_count() {
    let samples = samples();
    assert!(samples.len() > 20);
    for Sample { name, text, o200k, cl100k } in samples {
        let estimate = text_tokens(&text);
        let least = u32::min(o200k, cl100k) * 3 / 4;
        let most = u32::max(o200k, cl100k) * 13 / 10;
        assert!((least..=most).contains(&estimate), "{name}: {estimate}, counted {o200k} and {cl100k}");
    }
}

#[test]
fn all_kinds_together_are_estimated_nearer() {
    let (mut estimate, mut count) = (0, 0);
    for sample in samples() {
        estimate += text_tokens(&sample.text);
        count += sample.o200k;
    }
    assert!((count..count * 23 / 20).contains(&estimate), "{estimate}, counted {count}");
}

#[test]
fn a_request_is_the_sum_of_what_is_in_it() {
    let messages = [
        user("What is the weather in Rome?"),
        assistant(vec![reasoning("I look.", None, Some(&"x".repeat(400))), call("a", "weather", "{}")]),
        result("a", ToolStatus::Succeeded, "sunny", vec![png()]),
        assistant(vec![text("Sunny.")]),
    ]
    .map(Arc::new);
    let (f, g) = (tool("f", "{}"), tool("g", r#"{"type":"object"}"#));
    let each: u32 = messages.iter().map(|message| message_tokens(message)).sum();
    let rest = system_prompt_tokens("Be good.") + tool_tokens(&f) + tool_tokens(&g);
    assert_eq!(tokens(&messages, "Be good.", [&*f, &*g]), u64::from(each + rest));
    assert_eq!(tokens(&[], "", []), 0);
    assert!(message_tokens(&messages[1]) > 100, "hidden reasoning counts");
    assert!(message_tokens(&messages[2]) > IMAGE_TOKENS);
}

#[test]
fn what_the_model_is_not_shown_does_not_count() {
    let of = |bytes| message_tokens(&result("a", ToolStatus::Succeeded, &"word ".repeat(bytes / 5), vec![]));
    let shown = of(TOOL_RESULT_SHOWN_BYTES_MAX);
    assert_eq!(of(10 * TOOL_RESULT_SHOWN_BYTES_MAX), shown);
    assert!(shown > 50_000);
}

#[test]
fn longer_texts_have_more_tokens() {
    assert_eq!(text_tokens(""), 0);
    for Sample { name, text, .. } in samples() {
        assert!(text_tokens(&text) < text_tokens(&text.repeat(2)), "{name}");
    }
}
