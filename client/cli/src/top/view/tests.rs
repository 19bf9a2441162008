//! The screen at several sizes.

use agentloop_client::v1::{Host, HumanRequest, RunError, ToolDeclaration, WaitingOn};

use super::{super::state::TopEvent, *};

/// The screen of this size, without the spaces at the ends of its lines.
fn screen(top: &Top, columns: u16, rows: u16) -> Vec<String> {
    let area = Rect::new(0, 0, columns, rows);
    let mut buf = Buffer::empty(area);
    draw(top, SystemTime::UNIX_EPOCH, area, &mut buf);
    let line = |row: u16| (0..columns).map(|column| buf[(column, row)].symbol()).collect::<String>();
    (0..rows).map(|row| line(row).trim_end().to_owned()).collect()
}

fn busy() -> Top {
    let mut top = Top { connected: true, ..Top::default() };
    for number in 0..3 {
        let run = Run {
            run_id: format!("run-{number}"),
            model: "local/m".into(),
            status: RunStatus::ModelRunning.into(),
            preview: "How is Rome?".into(),
            ..Run::default()
        };
        top.handle_event(TopEvent::Run(Box::new(run)));
    }
    let declaration = Some(ToolDeclaration { name: "mail".into(), ..ToolDeclaration::default() });
    let tools = vec![Tool { declaration, calls_queued: 2, ..Tool::default() }];
    let health = HostHealth::Connected.into();
    let host = Host { host_id: "h".into(), tools: vec!["mail".into()], health, ..Host::default() };
    top.handle_event(TopEvent::Lists { hosts: vec![host], tools, questions: vec![] });
    top
}

#[test]
fn all_lists_are_on_a_screen_of_the_usual_size() {
    let lines = screen(&busy(), 80, 24);
    assert!(lines[0].contains("open runs: 3, live: 3"), "{lines:#?}");
    assert_eq!(lines[1], "since it was opened: 0 tokens in, 0 out", "{lines:#?}");
    assert!(lines[3].starts_with("run-") && lines[5].starts_with("run-"), "{lines:#?}");
    assert!(lines.iter().any(|line| line.starts_with("local/m") && line.contains("    3 ")), "{lines:#?}");
    assert!(lines.iter().any(|line| line.ends_with("mail (2 wait)")), "{lines:#?}");
    assert!(lines[23].starts_with("↑↓ select"), "{lines:#?}");
}

#[test]
fn a_wide_screen_has_all_of_the_summary_in_one_line() {
    let lines = screen(&busy(), 120, 24);
    assert!(lines[0].ends_with("   since it was opened: 0 tokens in, 0 out"), "{lines:#?}");
    assert!(lines[2].starts_with("run-"), "{lines:#?}");
}

#[test]
fn the_first_minute_is_not_called_the_last_one() {
    for (seconds, words) in [(59, "since it was opened"), (60, "last minute")] {
        let top = Top { now: Duration::from_secs(seconds), ..busy() };
        assert_eq!(screen(&top, 80, 24)[1], format!("{words}: 0 tokens in, 0 out"));
    }
}

#[test]
fn a_small_screen_keeps_the_runs_and_the_keys() {
    for (columns, rows) in [(40, 8), (40, 6), (20, 4), (10, 2), (1, 1), (0, 0)] {
        let lines = screen(&busy(), columns, rows);
        if rows >= 4 {
            assert!(lines[2].starts_with("run-"), "{columns}x{rows}: {lines:#?}");
            assert!(lines.last().is_some_and(|line| line.ends_with("q leave")), "{lines:#?}");
        }
    }
    assert!(!screen(&busy(), 40, 6).iter().any(|line| line.starts_with("HOST")));
}

#[test]
fn the_trouble_of_a_model_is_read_to_its_end() {
    let message =
        "The account has used all of its tokens: wait, or raise its limit at the provider of models";
    let waiting_on = |message: &str| {
        let last_error = RunError { message: message.into(), ..RunError::default() };
        Some(WaitingOn { last_error: Some(last_error), ..WaitingOn::default() })
    };
    let run = |message: &str| Run {
        run_id: "run-0".into(),
        model: "local/m".into(),
        status: RunStatus::BackingOff.into(),
        waiting_on: waiting_on(message),
        ..Run::default()
    };
    let mut top = Top { connected: true, ..Top::default() };
    top.handle_event(TopEvent::Run(Box::new(run(message))));
    let lines = screen(&top, 80, 24);
    let at = lines.iter().position(|line| line.starts_with("local/m")).expect("its row");
    assert_eq!(
        &lines[at + 1..at + 3],
        [
            "  The account has used all of its tokens: wait, or raise its limit at the",
            "  provider of models [unspecified]"
        ],
        "{lines:#?}"
    );
    let wide = screen(&top, 200, 24);
    let ends = format!("{message} [unspecified]");
    assert!(wide.iter().any(|line| line.starts_with("local/m") && line.ends_with(&ends)), "{wide:#?}");

    // A text without end takes no more lines than the list has room for; the run itself has all of it.
    let long = run(&format!("{} the end", message.repeat(5)));
    top.handle_event(TopEvent::Run(Box::new(long.clone())));
    let lines = screen(&top, 80, 24);
    assert!(lines.iter().any(|line| line.starts_with("  … Enter on a run shows")), "{lines:#?}");
    assert!(!lines.iter().any(|line| line.contains("end [unspecified]")), "{lines:#?}");
    top.handle_event(TopEvent::Shown(Box::new(long)));
    let lines = screen(&top, 80, 24);
    assert!(lines.iter().any(|line| line.contains("end [unspecified]")), "{lines:#?}");
}

#[test]
fn the_status_of_a_host_has_its_own_line_where_it_does_not_fit_beside() {
    let status_text = "three of its four workers are being replaced by newer ones";
    let host = Host { host_id: "h".into(), status_text: status_text.into(), ..Host::default() };
    let mut top = Top { connected: true, ..Top::default() };
    top.handle_event(TopEvent::Lists { hosts: vec![host], tools: vec![], questions: vec![] });
    assert!(screen(&top, 80, 24).contains(&format!("  {status_text}")));
    assert!(screen(&top, 140, 24).iter().any(|line| line.starts_with("h ") && line.ends_with(status_text)));
}

#[test]
fn a_note_is_read_to_its_end_on_a_narrow_screen() {
    let id = "0193d3c4-8f1e-7c55-b1a2-0f5e6d7c8b9a:1.0:0";
    let note = format!("no room for all of it: agentloop approve {id} answers it");
    let top = Top { note, ..busy() };
    for rows in [24, 8, 6] {
        let lines = screen(&top, 44, rows);
        assert!(lines.iter().any(|line| line.contains(id)), "{lines:#?}");
        let heading = lines.iter().position(|line| line.starts_with("RUN ")).expect("a heading");
        assert!(heading < 3 && lines[heading + 1].starts_with("run-"), "{lines:#?}");
    }
}

#[test]
fn a_question_without_room_says_so() {
    let mut top = busy();
    let request =
        HumanRequest { tool: "mail".into(), kind: HumanRequestKind::Approve.into(), ..Default::default() };
    let size = Size { columns: 80, rows: 24 };
    top.dialog = Dialog::for_question(&request, size);
    assert!(screen(&top, 80, 24).iter().any(|line| line.contains("May mail run")));
    assert!(screen(&top, 80, 3).iter().any(|line| line.contains("no room for all of it")));
}

#[test]
fn a_narrow_screen_has_every_list_with_all_of_its_facts() {
    let mut top = busy();
    let request = HumanRequest {
        run_id: "run-1".into(),
        tool: "mail".into(),
        kind: HumanRequestKind::Approve.into(),
        ..HumanRequest::default()
    };
    let (hosts, tools) = (top.hosts.clone(), top.tools.clone());
    top.handle_event(TopEvent::Lists { hosts, tools, questions: vec![request] });
    let lines = screen(&top, 40, 20);
    for line in [
        "RUN      FOR  WAITS FOR / PROMPT",
        "run-0         model_running \"How is Rom…",
        "run-1         may mail run?",
        "local/m",
        "  3 calls, 0 retrying",
        "  a minute: 0 in, 0 out",
        "h  connected  0 calls, 0 free",
        "  mail (2 wait)",
    ] {
        assert!(lines.iter().any(|shown| shown == line), "{line:?} in {lines:#?}");
    }
}
