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
    assert!(screen(&mut app, 40, 15).join("\n").contains("the ferry to Bergen"));
    let wide = screen(&mut app, 80, 24).join("\n");
    assert!(wide.contains("7  tool running    helper      the ferry to Bergen"), "{wide}");
}
