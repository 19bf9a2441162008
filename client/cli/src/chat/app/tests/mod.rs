//! The commands after given events.

mod busy;
mod choice;
mod prompts;
mod sessions;
mod usage;

use agentloop_client::v1::{
    Entry, ErrorReason, HumanRequest, HumanRequestKind, HumanRequested, HumanResolved, InputMessage, Message,
    Part, Role, Run, RunEvent, RunFinished, RunStarted, Session, part::Content, run_event,
};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::*;
use crate::chat::{
    event::{OpenedSession, RpcError},
    transcript::Block,
};
use crate::command::conversation::overview::SessionOverview;

fn options() -> ChatOptions {
    let input = RunInput { agent: Some("helper".into()), ..RunInput::default() };
    ChatOptions {
        input,
        notes: vec![],
        who: "me".into(),
        started: SystemTime::UNIX_EPOCH,
        new_id: || "r".into(),
    }
}

/// The commands that open a session.
fn opens(session_id: &str) -> [Command; 3] {
    let id = || session_id.to_owned();
    [Command::Unfollow, Command::WatchSession(id()), Command::OpenSession(id())]
}

fn chat() -> App {
    App::new(options(), None).0
}

fn press(app: &mut App, code: KeyCode) -> Vec<Command> {
    app.handle(Event::Key(KeyEvent::new(code, KeyModifiers::NONE)))
}

fn ctrl(app: &mut App, letter: char) -> Vec<Command> {
    app.handle(Event::Key(KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL)))
}

fn write(app: &mut App, text: &str) {
    text.chars().for_each(|c| assert_eq!(press(app, KeyCode::Char(c)), []));
}

fn send(app: &mut App, text: &str) -> Vec<Command> {
    write(app, text);
    press(app, KeyCode::Enter)
}

/// A chat with a live run.
fn running() -> App {
    let mut app = chat();
    send(&mut app, "hi");
    happens(&mut app, RunStatus::Preparing, run_event::Event::RunStarted(RunStarted::default()));
    app
}

fn happens(app: &mut App, status: RunStatus, event: run_event::Event) -> Vec<Command> {
    let event = RunEvent {
        run_id: "r".into(),
        session_id: "s".into(),
        status: status.into(),
        event: Some(event),
        ..RunEvent::default()
    };
    app.handle(Event::Run(Box::new(event)))
}

fn said(text: &str) -> Message {
    let part = Part { content: Some(Content::Text(text.into())) };
    Message { role: Role::User.into(), parts: vec![part] }
}

fn asks(app: &mut App, request_id: &str) {
    let request = HumanRequest {
        request_id: request_id.into(),
        kind: HumanRequestKind::Approve.into(),
        ..HumanRequest::default()
    };
    let requested = HumanRequested { request: Some(request) };
    happens(app, RunStatus::AwaitingHuman, run_event::Event::HumanRequested(requested));
}

fn stop_following(app: &mut App) -> Vec<Command> {
    let finished = RunFinished { status: RunStatus::Completed.into(), ..RunFinished::default() };
    happens(app, RunStatus::Completed, run_event::Event::RunFinished(finished))
}

fn users(app: &App) -> Vec<String> {
    let text = |block: &Block| match block {
        Block::User(text) => Some(text.clone()),
        _ => None,
    };
    app.transcript.blocks().filter_map(|(_, block)| text(block)).collect()
}

fn notes(app: &App) -> Vec<String> {
    let text = |block: &Block| match block {
        Block::Note(_, text) => Some(text.clone()),
        _ => None,
    };
    app.transcript.blocks().filter_map(|(_, block)| text(block)).collect()
}

fn error(message: &str) -> RpcError {
    RpcError { message: message.into(), reason: None, busy_run: None, unreachable: false }
}

fn session(id: &str, live_run_id: &str) -> Session {
    Session { session_id: id.into(), live_run_id: live_run_id.into(), ..Session::default() }
}

#[test]
fn a_prompt_starts_a_run() {
    let mut app = chat();
    let input = RunInput {
        prompt: "hi".into(),
        run_id: Some("r".into()),
        agent: Some("helper".into()),
        ..RunInput::default()
    };
    assert_eq!(send(&mut app, "hi"), [Command::Start(Box::new(input))]);
    assert!(app.editor.is_empty());
    assert_eq!(users(&app), ["hi"]);
}

#[test]
fn a_second_prompt_goes_to_the_same_session() {
    let mut app = running();
    stop_following(&mut app);
    let sent = send(&mut app, "and now?");
    let [Command::Start(input)] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!((input.session_id.as_deref(), input.auto_create_session), (Some("s"), Some(true)));
}

#[test]
fn nothing_is_sent_without_words() {
    let mut app = chat();
    assert_eq!(send(&mut app, "  "), []);
    assert_eq!(app.live, None);
}

#[test]
fn a_path_is_no_command() {
    for text in
        ["/etc/hosts, what is it?", " /quit is what?", "/ or not", "// is a comment", " /2", "/new\nlines"]
    {
        let mut app = chat();
        app.handle(Event::Paste(text.into()));
        assert!(matches!(press(&mut app, KeyCode::Enter)[..], [Command::Start(_)]), "{text}");
    }
}

#[test]
fn a_command_is_never_sent_to_the_model() {
    for quit in ["/quit", "/exit", "/quit "] {
        assert_eq!(send(&mut chat(), quit), [Command::Quit(Exit::Completed)]);
    }
    for mistyped in [
        "/quti",
        "/Help",
        "/help me",
        "/new session",
        "/etc",
        "/quit.",
        "/help?",
        "/2",
        "/2 is a half",
        "/-q",
        "/",
    ] {
        for mut app in [chat(), running()] {
            assert_eq!(send(&mut app, mistyped), [], "{mistyped}");
            assert_eq!(app.editor.text(), mistyped, "it can be mended");
            assert!(app.hint.as_ref().is_some_and(|hint| hint.contains("/sessions")), "{:?}", app.hint);
        }
    }
}

#[test]
fn a_line_can_be_begun() {
    let mut app = chat();
    write(&mut app, "one");
    app.handle(Event::Key(KeyEvent::new(KeyCode::Enter, KeyModifiers::ALT)));
    ctrl(&mut app, 'j');
    write(&mut app, "two");
    assert_eq!(app.editor.text(), "one\n\ntwo");
}

#[test]
fn what_was_typed_is_shown_once() {
    let mut app = running();
    let input = |text| {
        run_event::Event::InputMessage(InputMessage {
            message: Some(said(text)),
            entry_no: 1,
            ..InputMessage::default()
        })
    };
    happens(&mut app, RunStatus::Preparing, input("hi"));
    assert_eq!(users(&app), ["hi"]);
    happens(&mut app, RunStatus::Preparing, input("from elsewhere"));
    assert_eq!(users(&app), ["hi", "from elsewhere"]);
}

#[test]
fn events_of_another_run_are_not_ours() {
    let mut app = running();
    let finished = run_event::Event::RunFinished(RunFinished::default());
    let event = RunEvent { run_id: "other".into(), event: Some(finished), ..RunEvent::default() };
    app.handle(Event::Run(Box::new(event)));
    app.handle(Event::Connection { run_id: "other".into(), up: false });
    app.handle(Event::RunLost { run_id: "other".into(), error: error("gone") });
    assert!(app.live.as_ref().is_some_and(|live| live.connected), "{:?}", app.live);
    assert_eq!(notes(&app), [""; 0]);
}

#[test]
fn ctrl_c_aborts_once_and_then_leaves() {
    let mut app = running();
    assert_eq!(ctrl(&mut app, 'c'), [Command::Abort("r".into())]);
    assert_eq!(ctrl(&mut app, 'c'), [Command::Quit(Exit::Interrupted)]);
}

#[test]
fn an_abort_that_is_taken_leaves_the_chat_open() {
    let mut app = running();
    ctrl(&mut app, 'c');
    let finished = RunFinished { status: RunStatus::Aborted.into(), ..RunFinished::default() };
    happens(&mut app, RunStatus::Aborted, run_event::Event::RunFinished(finished));
    assert_eq!((&app.live, &app.hint), (&None, &None));
    assert_eq!(ctrl(&mut app, 'c'), [], "the abort's ctrl-C does not count");
    assert_eq!(ctrl(&mut app, 'c'), [Command::Quit(Exit::Completed)]);
}

#[test]
fn what_is_wrong_with_a_text_is_shown_beyond_the_end_of_the_run() {
    let mut app = running();
    assert_eq!(send(&mut app, "/model other"), []);
    let hint = app.hint.clone().expect("what is wrong");
    let finished = run_event::Event::RunFinished(RunFinished::default());
    happens(&mut app, RunStatus::Completed, finished);
    assert_eq!((&app.live, app.hint), (&None, Some(hint)));
}

#[test]
fn an_abort_that_is_not_taken_can_be_tried_again() {
    let mut app = running();
    ctrl(&mut app, 'c');
    app.handle(Event::CommandFailed("the abort was not taken".into()));
    press(&mut app, KeyCode::F(12));
    assert_eq!(ctrl(&mut app, 'c'), [Command::Abort("r".into())]);
}

#[test]
fn ctrl_c_takes_the_text_before_it_leaves() {
    let mut app = chat();
    write(&mut app, "text");
    assert_eq!(ctrl(&mut app, 'c'), []);
    assert!(app.editor.is_empty());
    write(&mut app, "x");
    assert_eq!(ctrl(&mut app, 'c'), [], "another key came between");
}

#[test]
fn ctrl_d_leaves_without_an_abort() {
    let mut app = running();
    assert_eq!(ctrl(&mut app, 'd'), [Command::Quit(Exit::Completed)]);
    let mut app = chat();
    write(&mut app, "x");
    assert_eq!(ctrl(&mut app, 'd'), []);
}

#[test]
fn a_signal_leaves() {
    assert_eq!(chat().handle(Event::Terminated), [Command::Quit(Exit::Interrupted)]);
}

#[test]
fn a_question_takes_the_keys_and_gives_them_back() {
    let mut app = running();
    asks(&mut app, "q");
    assert_eq!(app.focus, Focus::Card);
    press(&mut app, KeyCode::Char('y'));
    let decided = press(&mut app, KeyCode::Enter);
    let [Command::Decide(answer)] = &decided[..] else { panic!("{decided:?}") };
    assert_eq!((answer.request_id.as_str(), answer.decided_by.as_str()), ("q", "me"));
    app.handle(Event::AnswerAccepted(Box::new(HumanRequest {
        request_id: "q".into(),
        ..HumanRequest::default()
    })));
    assert_eq!((app.cards.len(), app.focus), (0, Focus::Editor));
}

#[test]
fn a_question_does_not_interrupt_whoever_writes() {
    let mut app = running();
    write(&mut app, "half a senten");
    asks(&mut app, "q");
    write(&mut app, "y");
    assert_eq!(app.editor.text(), "half a senteny");
    press(&mut app, KeyCode::Tab);
    assert_eq!(app.focus, Focus::Card);
    press(&mut app, KeyCode::Esc);
    assert_eq!(app.focus, Focus::Editor);
}

#[test]
fn questions_are_answered_one_after_the_other() {
    let mut app = running();
    asks(&mut app, "q1");
    asks(&mut app, "q2");
    let resolved = |request_id: &str| {
        run_event::Event::HumanResolved(HumanResolved {
            request_id: request_id.into(),
            ..HumanResolved::default()
        })
    };
    happens(&mut app, RunStatus::AwaitingHuman, resolved("q1"));
    assert_eq!(app.cards.front().map(|card| card.request.request_id.as_str()), Some("q2"));
    assert_eq!(app.focus, Focus::Card);
    happens(&mut app, RunStatus::ToolRunning, resolved("q2"));
    assert_eq!((app.cards.len(), app.focus), (0, Focus::Editor));
}

#[test]
fn an_answer_that_is_refused_can_be_given_anew() {
    let mut app = running();
    asks(&mut app, "q");
    press(&mut app, KeyCode::Char('y'));
    press(&mut app, KeyCode::Enter);
    let answer_refused = |error| Event::AnswerRefused { request_id: "q".into(), error };
    app.handle(answer_refused(error("the arguments are wrong")));
    assert_eq!(app.cards[0].error.as_deref(), Some("the arguments are wrong"));
    assert!(matches!(press(&mut app, KeyCode::Enter)[..], [Command::Decide(_)]));

    let late = RpcError { reason: Some(ErrorReason::AlreadyResolved), ..error("somebody was faster") };
    app.handle(answer_refused(late));
    assert_eq!(app.cards.len(), 0);
    assert_eq!(notes(&app), ["somebody was faster"]);
}

#[test]
fn the_end_of_a_run_takes_its_questions_along() {
    let mut app = running();
    asks(&mut app, "q");
    stop_following(&mut app);
    assert_eq!((app.cards.len(), app.focus, app.live), (0, Focus::Editor, None));
}

#[test]
fn a_prompt_that_did_not_arrive_is_given_back() {
    let mut app = chat();
    send(&mut app, "hi");
    app.handle(Event::RunLost { run_id: "r".into(), error: error("no such agent") });
    assert_eq!((users(&app), app.editor.text().as_str()), (vec![], "hi"));
    assert_eq!(notes(&app), ["no such agent"]);
    assert_eq!(app.unsent, None, "it was refused: next time it is another run");
}

#[test]
fn a_prompt_that_may_have_arrived_is_sent_again_as_the_same_run() {
    let ids = {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        || NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed).to_string()
    };
    let run_id = |sent: &[Command]| match sent {
        [Command::Start(input)] => input.run_id.clone().expect("there is one"),
        other => panic!("{other:?}"),
    };
    let mut app = App::new(ChatOptions { new_id: ids, ..options() }, None).0;
    let first = run_id(&send(&mut app, "hi"));
    let away = RpcError { unreachable: true, ..error("nobody there") };
    app.handle(Event::RunLost { run_id: first.clone(), error: away.clone() });
    assert_eq!(run_id(&press(&mut app, KeyCode::Enter)), first);
    app.handle(Event::RunLost { run_id: first.clone(), error: away });
    assert_ne!(run_id(&send(&mut app, "!")), first, "another text is another run");
}

#[test]
fn a_run_that_is_lost_on_the_way_keeps_what_was_said() {
    let mut app = running();
    app.handle(Event::RunLost { run_id: "r".into(), error: error("no such run") });
    assert_eq!((users(&app), app.editor.is_empty(), app.live.is_none()), (vec!["hi".into()], true, true));
}

#[test]
fn a_busy_session_shows_what_keeps_it_busy() {
    let mut app = chat();
    send(&mut app, "hi");
    let busy = RpcError { busy_run: Some("other".into()), ..error("busy") };
    let done = app.handle(Event::RunLost { run_id: "r".into(), error: busy });
    assert_eq!(done, [Command::FollowRun("other".into())]);
    assert_eq!(app.editor.text(), "hi");
}

#[test]
fn a_run_that_does_not_move_is_looked_at() {
    let mut app = running();
    assert_eq!(app.handle(Event::Tick(Duration::from_secs(1))), []);
    let look = [Command::ReadRun("r".into())];
    assert_eq!(app.handle(Event::Tick(Duration::from_secs(2))), look);
    assert_eq!(app.handle(Event::Tick(Duration::from_secs(3))), []);
    app.handle(Event::RunRead(Box::new(Run { run_id: "r".into(), ..Run::default() })));
    assert_eq!(app.handle(Event::Tick(Duration::from_secs(4))), []);
    assert_eq!(app.handle(Event::Tick(Duration::from_secs(5))), look);
    app.handle(Event::Connection { run_id: "r".into(), up: false });
    assert_eq!(app.handle(Event::Tick(Duration::from_secs(60))), [], "there is nobody to ask");
    assert_eq!(chat().handle(Event::Tick(Duration::from_secs(60))), []);
}

#[test]
fn a_paused_run_is_let_go_on() {
    let mut app = running();
    assert_eq!(ctrl(&mut app, 'g'), []);
    happens(&mut app, RunStatus::Paused, run_event::Event::RunPaused(Default::default()));
    assert_eq!(ctrl(&mut app, 'g'), [Command::Resume("r".into())]);
}

#[test]
fn earlier_prompts_come_back() {
    let mut app = chat();
    for text in ["one", "two"] {
        send(&mut app, text);
        stop_following(&mut app);
    }
    for (key, text) in [
        (KeyCode::Up, "two"),
        (KeyCode::Up, "one"),
        (KeyCode::Up, "one"),
        (KeyCode::Down, "two"),
        (KeyCode::Down, ""),
    ] {
        press(&mut app, key);
        assert_eq!(app.editor.text(), text, "{key}");
    }
    write(&mut app, "mine");
    press(&mut app, KeyCode::Up);
    assert_eq!(app.editor.text(), "mine", "what is being written is not replaced");
}

#[test]
fn help_closes_with_any_key_and_takes_it() {
    let mut app = chat();
    press(&mut app, KeyCode::F(1));
    assert!(matches!(app.overlay, Some(Overlay::Help(0))));
    press(&mut app, KeyCode::Char('x'));
    assert!(app.overlay.is_none() && app.editor.is_empty());
}

#[test]
fn keys_that_are_let_go_mean_nothing() {
    let mut app = chat();
    let mut key = KeyEvent::new(KeyCode::Char('x'), KeyModifiers::NONE);
    key.kind = crossterm::event::KeyEventKind::Release;
    app.handle(Event::Key(key));
    assert!(app.editor.is_empty());
}
