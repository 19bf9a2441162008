//! The text on the screen in given states.

use std::time::{Duration, SystemTime};

use agentloop_client::v1::{
    AssistantMessage, HumanRequest, HumanRequestKind, HumanRequested, Message, ModelCallFailed, ModelDelta,
    Part, Role, Run, RunEvent, RunInput, RunStatus, SelectOption, Session, ToolCall, ToolCallAccepted, Usage,
    WaitKind, WaitingOn, model_delta::Delta, part::Content, run_event,
};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::{Terminal, backend::TestBackend, style::Modifier};

use super::*;
use crate::chat::{
    app::ChatOptions,
    event::{Command, Event},
};
use crate::command::overview::SessionOverview;

fn options() -> ChatOptions {
    ChatOptions {
        input: RunInput::default(),
        notes: vec![],
        who: "me".into(),
        started: SystemTime::UNIX_EPOCH,
        colours: true,
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
fn a_long_hint_is_wrapped() {
    let mut app = chat();
    app.handle(Event::Paste("/hepl".into()));
    press(&mut app, KeyCode::Enter);
    let text = "a space before it sends it as text";
    let rows = screen(&mut app, 80, 24);
    let last = rows[22..].join(" ");
    assert!(last.starts_with("no command /hepl: /agent") && last.ends_with(text), "{rows:#?}");
    assert_eq!(rows[21], "/hepl", "the editor stays above it");
    assert!(screen(&mut app, 60, 24).join(" ").contains(text));
    assert_eq!(screen(&mut app, 60, 8)[6], "/hepl", "a low screen has one row for it");
    press(&mut app, KeyCode::Backspace);
    assert!(screen(&mut app, 80, 24)[23].starts_with("ready"), "the next key ends it");
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
    let call = ToolCall { call_id: "c".into(), name: "add".into(), arguments_json: r#"{"a":1}"#.into() };
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
fn an_approval_shows_every_argument() {
    let mut app = running();
    asks(&mut app, approval(r#"{"to":"a@b","n":12345678901234567890123,"x":"a\u202eb"}"#));
    sees(
        &mut app,
        &[
            "may this run?",
            "send_email",
            "\"to\": \"a@b\"",
            "\"n\": 12345678901234567890123",
            "a\\u202eb",
            "y  yes, run it",
            "e  run it with edited arguments",
            "waits for your approval",
        ],
    );
    press(&mut app, KeyCode::Char('e'));
    press(&mut app, KeyCode::Enter);
    sees(&mut app, &["run it with edited arguments", "{\"to\":\"a@b\"", "Enter answers, Esc goes back"]);
    press(&mut app, KeyCode::Enter);
    sees(&mut app, &["sending the answer …"]);
}

#[test]
fn the_draft_of_a_rule_is_shown() {
    let mut app = running();
    asks(&mut app, HumanRequest { tool: "send_email".into(), ..approval(r#"{"to":"a@b"}"#) });
    press(&mut app, KeyCode::Char('r'));
    press(&mut app, KeyCode::Enter);
    sees(
        &mut app,
        &[
            "run like calls unasked for",
            "the rest of this run",
            "every run from now on",
            "send_email",
            "/to is a@b",
            "checking what it matches …",
            "Tab: how long",
        ],
    );
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
fn a_very_small_window_shows_the_part_with_the_keys() {
    let mut app = running();
    let small = |app: &mut App| screen(app, 20, 5).join("\n");
    asks(&mut app, approval(r#"{"to":"a@b"}"#));
    press(&mut app, KeyCode::Char('n'));
    let shown = small(&mut app);
    assert!(shown.contains("may this run?") && shown.contains("n  no"), "{shown}");
    press(&mut app, KeyCode::Enter);
    app.handle(Event::Paste("not now".into()));
    assert!(small(&mut app).contains("not now"), "{}", small(&mut app));
    press(&mut app, KeyCode::Esc);
    press(&mut app, KeyCode::Esc);
    app.handle(Event::Paste("words".into()));
    let shown = small(&mut app);
    assert!(shown.contains("words") && shown.contains("Tab"), "{shown}");
}

#[test]
fn invisible_characters_in_arguments_are_shown() {
    let mut app = running();
    asks(&mut app, approval("{\"to\":\"\u{202e}moc.live\u{200b}\"}"));
    sees(&mut app, &["\\u{202e}moc.live\\u{200b}"]);
}

#[test]
fn the_choices_are_visible_with_very_long_arguments() {
    let mut app = running();
    asks(&mut app, approval(&format!("{{\"body\":\"{}\"}}", "word ".repeat(10_000))));
    sees(&mut app, &["PageDown: more", "y  yes, run it", "s  stop the run", "? send_email"]);
}

#[test]
fn arguments_are_approved_when_all_of_them_were_on_the_screen() {
    let mut app = running();
    let members: Vec<String> = (1..=30).map(|number| format!("\"part{number}\":{number}")).collect();
    asks(&mut app, approval(&format!("{{{}}}", members.join(","))));
    sees(&mut app, &["PageDown: more", "\"part1\": 1"]);
    press(&mut app, KeyCode::Char('y'));
    assert!(press(&mut app, KeyCode::Enter).is_empty());
    sees(&mut app, &["not all of it was on the screen: PageDown shows more"]);
    press(&mut app, KeyCode::PageDown);
    assert!(press(&mut app, KeyCode::Enter).is_empty(), "there is more");
    for _ in 0..10 {
        press(&mut app, KeyCode::PageDown);
    }
    sees(&mut app, &["PageUp: back", "\"part30\": 30", "y  yes, run it"]);
    assert!(!press(&mut app, KeyCode::Enter).is_empty());
}

#[test]
fn a_usual_question_is_whole_on_a_usual_screen() {
    let mut app = running();
    let arguments = r#"{"to":"team@example.com","subject":"Weather in Beijing","body":"clear"}"#;
    asks(&mut app, HumanRequest { question: "May send_email run?".into(), ..approval(arguments) });
    sees(&mut app, &["May send_email run?", "\"body\": \"clear\"", "s  stop the run", "> What is 1 + 2?"]);
    press(&mut app, KeyCode::Enter);
    press(&mut app, KeyCode::Char('y'));
    assert!(!press(&mut app, KeyCode::Enter).is_empty());
}

#[test]
fn questions_of_every_kind_are_shown() {
    let option = |id: &str, label: &str| SelectOption { id: id.into(), label: label.into() };
    let select = HumanRequest {
        kind: HumanRequestKind::Select.into(),
        question: "Which colour?".into(),
        options: vec![option("r", "red"), option("g", "green"), option("b", "")],
        ..HumanRequest::default()
    };
    let mut app = running();
    asks(&mut app, select.clone());
    sees(&mut app, &["    red", "↑↓ picks, Enter answers"]);
    press(&mut app, KeyCode::Enter);
    sees(&mut app, &["nothing is picked: ↑↓ picks, then Enter answers", "    red"]);
    press(&mut app, KeyCode::Down);
    sees(&mut app, &["a question", "Which colour?", "→  red", "green", "    b", "Enter answers"]);

    let mut app = running();
    asks(&mut app, HumanRequest { multiple: true, ..select });
    press(&mut app, KeyCode::Char(' '));
    sees(&mut app, &["[x] red", "[ ] green", "Space marks"]);

    let mut app = running();
    let prompt = HumanRequest {
        kind: HumanRequestKind::Prompt.into(),
        question: "Your name?".into(),
        ..HumanRequest::default()
    };
    asks(&mut app, prompt);
    sees(&mut app, &["Your name?", "your answer:", "Enter answers"]);

    let mut app = running();
    asks(&mut app, HumanRequest { kind: HumanRequestKind::InDoubt.into(), ..approval("{}") });
    sees(&mut app, &["did this take effect?", "y  run it once more"]);
}

#[test]
fn a_question_put_aside_says_how_to_come_back() {
    let mut app = running();
    asks(&mut app, approval("{}"));
    press(&mut app, KeyCode::Esc);
    sees(&mut app, &["may this run? · Tab: answer"]);
}

#[test]
fn the_status_shows_why_a_run_waits() {
    let mut app = running();
    says(&mut app, Delta::Text("x".into()));
    let waiting =
        WaitingOn { kind: WaitKind::ToolHost.into(), what: "add".into(), attempt: 2, ..WaitingOn::default() };
    let run = Run { run_id: "r".into(), waiting_on: Some(waiting), ..Run::default() };
    app.handle(Event::RunRead(Box::new(run)));
    sees(&mut app, &["waits for a tool host for add, try 2"]);
    app.handle(Event::Connection { run_id: "r".into(), up: false });
    sees(&mut app, &["reconnecting…"]);
    app.handle(Event::Connection { run_id: "r".into(), up: true });
    ctrl(&mut app, 'c');
    press(&mut app, KeyCode::F(12));
    sees(&mut app, &["aborting…"]);
}

#[test]
fn the_time_to_the_next_try_counts_down() {
    let mut app = running();
    app.handle(Event::Tick(Duration::from_secs(10)));
    let retry_at = Some(prost_types::Timestamp { seconds: 15, nanos: 0 });
    let failed = ModelCallFailed { retry_at, ..ModelCallFailed::default() };
    happens(&mut app, RunStatus::BackingOff, run_event::Event::ModelCallFailed(failed));
    sees(&mut app, &["backing off  next try in 5s"]);
    app.handle(Event::Tick(Duration::from_millis(12_500)));
    sees(&mut app, &["backing off  next try in 3s"]);
    let waiting = WaitingOn {
        kind: WaitKind::Backoff.into(),
        what: "p/m".into(),
        next_at: Some(prost_types::Timestamp { seconds: 14, nanos: 0 }),
        ..WaitingOn::default()
    };
    let run = Run { run_id: "r".into(), waiting_on: Some(waiting), ..Run::default() };
    app.handle(Event::RunRead(Box::new(run)));
    sees(&mut app, &["next try in 2s  waits for the next try of p/m"]);
    says(&mut app, Delta::Text("x".into()));
    let rows = screen(&mut app, 80, 24).join("\n");
    assert!(!rows.contains("next try"), "{rows}");
}

#[test]
fn the_status_says_which_answer_is_waited_for() {
    for (kind, answer) in [
        (HumanRequestKind::Select, "waits for your choice"),
        (HumanRequestKind::Prompt, "waits for your answer"),
        (HumanRequestKind::InDoubt, "waits for your word"),
    ] {
        let mut app = running();
        asks(&mut app, HumanRequest { kind: kind.into(), ..HumanRequest::default() });
        sees(&mut app, &[answer]);
    }
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
fn no_cell_is_coloured_where_none_may_be() {
    let coloured = |colours| {
        let mut app = App::new(ChatOptions { colours, ..options() }, None).0;
        app.handle(Event::Paste("hi".into()));
        press(&mut app, KeyCode::Enter);
        asks(&mut app, approval("{}"));
        let area = Rect::new(0, 0, 80, 24);
        let mut buffer = Buffer::empty(area);
        draw(&app, area, &mut buffer);
        buffer.content().iter().filter(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset).count()
    };
    assert_eq!(coloured(false), 0);
    assert_ne!(coloured(true), 0);
}

#[test]
fn the_status_does_not_repeat_an_open_question() {
    let mut app = running();
    asks(&mut app, approval("{}"));
    let waiting =
        WaitingOn { kind: WaitKind::Human.into(), what: "a long id".into(), ..WaitingOn::default() };
    let run = Run { run_id: "r".into(), waiting_on: Some(waiting), ..Run::default() };
    app.handle(Event::RunRead(Box::new(run)));
    sees(&mut app, &["waits for your approval  0 tokens in"]);
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
    assert_eq!(app.scroll, Scroll::FollowOptions);

    app.handle(Event::Key(KeyEvent::new(KeyCode::Home, KeyModifiers::CONTROL)));
    assert!(screen(&mut app, 80, 24)[0].contains("message 1."));
    press(&mut app, KeyCode::PageUp);
    assert!(screen(&mut app, 80, 24)[0].contains("message 1."));
    app.handle(Event::Key(KeyEvent::new(KeyCode::End, KeyModifiers::CONTROL)));
    sees(&mut app, &["one more"]);
}
