//! The cards of questions.

use super::*;

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
fn no_label_loses_letters_on_a_narrow_screen() {
    let mut app = running();
    asks(&mut app, approval("{}"));
    let rows = screen(&mut app, 40, 24);
    for choice in crate::chat::card::Card::new(approval("{}")).choices() {
        let row = format!("│ {}  {} ", choice.letter(), choice.label(HumanRequestKind::Approve));
        assert!(rows.iter().any(|shown| shown.starts_with(&row)), "{row} in {rows:#?}");
    }

    let label = "the last one of these words stands on a line of its own";
    let options =
        [label, "short"].map(|label| SelectOption { label: label.into(), ..SelectOption::default() });
    let mut app = running();
    let kind = HumanRequestKind::Select.into();
    asks(&mut app, HumanRequest { kind, options: options.to_vec(), ..HumanRequest::default() });
    let shown = screen(&mut app, 40, 24).join("\n");
    assert!(
        shown.contains("\n    the last one of these words stands\n    on a line of its own\n"),
        "{shown}"
    );
    // Without room for all rows, the picked option is there from its first row on.
    press(&mut app, KeyCode::Down);
    let low = screen(&mut app, 24, 5).join("\n");
    assert!(low.contains(" →  the last one of"), "{low}");
    press(&mut app, KeyCode::Down);
    let low = screen(&mut app, 24, 5).join("\n");
    assert!(low.contains(" →  short"), "{low}");
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

/// The text of a card on a narrow screen, without its borders. Words that the screen cuts off are missing in it.
fn narrow(app: &mut App) -> String {
    let rows = screen(app, 40, 24);
    rows.iter().map(|row| row.trim_matches(['│', ' '])).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_narrow_card_names_every_key() {
    let asked = |request: HumanRequest| {
        let mut app = running();
        asks(&mut app, request);
        app
    };
    let of = |kind: HumanRequestKind| HumanRequest {
        kind: kind.into(),
        options: vec![SelectOption { id: "r".into(), label: "red".into() }],
        ..HumanRequest::default()
    };
    let several = HumanRequest { multiple: true, ..of(HumanRequestKind::Select) };
    for (request, keys) in [
        (approval("{}"), "one letter or ↑↓ picks, Enter confirms, Esc puts it aside"),
        (of(HumanRequestKind::Select), "↑↓ picks, Enter answers, ctrl-X declines, Esc puts it aside"),
        (several, "Space marks, Enter answers, ctrl-X declines, Esc puts it aside"),
        (of(HumanRequestKind::Prompt), "Enter answers, ctrl-X declines, Esc puts it aside"),
        (of(HumanRequestKind::Url), "y or n picks, Enter answers, ctrl-X declines, Esc puts it aside"),
    ] {
        let shown = narrow(&mut asked(request));
        assert!(shown.contains(keys), "{keys}: {shown}");
    }
    let mut app = asked(HumanRequest { tool: "send_email".into(), ..approval("{}") });
    press(&mut app, KeyCode::Char('r'));
    press(&mut app, KeyCode::Enter);
    let keys = "Tab: how long, ctrl-R: narrower or wider, Enter decides, Esc goes back";
    let shown = narrow(&mut app);
    assert!(shown.contains(keys), "{shown}");
}

#[test]
fn a_question_put_aside_says_how_to_come_back() {
    let mut app = running();
    asks(&mut app, approval("{}"));
    press(&mut app, KeyCode::Esc);
    sees(&mut app, &["may this run? · Tab: answer"]);
}
