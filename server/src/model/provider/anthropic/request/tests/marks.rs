//! The marks of the prompt cache.

use agentloop_core::message::{Message, ToolStatus};
use serde_json::{Value, json};

use super::{cached, sent, uncached};
use crate::model::testing::fixtures::{assistant, call, reasoning, request, result, text, tool, user};

#[test]
fn the_cache_mark_moves_to_the_last_block() {
    let marked = |messages: Vec<Message>| {
        let body = sent(&request(messages), &cached());
        let last = body["messages"].as_array().unwrap().last().unwrap().clone();
        last["content"]
            .as_array()
            .unwrap()
            .iter()
            .map(|block| block.get("cache_control").is_some())
            .collect::<Vec<_>>()
    };
    let calls = || assistant(vec![call("a", "f", "{}"), call("b", "f", "{}")]);
    let results = || ["a", "b"].map(|id| result(id, ToolStatus::Succeeded, "x", vec![]));
    assert_eq!(marked([vec![calls()], results().to_vec()].concat()), [false, true]);
    assert_eq!(marked([vec![calls()], results().to_vec(), vec![user("x")]].concat()), [false, false, true]);
    let thought = vec![reasoning("x", Some("s"), None), text("so")];
    assert_eq!(marked(vec![assistant(thought)]), [true], "what is asked last");
}

/// Every block of a prompt in the order of the prompt cache, without marks, and the positions of the marked blocks.
fn prompt(body: &Value) -> (Vec<Value>, Vec<usize>) {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut blocks = [list(&body["tools"]), list(&body["system"])].concat();
    for turn in list(&body["messages"]) {
        blocks.extend(list(&turn["content"]).into_iter().map(|block| json!([turn["role"], block])));
    }
    let mut marked = Vec::new();
    for (place, block) in blocks.iter_mut().enumerate() {
        let block = if block.is_array() { &mut block[1] } else { block };
        if block.as_object_mut().unwrap().remove("cache_control").is_some() {
            marked.push(place);
        }
    }
    (blocks, marked)
}

#[test]
fn marks_move_with_a_growing_conversation() {
    let ids: Vec<String> = (0..12).map(|id| format!("c{id}")).collect();
    let thinks = reasoning("hm", Some("s"), None);
    let calls = ids.iter().map(|id| call(id, "f", "{}"));
    let results = ids.iter().map(|id| result(id, ToolStatus::Succeeded, "x", vec![]));
    let steps: [Vec<Message>; 5] = [
        vec![user("hi")],
        [vec![assistant([thinks.clone()].into_iter().chain(calls).collect())], results.collect()].concat(),
        vec![assistant(vec![call("d", "f", "{}")]), result("d", ToolStatus::Succeeded, "x", vec![])],
        vec![assistant(vec![text("done")]), user("and now?"), user("go on")],
        vec![assistant(vec![thinks, text("done")]), user("thanks")],
    ];
    let mut messages = Vec::new();
    let mut prompts: Vec<(Vec<Value>, Vec<usize>)> = Vec::new();
    for step in steps {
        messages.extend(step);
        let mut request = request(messages.clone());
        request.system_prompt = "be good".to_owned();
        request.tools = [tool("f", "{}"), tool("g", "{}")].into();
        let (blocks, marked) = prompt(&sent(&request, &cached()));
        if let Some((before, ends)) = prompts.last() {
            assert!(blocks.starts_with(before), "the prompt only grows");
            let end = ends.last().unwrap();
            assert!(
                marked.contains(end),
                "what the last request left is looked for where it ends: {marked:?}"
            );
        }
        prompts.push((blocks, marked));
    }
    let marked: Vec<&[usize]> = prompts.iter().map(|(_, marked)| marked.as_slice()).collect();
    // Tools at 0 and 1, the system prompt at 2, and the first question at 3.
    assert_eq!(marked, [&[1, 2, 3][..], &[1, 2, 3, 28], &[1, 2, 28, 30], &[1, 2, 30, 33], &[1, 2, 33, 36]]);
}

#[test]
fn there_are_no_more_marks_than_the_api_takes() {
    let mut request = request(vec![user("a"), assistant(vec![text("b")]), user("c")]);
    request.system_prompt = "be good".to_owned();
    request.tools = [tool("f", "{}")].into();
    assert_eq!(prompt(&sent(&request, &cached())).1, [0, 1, 2, 4]);
    request.options.provider_options = Some(r#"{"cache_control":{"type":"ephemeral"}}"#.to_owned());
    assert_eq!(prompt(&sent(&request, &cached())).1, [0, 1], "the API sets one itself");
    assert_eq!(prompt(&sent(&request, &uncached())).1, [0_usize; 0]);
}
