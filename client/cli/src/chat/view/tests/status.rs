//! The status line, and the hint in its place.

use super::*;

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
fn the_status_does_not_repeat_an_open_question() {
    let mut app = running();
    asks(&mut app, approval("{}"));
    let waiting =
        WaitingOn { kind: WaitKind::Human.into(), what: "a long id".into(), ..WaitingOn::default() };
    let run = Run { run_id: "r".into(), waiting_on: Some(waiting), ..Run::default() };
    app.handle(Event::RunRead(Box::new(run)));
    sees(&mut app, &["waits for your approval  0 tokens in"]);
}

/// The first row of the status on a screen so wide. A narrow one has a second row below it.
fn status_row(app: &mut App, width: u16) -> String {
    let below = if width < 64 { 1 } else { 0 };
    screen(app, width, 24).into_iter().rev().nth(below).expect("there is a row of status")
}

/// A chat with some tokens, in a session of this id and title.
fn used(session_id: &str, title: &str) -> App {
    let mut app = chat();
    app.session.id = Some(session_id.into());
    app.session.title = title.into();
    app.usage.total =
        Usage { input_tokens: 12_345, output_tokens: 678, cost_micros: 12_300, ..Usage::default() };
    app.last_model = Some(("default".into(), "demo/scripted".into()));
    app
}

#[test]
fn a_long_id_is_shortened_to_what_names_it() {
    let mut app = used("0193d3c4-8f1e-7c55-b1a2-0f5e6d7c8b9a", "");
    for (width, row) in [
        (
            130,
            "ready  12345 tokens in, 678 out, cost 0.0123  default · demo/scripted  session 0193d3c4-8f1e-7c55-b1a2-0f5e6d7c8b9a",
        ),
        (
            110,
            "ready  12345 tokens in, 678 out, cost 0.0123  default · demo/scripted  session 0193d3c4-8f1e…",
        ),
        (92, "ready  12345 in, 678 out, cost 0.0123  default · demo/scripted  session 0193d3c4-8f1e…"),
        (80, "ready  12345 in, 678 out, cost 0.0123  default  session 0193d3c4-8f1e…"),
        (65, "ready  12345 in, 678 out, cost 0.0123  session 0193d3c4-8f1e…"),
        (40, "ready  session 0193d3c4-8f1e…"),
    ] {
        assert_eq!(status_row(&mut app, width), row, "{width}");
    }
    assert_eq!(status_row(&mut used("trip", ""), 40), "ready  session trip");
    assert_eq!(
        status_row(&mut used("trip", "A long title of a session"), 40),
        "ready  session A long title of a session"
    );
    assert_eq!(status_row(&mut used("trip", "One\ntwo"), 40), "ready  session One");
}

#[test]
fn a_narrow_screen_has_tokens_cost_and_agent_on_a_row_of_their_own() {
    let mut app = used("trip", "");
    for (width, row) in [
        (63, "12345 in, 678 out, cost 0.0123  default · demo/scripted"),
        (40, "12345 in, 678 out, cost 0.0123  default"),
        (30, "12345 in, 678 out, cost 0.0123"),
        (20, "12345 in, 678 out,…"),
    ] {
        assert_eq!(screen(&mut app, width, 24).last().map(String::as_str), Some(row), "{width}");
    }
    assert_eq!(screen(&mut app, 40, 11).last().map(String::as_str), Some("ready  session trip"), "a low one");
}

#[test]
fn the_reason_of_a_wait_leaves_room_for_the_session() {
    let mut app = running();
    says(&mut app, Delta::Text("x".into()));
    app.session.id = Some("0193d3c4-8f1e-7c55-b1a2-0f5e6d7c8b9a".into());
    let waiting =
        WaitingOn { kind: WaitKind::ToolHost.into(), what: "weather ".repeat(20), ..WaitingOn::default() };
    let run = Run { run_id: "r".into(), waiting_on: Some(waiting), ..Run::default() };
    app.handle(Event::RunRead(Box::new(run)));
    let row = status_row(&mut app, 80);
    assert!(row.starts_with("model running  waits for a tool host for weather"), "{row}");
    assert!(row.ends_with("…  session 0193d3c4-8f1e…"), "{row}");
    assert!(status_row(&mut app, 20).starts_with("model running"));
}

#[test]
fn cuts_count_columns_of_the_screen() {
    for (text, columns, shown) in [
        ("trip", 4, "trip"),
        ("trips", 4, "tri…"),
        ("a trip", 3, "a…"),
        ("天气很好", 8, "天气很好"),
        ("天气很好", 7, "天气很…"),
        ("天气很好", 6, "天气…"),
        ("trip", 1, "…"),
        ("trip", 0, ""),
    ] {
        assert_eq!(crate::terminal::text::cut(text, columns), shown, "{text} in {columns}");
    }
}
