//! The windows on small screens.

use super::*;

#[test]
fn the_keys_are_wrapped_and_scrolled_on_a_small_screen() {
    let mut app = chat();
    screen(&mut app, 40, 15);
    press(&mut app, KeyCode::F(1));
    let mut seen = Vec::new();
    for _ in 0..6 {
        let rows = screen(&mut app, 40, 15);
        assert!(rows[0].contains("PageDown for more"), "{rows:#?}");
        seen.extend(rows.iter().map(|row| row.trim_matches(['│', ' ']).to_owned()));
        press(&mut app, KeyCode::PageDown);
    }
    for line in ["Enter", "send; while a run is under way: tell", "F1", "this help"] {
        assert!(seen.iter().any(|row| row == line), "{line} in {seen:#?}");
    }
    press(&mut app, KeyCode::Up);
    assert!(app.overlay.is_some(), "the arrows scroll");
    assert!(screen(&mut app, 80, 24).join("\n").contains(" keys ─"), "a larger screen has all of them");
    press(&mut app, KeyCode::Esc);
    assert!(app.overlay.is_none());
}

#[test]
fn a_narrow_list_of_sessions_keeps_what_they_are_about() {
    let mut app = chat();
    ctrl(&mut app, 'o');
    let session = Session { session_id: "s-1".into(), entry_count: 7, ..Session::default() };
    let overview = SessionOverview {
        session,
        about: "the ferry to Bergen".into(),
        agent: "helper".into(),
        state: "tool running".into(),
    };
    app.handle(Event::Sessions(Ok(vec![overview])));
    let narrow = |app: &mut App| screen(app, 40, 15).join("\n");
    assert!(narrow(&mut app).contains("the ferry to Bergen"));
    assert!(narrow(&mut app).contains("sessions: type to filter, Esc closes"), "{}", narrow(&mut app));
    assert!(!narrow(&mut app).contains("tool running"), "a new session is picked");
    press(&mut app, KeyCode::Down);
    assert!(narrow(&mut app).contains("│tool running, helper, 7 messages"), "{}", narrow(&mut app));
    let wide = screen(&mut app, 80, 24).join("\n");
    assert!(wide.contains("7  tool running    helper      the ferry to Bergen"), "{wide}");
}

#[test]
fn what_has_no_room_in_a_narrow_window_is_wrapped_or_cut_with_a_sign() {
    let mut app = chat();
    ctrl(&mut app, 'q');
    let queue = screen(&mut app, 40, 15).join("\n");
    assert!(queue.contains("queue: d removes, e edits, Esc ends"), "{queue}");
    assert!(queue.contains("│sent while a run is live is queued"), "{queue}");
    press(&mut app, KeyCode::Esc);
    app.handle(Event::Paste("/model".into()));
    press(&mut app, KeyCode::Enter);
    let provider = ModelProvider { name: "demo".into(), models: vec!["demo/a-long-name-of-a-model".into()] };
    app.handle(Event::Providers(vec![provider]));
    let models = screen(&mut app, 40, 15).join("\n");
    assert!(models.contains("models: Enter takes one, Esc closes"), "{models}");
    assert!(models.contains("demo/a-long-name-of-a-model"), "{models}");
    assert!(models.contains("demo/  another model of this provid…"), "{models}");
    press(&mut app, KeyCode::Esc);
    app.handle(Event::Paste("/rules".into()));
    press(&mut app, KeyCode::Enter);
    let rule = PolicyRule { tool: "send_email_to_everybody".into(), ..PolicyRule::default() };
    let remembered =
        RememberedRule { rule: Some(rule), decided_by: "tester".into(), ..RememberedRule::default() };
    app.handle(Event::Rules(Ok(vec![remembered])));
    let rules = screen(&mut app, 40, 15).join("\n");
    assert!(rules.contains("…│") && rules.contains("(by tester)"), "{rules}");
}
