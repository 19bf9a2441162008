//! Long pasted texts in prompts that come back into the editor.

use super::*;

/// A text that is folded when it is pasted, and its mark.
fn long() -> (String, &'static str) {
    ((1..=40).map(|n| format!("line {n}.\n")).collect(), "[pasted text 1: 40 lines, 351 characters]")
}

/// Sends `see` and a long pasted text. Returns the prompt of the run.
fn send_long(app: &mut App) -> String {
    write(app, "see ");
    app.handle(Event::Paste(long().0));
    prompt(&press(app, KeyCode::Enter))
}

fn prompt(sent: &[Command]) -> String {
    match sent {
        [Command::Start(input)] => input.prompt.clone(),
        other => panic!("{other:?}"),
    }
}

/// A session that is opened anew, whose only prompt was this one.
fn reopened(text: &str) -> App {
    let mut app = App::new(options(), Some("s".into())).0;
    let entries = vec![Entry { entry_no: 1, message: Some(said(text)), ..Entry::default() }];
    let opened = OpenedSession { session: session("s", ""), entries, ..OpenedSession::default() };
    app.handle(Event::SessionOpened(Box::new(opened)));
    app
}

#[test]
fn a_recalled_prompt_is_folded_as_it_was_and_sent_whole() {
    let (text, mark) = long();
    let mut app = chat();
    assert_eq!(send_long(&mut app), format!("see {text}"));
    stop_following(&mut app);
    press(&mut app, KeyCode::Up);
    assert_eq!(app.editor.shown(), format!("see {mark}"));
    assert_eq!(prompt(&press(&mut app, KeyCode::Enter)), format!("see {text}"));
}

#[test]
fn a_prompt_that_is_given_back_is_folded_as_it_was() {
    let mut app = chat();
    send_long(&mut app);
    app.handle(Event::RunLost { run_id: "r".into(), error: error("no such agent") });
    assert_eq!(app.editor.shown(), format!("see {}", long().1));
}

#[test]
fn after_a_restart_a_long_prompt_has_its_first_line_and_is_sent_whole() {
    let text = format!("What is this?\n{}", long().0);
    let mut app = reopened(&text);
    press(&mut app, KeyCode::Up);
    assert_eq!(app.editor.shown(), "What is this?\n[earlier text 1: 40 lines, 351 characters]");
    assert_eq!(prompt(&press(&mut app, KeyCode::Enter)), text);
}

#[test]
fn a_prompt_of_many_typed_lines_comes_back_as_it_was() {
    let mut app = reopened("before");
    for n in 1..=12 {
        write(&mut app, &format!("typed {n}"));
        ctrl(&mut app, 'j');
    }
    let typed = app.editor.text();
    press(&mut app, KeyCode::Enter);
    stop_following(&mut app);
    press(&mut app, KeyCode::Up);
    assert_eq!(app.editor.shown(), typed);
}

#[test]
fn tab_unfolds_what_is_before_the_cursor() {
    let (text, _) = long();
    let mut app = reopened(&text);
    press(&mut app, KeyCode::Up);
    press(&mut app, KeyCode::Tab);
    assert_eq!(app.editor.shown(), text);
    press(&mut app, KeyCode::Tab);
    assert_eq!(app.editor.shown(), text, "there is no second mark");
}
