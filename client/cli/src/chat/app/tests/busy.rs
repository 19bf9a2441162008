//! Messages to a busy session, and remembered rules.

use agentloop_client::v1::{BusySessionPolicy, RememberedRule};

use super::*;

/// Sends a text to a busy session. Returns the input that the server gets.
fn send_to_busy(app: &mut App, text: &str, key: KeyEvent) -> RunInput {
    write(app, text);
    let sent = app.handle(Event::Key(key));
    let [Command::SendToBusy(input)] = &sent[..] else { panic!("{sent:?}") };
    assert!(app.editor.is_empty());
    (**input).clone()
}

const ENTER: KeyEvent = KeyEvent::new(KeyCode::Enter, KeyModifiers::NONE);
const CTRL_S: KeyEvent = KeyEvent::new(KeyCode::Char('s'), KeyModifiers::CONTROL);

fn waits(app: &App) -> Vec<(&str, bool)> {
    app.queue.runs.iter().map(|queued| (queued.text.as_str(), queued.accepted)).collect()
}

/// A chat with a live run, whose next ids are `1`, `2` and so on.
fn running_counted() -> App {
    let mut app = running();
    app.options.new_id = || {
        thread_local!(static NEXT: std::cell::Cell<u32> = const { std::cell::Cell::new(0) });
        NEXT.with(|next| next.replace(next.get() + 1) + 1).to_string()
    };
    app
}

#[test]
fn what_is_sent_while_a_run_is_under_way_waits_for_its_turn() {
    let mut app = running_counted();
    let input = send_to_busy(&mut app, "then this", ENTER);
    assert_eq!(input.on_busy_session(), BusySessionPolicy::Enqueue);
    assert_eq!((input.session_id.as_deref(), input.agent.as_deref()), (Some("s"), Some("helper")));
    assert_eq!(waits(&app), [("then this", false)]);
    assert_eq!(app.handle(Event::MessageAccepted { sent_as: "1".into(), by: "1".into() }), []);
    assert_eq!(waits(&app), [("then this", true)]);
    assert_eq!(stop_following(&mut app), [Command::FollowRun("1".into())]);
    assert_eq!((waits(&app), users(&app)), (vec![], vec!["hi".to_owned()]), "its words come with its events");
}

#[test]
fn what_is_taken_after_the_end_of_the_run_is_followed_then() {
    let mut app = running_counted();
    send_to_busy(&mut app, "one", ENTER);
    assert_eq!(stop_following(&mut app), [], "the server may not have it yet");
    let input = send_to_busy(&mut app, "two", ENTER);
    assert_eq!(input.on_busy_session(), BusySessionPolicy::Enqueue, "what waits is not overtaken");
    let accepted = app.handle(Event::MessageAccepted { sent_as: "1".into(), by: "1".into() });
    assert_eq!(accepted, [Command::FollowRun("1".into())]);
    assert_eq!(waits(&app), [("two", false)]);
}

/// A chat with a live run, behind which a prompt is queued.
fn with_a_queue() -> App {
    let mut app = running_counted();
    send_to_busy(&mut app, "then this", ENTER);
    app.handle(Event::MessageAccepted { sent_as: "1".into(), by: "1".into() });
    app
}

const CTRL_C: KeyEvent = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);

fn removes(run_id: &str) -> Command {
    Command::Remove { session_id: "s".into(), run_id: run_id.into() }
}

#[test]
fn ctrl_c_asks_before_the_next_in_the_queue_goes_out() {
    let mut app = with_a_queue();
    let live = app.live.as_ref().expect("a run").run_id.clone();
    assert_eq!(app.handle(Event::Key(CTRL_C)), []);
    assert!(app.hint.as_ref().is_some_and(|hint| hint.contains("queued: 1")), "{:?}", app.hint);
    assert_eq!(press(&mut app, KeyCode::Char('x')), [], "another key is no answer");
    assert!(app.hint.is_some() && app.editor.is_empty());
    assert_eq!(press(&mut app, KeyCode::Char('n')), [Command::Abort(live)]);

    let mut app = with_a_queue();
    app.handle(Event::Key(CTRL_C));
    assert_eq!(press(&mut app, KeyCode::Esc), []);
    write(&mut app, "n");
    assert_eq!(app.editor.text(), "n", "the run goes on, and so does the chat");
}

#[test]
fn ctrl_c_can_take_the_queue_back_first() {
    let mut app = with_a_queue();
    let live = app.live.as_ref().expect("a run").run_id.clone();
    app.handle(Event::Key(CTRL_C));
    assert_eq!(press(&mut app, KeyCode::Char('t')), [removes("1")]);
    let removed = app.handle(Event::RunRemoved { run_id: "1".into(), answer: Ok(()) });
    assert_eq!(removed, [Command::Abort(live)], "not before: the next one would have started");
    assert_eq!((app.editor.text(), waits(&app)), ("then this".to_owned(), vec![]));
}

#[test]
fn an_item_that_is_taken_from_the_queue_comes_back_to_the_editor() {
    let mut app = with_a_queue();
    write(&mut app, "draft");
    app.show_queue();
    assert_eq!(press(&mut app, KeyCode::Char('e')), [removes("1")]);
    assert!(app.overlay.is_none());
    assert_eq!(app.handle(Event::RunRemoved { run_id: "1".into(), answer: Ok(()) }), []);
    assert_eq!(app.editor.text(), "draft\nthen this");
}

#[test]
fn a_run_is_told_what_is_meant_for_it() {
    let mut app = running_counted();
    let input = send_to_busy(&mut app, "by train", CTRL_S);
    assert_eq!(input.on_busy_session(), BusySessionPolicy::Steer);
    assert_eq!(app.handle(Event::MessageAccepted { sent_as: "1".into(), by: "r".into() }), []);
    assert_eq!((waits(&app), app.queue.in_flight.len()), (vec![], 0));
}

#[test]
fn what_comes_too_late_for_a_run_is_one_of_its_own() {
    let mut app = running_counted();
    send_to_busy(&mut app, "by train", CTRL_S);
    assert_eq!(app.handle(Event::MessageAccepted { sent_as: "1".into(), by: "1".into() }), []);
    assert_eq!(stop_following(&mut app), [Command::FollowRun("1".into())]);
}

#[test]
fn what_was_not_taken_stands_in_the_editor_again() {
    let mut app = running_counted();
    send_to_busy(&mut app, "one", ENTER);
    app.handle(Event::MessageRefused { sent_as: "1".into(), error: error("the queue is full") });
    assert_eq!((waits(&app), app.editor.text().as_str()), (vec![], "one"));
    assert_eq!(notes(&app), ["not sent: the queue is full"]);

    let away = RpcError { unreachable: true, ..error("nobody there") };
    press(&mut app, KeyCode::Enter);
    app.handle(Event::MessageRefused { sent_as: "2".into(), error: away });
    let again = press(&mut app, KeyCode::Enter);
    let [Command::SendToBusy(input)] = &again[..] else { panic!("{again:?}") };
    assert_eq!(input.run_id.as_deref(), Some("2"), "it may have arrived");
}

#[test]
fn what_waits_is_listed_and_removed() {
    let mut app = running_counted();
    send_to_busy(&mut app, "one", ENTER);
    assert_eq!(ctrl(&mut app, 'q'), [Command::ListQueue("s".into())]);
    assert_eq!(press(&mut app, KeyCode::Char('d')), [], "the server may not have it yet");
    let waiting = |run_id: &str, text: &str| {
        let run = Run { run_id: run_id.into(), ..Run::default() };
        crate::command::conversation::queue::QueuedRun { run, text: text.into() }
    };
    let answer = Ok(vec![waiting("r", "the live one"), waiting("other", "from elsewhere")]);
    app.handle(Event::QueueListed { session_id: "s".into(), answer });
    assert_eq!(waits(&app), [("from elsewhere", true), ("one", false)]);
    let removed = press(&mut app, KeyCode::Char('d'));
    assert_eq!(removed, [Command::Remove { session_id: "s".into(), run_id: "other".into() }]);
    assert_eq!(press(&mut app, KeyCode::Char('d')), [], "once is enough");
    app.handle(Event::RunRemoved { run_id: "other".into(), answer: Err("too late".into()) });
    assert!(!app.queue.runs[0].removing);
    app.handle(Event::RunRemoved { run_id: "other".into(), answer: Ok(()) });
    assert_eq!(waits(&app), [("one", false)]);
    assert_eq!(notes(&app), ["too late"]);
    let late = Ok(vec![waiting("other", "from elsewhere")]);
    app.handle(Event::QueueListed { session_id: "s".into(), answer: late });
    assert_eq!(waits(&app), [("one", false)], "the list was made before");
}

#[test]
fn rules_are_listed_and_forgotten() {
    let mut app = running();
    assert_eq!(send(&mut app, "/rules"), [Command::ListRules(Some("s".into()))]);
    assert!(app.editor.is_empty());
    let rule = |rule_id: &str| RememberedRule { rule_id: rule_id.into(), ..RememberedRule::default() };
    app.handle(Event::Rules(Ok(vec![rule("a"), rule("b")])));
    press(&mut app, KeyCode::Down);
    assert_eq!(press(&mut app, KeyCode::Char('d')), [Command::DeleteRule("b".into())]);
    app.handle(Event::RuleDeleted { rule_id: "b".into(), answer: Ok(()) });
    assert_eq!(press(&mut app, KeyCode::Delete), [Command::DeleteRule("a".into())]);
    press(&mut app, KeyCode::Esc);
    assert!(app.overlay.is_none());
}
