//! The transcript after given events.

use std::time::Duration;

use agentloop_client::v1::{
    ApproveWithEdits, AssistantMessage, CompactionFailed, ContextCompacted, Decision, Entry,
    ExtensionApplied, HumanAnswer, HumanInput, HumanRequest, HumanRequested, HumanResolved, InputMessage,
    Message, ModelCallFailed, ModelDelta, Part, PartialMessage, Reasoning, Role, RunError, RunErrorCode,
    RunFinished, RunStatus, Selection, TodoItem, TodoStatus, TodosUpdated, ToolCall, ToolCallAccepted,
    ToolCallAttemptFailed, ToolCallOffered, ToolCallOutput, ToolCallProgress, ToolCallProposed,
    ToolCallResult, ToolCallState, ToolResult, ToolStatus, decision::Decision as Kind, human_input,
    model_delta::Delta, part::Content,
};

use super::*;

fn message(role: Role, parts: Vec<Content>) -> Message {
    let parts = parts.into_iter().map(|content| Part { content: Some(content) }).collect();
    Message { role: role.into(), parts }
}

fn delta(attempt: u32, delta: Delta) -> Event {
    Event::ModelDelta(ModelDelta { model_call: 1, attempt, delta_seq: 0, delta: Some(delta) })
}

fn says(attempt: u32, text: &str) -> Event {
    delta(attempt, Delta::Text(text.into()))
}

fn thinks(text: &str) -> Event {
    delta(1, Delta::Reasoning(text.into()))
}

fn finished(parts: Vec<Content>) -> Event {
    let message = Some(message(Role::Assistant, parts));
    Event::AssistantMessage(AssistantMessage {
        model_call: 1,
        attempt: 1,
        message,
        ..AssistantMessage::default()
    })
}

fn text(text: &str) -> Content {
    Content::Text(text.into())
}

fn asks_for_a_tool() -> Event {
    finished(vec![Content::ToolCall(ToolCall {
        call_id: "c".into(),
        name: "add".into(),
        arguments_json: r#"{"a":1}"#.into(),
        ..ToolCall::default()
    })])
}

use agentloop_client::v1::run_event::Event;

fn after(events: &[Event]) -> Transcript {
    let mut transcript = Transcript::default();
    for (second, event) in (0..).zip(events) {
        transcript.event(event, Duration::from_secs(second));
    }
    transcript
}

/// The blocks as lines, each with its kind and text.
fn shown(transcript: &Transcript) -> Vec<String> {
    let live = |text: &TextBlock| if text.unfinished { "…" } else { "" };
    let now = Duration::from_secs(10);
    transcript
        .blocks()
        .map(|(_, block)| match block {
            Block::User(text) => format!("user {text}"),
            Block::Text(text) => format!("said{} {}", live(text), text.text),
            Block::Reasoning(text) => format!("thought{} {}", live(text), text.text),
            Block::Call(call) => format!("call {} {} {}", call.tool, call.arguments, call.describe(now)),
            Block::Todos(items) => format!("todos {}", items.join(", ")),
            Block::Note(_, text) => format!("note {text}"),
        })
        .collect()
}

#[track_caller]
fn check(events: &[Event], expected: &[&str]) {
    assert_eq!(shown(&after(events)), expected);
}

#[test]
fn pieces_grow_into_a_message() {
    check(&[thinks("Let me "), thinks("see.")], &["thought… Let me see."]);
    check(&[thinks("Hm."), says(1, "Hel"), says(1, "lo")], &["thought… Hm.", "said… Hello"]);
    check(&[says(1, "Hel"), finished(vec![text("Hello")])], &["said Hello"]);
}

#[test]
fn a_finished_message_is_authoritative() {
    check(&[says(1, "Helo"), finished(vec![text("Hello")])], &["said Hello"]);
    let reasoning = Content::Reasoning(Reasoning { text: "Hm!".into(), redacted: false });
    check(&[thinks("Hm"), says(1, "Hi"), finished(vec![reasoning, text("Hi")])], &["thought Hm!", "said Hi"]);
}

#[test]
fn reasoning_that_is_not_repeated_stays() {
    check(&[thinks("Hm."), says(1, "Hi"), finished(vec![text("Hi")])], &["thought Hm.", "said Hi"]);
}

#[test]
fn the_text_of_a_failed_attempt_is_removed() {
    check(&[says(1, "Hel"), says(2, "Good day")], &["said… Good day"]);
    let error =
        RunError { code: RunErrorCode::ModelTimeout.into(), message: "too slow".into(), http_status: 0 };
    let failed = Event::ModelCallFailed(ModelCallFailed { error: Some(error), ..ModelCallFailed::default() });
    check(&[says(1, "Hel"), failed], &["note the model failed: too slow [model_timeout]"]);
}

#[test]
fn a_snapshot_takes_the_place_of_the_pieces() {
    let partial = PartialMessage {
        model_call: 1,
        attempt: 1,
        message: Some(message(Role::Assistant, vec![text("Hello wor")])),
        ..PartialMessage::default()
    };
    check(&[says(1, "Hel"), Event::PartialMessage(partial), says(1, "ld")], &["said… Hello world"]);
}

#[test]
fn the_last_todo_list_counts() {
    let list = |items: &[(&str, TodoStatus)]| {
        let item = |(content, status): &(&str, TodoStatus)| TodoItem {
            content: (*content).into(),
            status: (*status).into(),
            ..TodoItem::default()
        };
        Event::TodosUpdated(TodosUpdated { items: items.iter().map(item).collect() })
    };
    let first = list(&[("pack\u{1b}[2J", TodoStatus::Pending)]);
    check(std::slice::from_ref(&first), &["todos [ ] pack"]);
    let second = list(&[("pack", TodoStatus::Completed), ("go", TodoStatus::Cancelled)]);
    check(&[first.clone(), says(1, "Hi"), second], &["said… Hi", "todos [x] pack, [-] go"]);
    check(&[first, list(&[])], &[]);
}

#[test]
fn a_call_goes_through_its_states() {
    let proposed = Event::ToolCallProposed(ToolCallProposed {
        call_id: "c".into(),
        tool: "add".into(),
        ..Default::default()
    });
    let offered = Event::ToolCallOffered(ToolCallOffered {
        call_id: "c".into(),
        tool: "add".into(),
        attempt: 1,
        host_id: "h".into(),
        ..ToolCallOffered::default()
    });
    let accepted =
        Event::ToolCallAccepted(ToolCallAccepted { call_id: "c".into(), attempt: 1, host_id: "h".into() });
    let progress = Event::ToolCallProgress(ToolCallProgress {
        call_id: "c".into(),
        attempt: 1,
        message: "half\x1b[2J".into(),
        fraction: Some(0.5),
    });
    let result = ToolResult {
        call_id: "c".into(),
        name: "add".into(),
        status: ToolStatus::Succeeded.into(),
        output: "3".into(),
        ..ToolResult::default()
    };
    let result = Event::ToolCallResult(ToolCallResult {
        attempt: 1,
        result: Some(result),
        duration: Some(prost_types::Duration { seconds: 2, nanos: 0 }),
        ..ToolCallResult::default()
    });
    let events = [asks_for_a_tool(), proposed, offered, accepted, progress, result];
    let states = [
        "pending",
        "pending",
        "pending: offered to h",
        "running on h 7s",
        "running on h 7s 50 % half",
        "completed in 2.0s",
    ];
    for (n, state) in states.into_iter().enumerate() {
        check(&events[..=n], &[&format!("call add {{\"a\":1}} {state}")]);
    }
}

#[test]
fn a_failed_attempt_shows_its_reason() {
    let failed = |state: ToolCallState| {
        Event::ToolCallAttemptFailed(ToolCallAttemptFailed {
            call_id: "c".into(),
            attempt: 1,
            message: "lost".into(),
            state: state.into(),
            ..ToolCallAttemptFailed::default()
        })
    };
    check(&[asks_for_a_tool(), failed(ToolCallState::Ready)], &["call add {\"a\":1} pending: try 1: lost"]);
    let in_doubt = ["call add {\"a\":1} in doubt: nobody knows if it took effect"];
    check(&[asks_for_a_tool(), failed(ToolCallState::InDoubt)], &in_doubt);
}

#[test]
fn an_approval_with_edits_shows_what_runs() {
    let request = HumanRequest {
        request_id: "q".into(),
        call_id: "c".into(),
        kind: agentloop_client::v1::HumanRequestKind::Approve.into(),
        ..HumanRequest::default()
    };
    let requested = Event::HumanRequested(HumanRequested { request: Some(request) });
    let decision = Kind::ApproveWithEdits(ApproveWithEdits { arguments_json: r#"{"a":2}"#.into() });
    let answer = HumanAnswer {
        decision: Some(Decision { decision: Some(decision) }),
        decided_by: "me".into(),
        ..HumanAnswer::default()
    };
    let resolved = Event::HumanResolved(HumanResolved {
        request_id: "q".into(),
        call_id: "c".into(),
        answer: Some(answer),
    });
    check(&[asks_for_a_tool(), requested.clone()], &["call add {\"a\":1} waits for your approval"]);
    check(
        &[asks_for_a_tool(), requested, resolved],
        &["call add {\"a\":2} pending", "note approved as {\"a\":2} by me"],
    );
}

#[test]
fn changes_of_the_context_are_noted() {
    let compacted = ContextCompacted {
        strategy: "summarize".into(),
        tokens_before: 900,
        tokens_after: 100,
        ..ContextCompacted::default()
    };
    let text = "the context was made smaller (summarize, about 900 tokens before, 100 after)";
    check(&[Event::ContextCompacted(compacted.clone())], &[&format!("note {text}")]);
    let mut transcript = Transcript::default();
    transcript.entry(&Entry { compaction: Some(compacted), ..Entry::default() });
    assert_eq!(shown(&transcript), [format!("note {text}")]);

    let error = RunError { code: RunErrorCode::ModelTimeout.into(), message: "late".into(), http_status: 0 };
    let failed = CompactionFailed { strategy: "summarize".into(), error: Some(error) };
    check(
        &[Event::CompactionFailed(failed)],
        &["note the context was not made smaller: late [model_timeout]"],
    );
}

#[test]
fn an_extension_with_an_outcome_is_noted() {
    let applied = |outcome: &str, error: &str| {
        Event::ExtensionApplied(ExtensionApplied {
            name: "guard".into(),
            outcome: outcome.into(),
            error: error.into(),
            ..ExtensionApplied::default()
        })
    };
    check(&[applied("", "")], &[]);
    check(&[applied("vetoed it", "")], &["note guard: vetoed it"]);
    check(&[applied("", "no answer")], &["note guard failed: no answer"]);
}

#[test]
fn an_answer_is_said() {
    let input = |input| {
        let answer = HumanAnswer { input: Some(HumanInput { input: Some(input) }), ..HumanAnswer::default() };
        Event::HumanResolved(HumanResolved { answer: Some(answer), ..HumanResolved::default() })
    };
    let chosen = Selection { option_ids: vec!["a".into(), "b".into()] };
    check(&[input(human_input::Input::Text("blue".into()))], &["note answered: blue"]);
    check(&[input(human_input::Input::Selection(chosen))], &["note chosen: a, b"]);
}

#[test]
fn an_end_that_is_no_success_says_so() {
    let end = |status: RunStatus| {
        let error =
            RunError { message: "enough".into(), code: RunErrorCode::AbortedByCaller.into(), http_status: 0 };
        Event::RunFinished(RunFinished {
            status: status.into(),
            error: Some(error),
            ..RunFinished::default()
        })
    };
    check(&[end(RunStatus::Completed)], &[]);
    check(&[says(1, "Hel"), end(RunStatus::Aborted)], &["note aborted: enough [aborted_by_caller]"]);
    let transcript = after(&[end(RunStatus::Failed)]);
    assert!(transcript.blocks().all(|(_, block)| matches!(block, Block::Note(Tone::Bad, _))));
}

#[test]
fn a_session_is_shown_as_it_was() {
    let (name, arguments_json, title) = ("add".into(), "{}".into(), "Add\x1b[2J up".into());
    let call = ToolCall { call_id: "c".into(), name, arguments_json, title };
    let result = ToolResult {
        call_id: "c".into(),
        name: "add".into(),
        status: ToolStatus::Failed.into(),
        output: "no".into(),
        ..ToolResult::default()
    };
    let mut transcript = Transcript::default();
    for message in [
        message(Role::User, vec![text("add")]),
        message(Role::Assistant, vec![text("Yes."), Content::ToolCall(call)]),
        message(Role::Tool, vec![Content::ToolResult(result)]),
        message(Role::Assistant, vec![text("No.")]),
    ] {
        transcript.entry(&Entry { message: Some(message), ..Entry::default() });
    }
    assert_eq!(shown(&transcript), ["user add", "said Yes.", "call add {} failed", "said No."]);
    assert_eq!(transcript.call("c").title, "Add up");
}

#[test]
fn a_call_that_a_fork_has_without_its_result_is_not_pending() {
    let (name, arguments_json) = ("add".into(), "{}".into());
    let call = ToolCall { call_id: "c".into(), name, arguments_json, ..ToolCall::default() };
    let mut transcript = Transcript::default();
    for message in [
        message(Role::Assistant, vec![Content::ToolCall(call)]),
        message(Role::User, vec![text("without it then")]),
    ] {
        transcript.entry(&Entry { message: Some(message), ..Entry::default() });
    }
    assert_eq!(shown(&transcript), ["call add {} pending", "user without it then"]);
    transcript.end_open_calls();
    assert_eq!(shown(&transcript), ["call add {} not completed in this session", "user without it then"]);
}

#[test]
fn all_text_is_sanitized() {
    let hostile = "\x1b]0;x\x07\x1b[2J\r\u{202e}bad";
    let user = InputMessage {
        message: Some(message(Role::User, vec![text(hostile)])),
        entry_no: 1,
        ..InputMessage::default()
    };
    let output = ToolCallOutput { call_id: "c".into(), data: hostile.into(), ..ToolCallOutput::default() };
    let (name, arguments_json) = (hostile.into(), hostile.into());
    let call = ToolCall { call_id: "c".into(), name, arguments_json, ..ToolCall::default() };
    let transcript = after(&[
        Event::InputMessage(user),
        says(1, hostile),
        thinks(hostile),
        finished(vec![text(hostile), Content::ToolCall(call)]),
        Event::ToolCallOutput(output),
    ]);
    let all = format!("{:?}", transcript.blocks);
    for bad in ["\\u{1b}", "\\u{202e}", "\\r", "\\u{7}", "2J", "]0"] {
        assert!(!all.contains(bad), "{bad}: {all}");
    }
    assert!(all.contains("bad"), "{all}");
}

#[test]
fn old_blocks_are_dropped_and_numbers_stay() {
    let mut transcript = Transcript::default();
    for n in 0..BLOCKS_MAX + 5 {
        transcript.user(&n.to_string());
    }
    let (first, block) = transcript.blocks().next().expect("there are blocks");
    assert_eq!((first, block), (5, &Block::User("5".into())));
    assert_eq!(transcript.blocks().len(), BLOCKS_MAX);
}

#[test]
fn a_lost_message_is_removed() {
    let mut transcript = Transcript::default();
    transcript.user("one");
    transcript.user("two");
    transcript.note(Tone::Bad, "lost");
    transcript.remove_last_user();
    assert_eq!(shown(&transcript), ["user one", "note lost"]);
}

#[test]
fn a_text_that_is_cut_says_where_the_rest_is() {
    let cut = TextBlock::finished(&"x".repeat(TEXT_BYTES_MAX + 1)).text;
    assert!(cut.contains("`agentloop runs RUN` prints the answer"), "{}", &cut[TEXT_BYTES_MAX..]);
    assert_eq!(TextBlock::finished(&"x".repeat(TEXT_BYTES_MAX)).text.len(), TEXT_BYTES_MAX);
}
