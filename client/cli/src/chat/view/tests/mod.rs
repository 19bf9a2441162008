//! The text on the screen in given states.

mod questions;
mod status;
mod windows;

use std::time::{Duration, SystemTime};

use agentloop_client::v1::{
    AssistantMessage, HumanRequest, HumanRequestKind, HumanRequested, Message, ModelCallFailed, ModelDelta,
    ModelProvider, Part, PolicyRule, RememberedRule, Role, Run, RunEvent, RunFinished, RunInput, RunStatus,
    SelectOption, Session, ToolCall, ToolCallAccepted, Usage, WaitKind, WaitingOn, model_delta::Delta,
    part::Content, run_event,
};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::{Terminal, backend::TestBackend, style::Modifier};

use super::*;
use crate::chat::{
    app::ChatOptions,
    event::{Command, Event},
};
use crate::command::conversation::overview::SessionOverview;

fn options() -> ChatOptions {
    ChatOptions {
        input: RunInput::default(),
        notes: vec![],
        who: "me".into(),
        started: SystemTime::UNIX_EPOCH,
        new_id: || "r".into(),
    }
}

fn chat() -> App {
    App::new(options(), None).0
}

/// A chat with a started run.
fn running() -> App {
    let mut app = chat();
    app.handle(Event::Paste("What is 1 + 2?".into()));
    let sent = press(&mut app, KeyCode::Enter);
    assert!(matches!(sent[..], [Command::Start(_)]), "{sent:?}");
    app
}

fn press(app: &mut App, code: KeyCode) -> Vec<Command> {
    app.handle(Event::Key(KeyEvent::new(code, KeyModifiers::NONE)))
}

fn ctrl(app: &mut App, letter: char) -> Vec<Command> {
    app.handle(Event::Key(KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL)))
}

fn happens(app: &mut App, status: RunStatus, event: run_event::Event) {
    let event = RunEvent {
        run_id: "r".into(),
        session_id: "s".into(),
        status: status.into(),
        event: Some(event),
        ..RunEvent::default()
    };
    app.handle(Event::Run(Box::new(event)));
}

fn says(app: &mut App, delta: Delta) {
    let delta = ModelDelta { model_call: 1, attempt: 1, delta_seq: 1, delta: Some(delta) };
    happens(app, RunStatus::ModelRunning, run_event::Event::ModelDelta(delta));
}

fn asks(app: &mut App, request: HumanRequest) {
    let request = HumanRequest { request_id: "q".into(), ..request };
    let requested = HumanRequested { request: Some(request) };
    happens(app, RunStatus::AwaitingHuman, run_event::Event::HumanRequested(requested));
}

fn approval(arguments: &str) -> HumanRequest {
    HumanRequest {
        kind: HumanRequestKind::Approve.into(),
        call_id: "c".into(),
        tool: "send_email".into(),
        arguments_json: arguments.into(),
        ..HumanRequest::default()
    }
}

/// Draws the screen, and returns its rows as text.
fn screen(app: &mut App, width: u16, height: u16) -> Vec<String> {
    app.handle(Event::Resize(width, height));
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("memory is no terminal to fail");
    terminal.draw(|frame| draw(app, frame.area(), frame.buffer_mut())).expect("drawn");
    let buffer = terminal.backend().buffer();
    buffer
        .content()
        .chunks(usize::from(width.max(1)))
        .map(|row| row.iter().map(|cell| cell.symbol()).collect::<String>().trim_end().to_owned())
        .collect()
}

#[track_caller]
fn sees(app: &mut App, expected: &[&str]) {
    let rows = screen(app, 80, 24).join("\n");
    for line in expected {
        assert!(rows.contains(line), "{line:?} is not on the screen:\n{rows}");
    }
}

#[test]
fn a_new_chat_says_what_to_do() {
    sees(&mut chat(), &["a new session: ask something", "Enter sends", "ready", "new session"]);
}

#[test]
fn the_keys_of_the_text_field_fit_a_narrow_screen() {
    let shows = |app: &mut App, width: u16, keys: &str| {
        let rows = screen(app, width, 24);
        assert!(rows.iter().any(|row| row.trim_matches(['─', ' ']) == keys), "{width}: {rows:#?}");
    };
    let mut app = chat();
    shows(&mut app, 40, "Enter sends, F1 helps");
    shows(&mut app, 20, "F1 helps");
    shows(&mut app, 80, "Enter sends, Alt-Enter begins a line, F1 helps");
    let mut app = running();
    shows(&mut app, 40, "Enter queues · ctrl-C aborts");
    shows(&mut app, 80, "Enter queues · ctrl-S tells the run · ctrl-Q the queue · ctrl-C aborts");
}

#[test]
fn a_prompt_is_set_apart_from_what_is_above_it() {
    let mut app = running();
    let finished = RunFinished { status: RunStatus::Aborted.into(), ..RunFinished::default() };
    happens(&mut app, RunStatus::Aborted, run_event::Event::RunFinished(finished));
    app.handle(Event::Paste("again".into()));
    press(&mut app, KeyCode::Enter);
    let rows = screen(&mut app, 80, 24);
    let at = rows.iter().position(|row| row == "> again").expect("the prompt");
    assert!(rows[at - 2].starts_with("· aborted"), "{rows:#?}");
    assert_eq!(rows[at - 1], "");
}

#[test]
fn the_answer_comes_piece_by_piece() {
    let mut app = running();
    sees(&mut app, &["> What is 1 + 2?", "sending…"]);
    says(&mut app, Delta::Reasoning("A sum.".into()));
    says(&mut app, Delta::Text("It is ".into()));
    sees(&mut app, &["A sum.", "It is", "model running", "session s"]);
    says(&mut app, Delta::Text("3.".into()));
    sees(&mut app, &["It is 3."]);
}

#[test]
fn reasoning_is_dimmed() {
    let mut app = running();
    says(&mut app, Delta::Reasoning("hm".into()));
    says(&mut app, Delta::Text("yes".into()));
    let area = Rect::new(0, 0, 20, 10);
    let mut buffer = Buffer::empty(area);
    draw(&app, area, &mut buffer);
    let style_of = |text: &str| {
        let at = (0..10).find(|row| buffer[(0, *row)].symbol() == &text[..1]).expect("it is shown");
        buffer[(0, at)].modifier
    };
    assert!(style_of("hm").contains(Modifier::DIM));
    assert!(!style_of("yes").contains(Modifier::DIM));
}

#[test]
fn a_tool_call_shows_how_long_it_runs() {
    let mut app = running();
    let (call_id, name, arguments_json) = ("c".into(), "add".into(), r#"{"a":1}"#.into());
    let call = ToolCall { call_id, name, arguments_json, ..ToolCall::default() };
    let parts = vec![Part { content: Some(Content::ToolCall(call)) }];
    let message = AssistantMessage {
        message: Some(Message { role: Role::Assistant.into(), parts }),
        usage: Some(Usage { input_tokens: 12, output_tokens: 5, ..Usage::default() }),
        ..AssistantMessage::default()
    };
    happens(&mut app, RunStatus::ToolRunning, run_event::Event::AssistantMessage(message));
    sees(&mut app, &["○ add {\"a\":1}", "pending", "12 tokens in, 5 out"]);
    let accepted = ToolCallAccepted { call_id: "c".into(), attempt: 1, host_id: "h-1".into() };
    happens(&mut app, RunStatus::ToolRunning, run_event::Event::ToolCallAccepted(accepted));
    app.handle(Event::Tick(Duration::from_secs(7)));
    sees(&mut app, &["◐ add", "running on h-1 7s", "tool running"]);
}

#[test]
fn the_queue_is_shown() {
    let mut app = running();
    app.session.id = Some("s".into());
    for n in 1..=5 {
        app.handle(Event::Paste(format!("message {n}")));
        press(&mut app, KeyCode::Enter);
    }
    sees(
        &mut app,
        &["⋯ sending: message 1", "⋯ sending: message 2", "⋯ and 3 more (ctrl-Q)", "Enter queues"],
    );
    ctrl(&mut app, 'q');
    sees(&mut app, &[" queue: d removes", " 5  sending: message 5"]);
    press(&mut app, KeyCode::Esc);
    app.handle(Event::Paste("/rules".into()));
    press(&mut app, KeyCode::Enter);
    sees(&mut app, &[" remembered rules: d forgets"]);
    app.handle(Event::Rules(Ok(vec![])));
    sees(&mut app, &["no decision is remembered"]);
}

#[test]
fn a_call_is_shown_with_its_title() {
    let mut app = running();
    let proposed = agentloop_client::v1::ToolCallProposed {
        call_id: "c".into(),
        tool: "get_weather".into(),
        title: "Weather in Beijing".into(),
        ..Default::default()
    };
    happens(&mut app, RunStatus::ToolRunning, run_event::Event::ToolCallProposed(proposed));
    sees(&mut app, &["○ Weather in Beijing  get_weather"]);
}

#[test]
fn windows_lie_over_everything() {
    let mut app = chat();
    press(&mut app, KeyCode::F(1));
    let whole =
        ["while a run is under way: tell it ", "with a queue it asks ", "with an empty text, or none "];
    sees(&mut app, &[" keys "]);
    sees(&mut app, &whole);
    press(&mut app, KeyCode::Esc);
    ctrl(&mut app, 'o');
    sees(&mut app, &["sessions", "a new session", "asking the server …"]);
    let session = Session {
        session_id: "s-1".into(),
        title: "Trip\x1b[2J".into(),
        entry_count: 7,
        live_run_id: "x".into(),
        ..Session::default()
    };
    let overview = |session, about: &str| SessionOverview {
        session,
        about: about.into(),
        agent: "helper".into(),
        state: "tool running".into(),
    };
    let other = Session { session_id: "s-2".into(), ..Session::default() };
    app.handle(Event::Sessions(Ok(vec![overview(session, "Trip\x1b[2J"), overview(other, "")])));
    sees(&mut app, &["◐", "   7  tool running    helper      Trip", "helper      s-2", "type to filter"]);
    "tri".chars().for_each(|c| drop(press(&mut app, KeyCode::Char(c))));
    sees(&mut app, &["with: tri", "helper      Trip"]);
    let rows = screen(&mut app, 80, 24).join("\n");
    assert!(!rows.contains("s-2") && !rows.contains("a new session\n"), "{rows}");
    "x".chars().for_each(|c| drop(press(&mut app, KeyCode::Char(c))));
    sees(&mut app, &["with: trix", "no session has these words"]);
}

#[test]
fn long_results_are_brief_until_asked_for() {
    let mut app = chat();
    let text: String = (1..=20).map(|n| format!("line {n}\n")).collect();
    let result = agentloop_client::v1::ToolResult {
        call_id: "c".into(),
        name: "list".into(),
        status: agentloop_client::v1::ToolStatus::Succeeded.into(),
        output: text,
        ..agentloop_client::v1::ToolResult::default()
    };
    let parts = vec![Part { content: Some(Content::ToolResult(result)) }];
    let entry = agentloop_client::v1::Entry {
        message: Some(Message { role: Role::Tool.into(), parts }),
        ..agentloop_client::v1::Entry::default()
    };
    app.transcript.entry(&entry);
    sees(&mut app, &["● list", "completed", "⎿ line 1", "… 16 more lines (ctrl-T)"]);
    ctrl(&mut app, 't');
    sees(&mut app, &["line 20"]);
}

#[test]
fn no_size_is_too_small() {
    let mut app = running();
    says(&mut app, Delta::Text("天气 ".repeat(50)));
    asks(&mut app, approval(r#"{"to":"a@b"}"#));
    for overlay in [false, true] {
        for (width, height) in [(1, 1), (2, 2), (3, 8), (10, 3), (80, 1), (1, 40), (200, 60)] {
            assert_eq!(screen(&mut app, width, height).len(), usize::from(height), "{width}x{height}");
            press(&mut app, KeyCode::PageUp);
            press(&mut app, KeyCode::PageDown);
        }
        if !overlay {
            ctrl(&mut app, 'o');
        }
    }
}

#[test]
fn the_conversation_scrolls() {
    let mut app = chat();
    for n in 1..=100 {
        app.transcript.user(&format!("message {n}."));
    }
    sees(&mut app, &["message 100."]);
    press(&mut app, KeyCode::PageUp);
    let up = screen(&mut app, 80, 24);
    assert!(!up.join("\n").contains("message 100."), "{up:?}");
    assert!(up.join("\n").contains("ctrl-End: the end"), "{up:?}");

    app.transcript.user("one more");
    assert_eq!(screen(&mut app, 80, 24), up, "what comes later moves nothing");

    press(&mut app, KeyCode::PageDown);
    press(&mut app, KeyCode::PageDown);
    sees(&mut app, &["one more"]);
    assert_eq!(app.scroll, Scroll::AtEnd);

    app.handle(Event::Key(KeyEvent::new(KeyCode::Home, KeyModifiers::CONTROL)));
    assert!(screen(&mut app, 80, 24)[0].contains("message 1."));
    press(&mut app, KeyCode::PageUp);
    assert!(screen(&mut app, 80, 24)[0].contains("message 1."));
    app.handle(Event::Key(KeyEvent::new(KeyCode::End, KeyModifiers::CONTROL)));
    sees(&mut app, &["one more"]);
}
