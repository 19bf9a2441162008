//! Which thoughts of the model go back to it: those whose prefix is what it was when they came.

use std::sync::Arc;

use agentloop_core::agent::ReasoningEffort;
use agentloop_core::message::{Message, Part, Reasoning, Role, ToolStatus};

use super::super::{ModelRequest, Origin, StatePolicy};
use super::{cached, sent, sent_with, uncached, written};
use crate::model::provider::anthropic::state::ThoughtState;
use crate::model::testing::fixtures::{assistant, call, reasoning, request, result, text, tool, user};

#[test]
fn thoughts_can_be_dropped() {
    let mut request =
        request(vec![user("x"), assistant(vec![reasoning("t", Some("s"), None), call("a", "f", "{}")])]);
    request.options.reasoning_effort = Some(ReasoningEffort::High);
    let body = sent_with(&request, &uncached(), StatePolicy::Drop);
    assert_eq!(body["messages"][1]["content"].as_array().unwrap().len(), 1);
    assert_eq!(body.get("thinking"), None);
    assert!(sent(&request, &uncached())["thinking"].is_object());
}

/// A conversation with a model that binds its thinking to the prefix.
struct Bound {
    request: ModelRequest,
    origin: Origin,
}

impl Bound {
    fn new(model: &str) -> Self {
        let mut request = request(vec![]);
        request.model = model.to_owned();
        request.system_prompt = "be good".to_owned();
        request.tools = [tool("f", "{}")].into();
        Self { request, origin: Origin::new(&"p".into(), model) }
    }

    fn says(&mut self, message: Message) -> &mut Self {
        self.request.messages.push(Arc::new(message));
        self
    }

    /// Adds an answer with thinking that is bound to the request.
    fn thinks(&mut self, signature: &str, then: Vec<Part>) -> &mut Self {
        let (_, prefix) = written(&self.request, &cached(), StatePolicy::Keep);
        let state = ThoughtState { signature: Some(signature.into()), redacted: None, prefix };
        let state = state.to_provider_state(&self.origin);
        let thought = Part::Reasoning(Reasoning { text: "hm".into(), state, ..Reasoning::default() });
        self.says(assistant([vec![thought], then].concat()))
    }

    /// Signatures that are sent, in order.
    fn sends(&self) -> Vec<String> {
        let body = sent(&self.request, &cached());
        let turns = body["messages"].as_array().unwrap().clone();
        let blocks = turns.iter().flat_map(|turn| turn["content"].as_array().unwrap().clone());
        blocks.filter_map(|block| block["signature"].as_str().map(str::to_owned)).collect()
    }
}

fn two_rounds(model: &str) -> Bound {
    let mut bound = Bound::new(model);
    bound.says(user("hi")).thinks("one", vec![call("a", "f", "{}")]);
    bound.says(result("a", ToolStatus::Succeeded, "1", vec![])).thinks("two", vec![text("done")]);
    bound.says(user("and now?"));
    bound
}

#[test]
fn thoughts_go_back_behind_what_they_were_bound_to() {
    let mut bound = two_rounds("claude-opus-5-5");
    assert_eq!(bound.sends(), ["one", "two"]);
    bound.thinks("three", vec![text("yes")]).says(user("thanks"));
    assert_eq!(bound.sends(), ["one", "two", "three"]);
}

#[test]
fn thoughts_are_left_out_where_anything_before_them_changed() {
    let changes: [fn(&mut ModelRequest); 5] = [
        |request| request.system_prompt.push('!'),
        |request| request.tools = [].into(),
        |request| request.tools = [tool("f", "{}"), tool("g", "{}")].into(),
        |request| request.messages[0] = Arc::new(user("hello")),
        |request| request.messages.insert(0, Arc::new(Message::text(Role::System, "context"))),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let mut bound = two_rounds("claude-opus-5-5");
        change(&mut bound.request);
        assert!(bound.sends().is_empty(), "change {number}");
        // Its thoughts from here on are bound to the request that it is sent now, without them.
        bound.thinks("three", vec![text("yes")]).says(user("thanks"));
        assert_eq!(bound.sends(), ["three"], "change {number}");
        let mut older = two_rounds("claude-opus-4-8");
        change(&mut older.request);
        assert_eq!(older.sends(), ["one", "two"], "these bind nothing, change {number}");
    }
}

#[test]
fn thoughts_come_back_with_what_they_were_bound_to() {
    let mut bound = two_rounds("claude-opus-5-5");
    let tools = std::mem::replace(&mut bound.request.tools, [tool("g", "{}")].into());
    bound.thinks("elsewhere", vec![text("yes")]).says(user("thanks"));
    assert_eq!(bound.sends(), ["elsewhere"]);
    bound.request.tools = tools;
    assert_eq!(bound.sends(), ["one", "two"]);
}

#[test]
fn thoughts_behind_what_cannot_be_sent_are_left_out() {
    let mut bound = Bound::new("claude-opus-5-5");
    bound.says(user("hi"));
    let (_, prefix) = written(&bound.request, &cached(), StatePolicy::Keep);
    let thought = |signature: &str| {
        let state =
            ThoughtState { signature: Some(signature.into()), redacted: None, prefix: prefix.clone() };
        Part::Reasoning(Reasoning { state: state.to_provider_state(&bound.origin), ..Reasoning::default() })
    };
    let parts = vec![thought("one"), text(" "), thought("two"), call("a", "f", "{")];
    bound.says(assistant(parts)).says(result("a", ToolStatus::Rejected, "no JSON", vec![]));
    assert_eq!(bound.sends(), ["one"], "the API refuses the blank text between them");
}

#[test]
fn thoughts_of_others_are_left_out() {
    let mut bound = two_rounds("claude-opus-4-8");
    bound.request.model = "claude-sonnet-5".to_owned();
    assert!(bound.sends().is_empty());
    let legacy = [user("hi"), assistant(vec![reasoning("t", Some("old"), None), text("a")]), user("b")];
    for (model, expected) in [("claude-opus-4-8", &["old"][..]), ("claude-opus-5-5", &[])] {
        let mut bound = Bound::new(model);
        bound.request.messages = legacy.iter().cloned().map(Arc::new).collect();
        assert_eq!(bound.sends(), expected, "{model}: nobody knows what it was bound to");
    }
}

#[test]
fn thoughts_are_bound_to_the_same_wherever_the_model_is_told_to_go_on() {
    // Once the word to go on stands at the end, and once between the two answers.
    let mut bound = Bound::new("claude-opus-5-5");
    bound.says(user("a")).thinks("one", vec![text("b")]).thinks("two", vec![text("c")]).says(user("d"));
    assert_eq!(bound.sends(), ["one", "two"]);
}

#[test]
fn a_model_with_a_budget_does_not_think_behind_calls_that_it_made_without() {
    let thinks = |parts: Vec<Part>, then: Vec<Message>| {
        let mut request = request([vec![user("x"), assistant(parts)], then].concat());
        request.model = "claude-haiku-4-5".to_owned();
        request.options.reasoning_effort = Some(ReasoningEffort::High);
        sent(&request, &uncached()).get("thinking").is_some()
    };
    let (thought, called) = (reasoning("t", Some("s"), None), call("a", "f", "{}"));
    let told = || vec![result("a", ToolStatus::Succeeded, "1", vec![])];
    assert!(thinks(vec![thought.clone(), called.clone()], told()));
    assert!(!thinks(vec![called.clone()], told()));
    assert!(!thinks(vec![text("I look."), thought, called.clone()], told()), "the turn begins with a text");
    assert!(!thinks(vec![reasoning("t", None, None), called.clone()], told()), "it is not sent back");
    let ended = [told(), vec![assistant(vec![text("done")]), user("and now?")]].concat();
    assert!(thinks(vec![called], ended), "the loop is over");
}

#[test]
fn no_turn_ends_with_a_thought() {
    let thought = || reasoning("t", Some("s"), None);
    let blocks = |parts: Vec<Part>| {
        let body = sent(&request(vec![user("x"), assistant(parts), user("y")]), &uncached());
        let turns = body["messages"].as_array().unwrap().clone();
        turns.iter().map(|turn| turn["content"].as_array().unwrap().len()).collect::<Vec<_>>()
    };
    assert_eq!(blocks(vec![thought()]), [2], "the user's messages are one turn");
    assert_eq!(blocks(vec![thought(), text(" ")]), [2]);
    assert_eq!(blocks(vec![thought(), text("so"), thought()]), [1, 2, 1]);
}
