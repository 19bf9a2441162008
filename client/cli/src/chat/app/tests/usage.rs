//! Tokens and cost of a session, over its runs and over a return to it.

use agentloop_client::v1::AssistantMessage;

use super::*;

fn used(input_tokens: u64, output_tokens: u64, cost_micros: u64) -> Usage {
    Usage { input_tokens, output_tokens, cost_micros, ..Usage::default() }
}

fn opened(app: &mut App, live: &str, runs: &[(&str, Usage)]) {
    let usage_of_runs = runs.iter().map(|(run, usage)| ((*run).to_owned(), *usage)).collect();
    let opened = OpenedSession { session: session("s", live), usage_of_runs, ..OpenedSession::default() };
    app.handle(Event::SessionOpened(Box::new(opened)));
}

fn answers(app: &mut App, usage: Usage) {
    let message = AssistantMessage { usage: Some(usage), ..AssistantMessage::default() };
    happens(app, RunStatus::ModelRunning, run_event::Event::AssistantMessage(message));
}

#[test]
fn an_opened_session_begins_with_what_its_runs_used() {
    let mut app = App::new(options(), Some("s".into())).0;
    opened(&mut app, "", &[("a", used(10, 2, 5)), ("b", used(100, 20, 50))]);
    assert_eq!(app.usage.total, used(110, 22, 55));
    send(&mut app, "hi");
    answers(&mut app, used(1, 1, 1));
    answers(&mut app, used(1, 1, 1));
    assert_eq!(app.usage.total, used(112, 24, 57));
}

#[test]
fn a_live_run_counts_once_though_its_events_come_again() {
    let mut app = App::new(options(), Some("s".into())).0;
    opened(&mut app, "r", &[("a", used(10, 2, 5)), ("r", used(7, 7, 7))]);
    assert_eq!(app.usage.total, used(10, 2, 5), "its events tell what it used");
    answers(&mut app, used(7, 7, 7));
    assert_eq!(app.usage.total, used(17, 9, 12));
}

#[test]
fn a_finished_run_counts_with_its_calls_that_have_no_message() {
    let mut app = running();
    answers(&mut app, used(7, 1, 0));
    let finished = RunFinished { usage: Some(used(9, 2, 3)), ..RunFinished::default() };
    happens(&mut app, RunStatus::Completed, run_event::Event::RunFinished(finished));
    assert_eq!(app.usage.total, used(9, 2, 3));
}

#[test]
fn another_session_has_a_sum_of_its_own() {
    let mut app = App::new(options(), Some("s".into())).0;
    opened(&mut app, "", &[("a", used(10, 2, 5))]);
    send(&mut app, "/new");
    assert_eq!(app.usage.total, Usage::default());
    app.open("s");
    opened(&mut app, "", &[("a", used(10, 2, 5))]);
    assert_eq!(app.usage.total, used(10, 2, 5));
}
