//! Keys and pastes in a text field.

use super::*;

fn press(editor: &mut Editor, code: KeyCode, modifiers: KeyModifiers) {
    editor.key(KeyEvent::new(code, modifiers));
}

fn write(editor: &mut Editor, text: &str) {
    text.chars().for_each(|c| press(editor, KeyCode::Char(c), KeyModifiers::NONE));
}

#[test]
fn text_is_written_and_taken_out() {
    let mut editor = Editor::new("hint");
    write(&mut editor, "one");
    press(&mut editor, KeyCode::Char('j'), KeyModifiers::CONTROL);
    write(&mut editor, "two");
    assert_eq!(editor.text(), "one\ntwo");
    assert_eq!((editor.is_on_first_line(), editor.is_on_last_line()), (false, true));
    assert_eq!(editor.take(), "one\ntwo");
    assert!(editor.is_empty());
    assert_eq!(editor.widget().placeholder_text(), "hint");
}

#[test]
fn editing_begins_at_the_end() {
    let mut editor = Editor::holding("a\nbc", "");
    write(&mut editor, "d");
    press(&mut editor, KeyCode::Backspace, KeyModifiers::NONE);
    press(&mut editor, KeyCode::Backspace, KeyModifiers::NONE);
    assert_eq!(editor.text(), "a\nb");
}

#[test]
fn a_pasted_text_is_sanitized() {
    let mut editor = Editor::new("");
    editor.paste("a\r\nb\x1b[2J\rc\u{202e}");
    assert_eq!(editor.text(), "a\nb\nc");
}

#[test]
fn a_long_pasted_text_is_folded_until_it_is_sent() {
    let (long, lines) = ("x".repeat(crate::chat::pastes::BYTES_MAX + 1), "line\n".repeat(20));
    let mut editor = Editor::new("");
    write(&mut editor, "see ");
    editor.paste_folded(&lines);
    write(&mut editor, " and ");
    editor.paste_folded(&long);
    let shown = editor.widget().lines().join("\n");
    assert_eq!(
        shown,
        "see [pasted text 1: 20 lines, 100 characters] and [pasted text 2: 1 lines, 1001 characters]"
    );
    assert_eq!(editor.text(), format!("see {lines} and {long}"));
    press(&mut editor, KeyCode::Backspace, KeyModifiers::NONE);
    assert_eq!(editor.text(), format!("see {lines} and "), "a mark is deleted as one character");
    editor.paste_folded("short");
    assert_eq!(editor.take(), format!("see {lines} and short"));
    assert_eq!((editor.text(), editor.is_empty()), (String::new(), true));
}

#[test]
fn a_text_that_comes_back_is_folded_as_it_was() {
    let lines = "line\n".repeat(20);
    let mut editor = Editor::new("hint");
    write(&mut editor, "see ");
    editor.paste_folded(&lines);
    let (shown, sent) = (editor.shown(), editor.take());
    assert_eq!((editor.shown().as_str(), editor.widget().placeholder_text()), ("", "hint"));
    editor.set(&sent);
    assert_eq!((editor.shown(), editor.text()), (shown.clone(), sent.clone()));
    editor.set_earlier(&sent);
    assert_eq!(editor.shown(), shown);

    let mut restarted = Editor::new("");
    restarted.set_earlier(&sent);
    assert_eq!(restarted.shown(), "see line\n[earlier text 1: 19 lines, 95 characters]");
    write(&mut restarted, "!");
    assert_eq!(restarted.take(), format!("{sent}!"));
    restarted.set(&sent);
    assert_eq!(restarted.shown(), sent, "what was typed here is not folded");
}

#[test]
fn a_mark_before_the_cursor_is_unfolded() {
    let lines = "line\n".repeat(20);
    let mut editor = Editor::new("");
    assert!(!editor.unfold());
    editor.paste_folded(&lines);
    write(&mut editor, "!");
    assert!(!editor.unfold(), "the mark is not before the cursor");
    press(&mut editor, KeyCode::Backspace, KeyModifiers::NONE);
    assert!(editor.unfold());
    assert_eq!((editor.shown(), editor.text()), (lines.clone(), lines));
}

/// A field with `see MARK!`, whose mark stands for this text, and the cursor at this column.
fn marked(text: &str, column: usize) -> Editor {
    let mut editor = Editor::new("");
    write(&mut editor, "see ");
    editor.paste_folded(text);
    write(&mut editor, "!");
    press(&mut editor, KeyCode::Home, KeyModifiers::NONE);
    (0..column).for_each(|_| editor.area.move_cursor(CursorMove::Forward));
    editor
}

#[test]
fn the_cursor_jumps_over_a_mark() {
    let lines = "line\n".repeat(20);
    let end = 4 + "[pasted text 1: 20 lines, 100 characters]".len();
    let column = |editor: &Editor| editor.area.cursor().1;
    for (key, modifiers, from, to) in [
        (KeyCode::Right, KeyModifiers::NONE, 4, end),
        (KeyCode::Left, KeyModifiers::NONE, end, 4),
        (KeyCode::Right, KeyModifiers::CONTROL, 4, end),
        (KeyCode::Left, KeyModifiers::CONTROL, end, 4),
        (KeyCode::Char('f'), KeyModifiers::CONTROL, 4, end),
        (KeyCode::Char('b'), KeyModifiers::ALT, end, 4),
        (KeyCode::Right, KeyModifiers::SHIFT, 4, end),
        (KeyCode::Home, KeyModifiers::NONE, end, 0),
        (KeyCode::End, KeyModifiers::NONE, 4, end + 1),
    ] {
        let mut editor = marked(&lines, from);
        press(&mut editor, key, modifiers);
        assert_eq!(column(&editor), to, "{key:?} {modifiers:?} from {from}");
        write(&mut editor, "x");
        assert!(editor.text().contains(&lines) || modifiers.contains(KeyModifiers::SHIFT), "{key:?}");
    }
    // From another line, the cursor goes to the end that is nearer.
    for (from, to) in [(8, 4), (end - 3, end)] {
        let mut editor = marked(&lines, end + 1);
        press(&mut editor, KeyCode::Char('j'), KeyModifiers::CONTROL);
        write(&mut editor, &"y".repeat(from));
        press(&mut editor, KeyCode::Up, KeyModifiers::NONE);
        assert_eq!(column(&editor), to, "above column {from}");
    }
}

#[test]
fn a_mark_is_deleted_whole_and_comes_back() {
    let lines = "line\n".repeat(20);
    let end = 4 + "[pasted text 1: 20 lines, 100 characters]".len();
    for (key, modifiers, from, rest) in [
        (KeyCode::Backspace, KeyModifiers::NONE, end, "see !"),
        (KeyCode::Char('h'), KeyModifiers::CONTROL, end, "see !"),
        (KeyCode::Backspace, KeyModifiers::ALT, end, "see !"),
        (KeyCode::Char('w'), KeyModifiers::CONTROL, end, "see !"),
        (KeyCode::Delete, KeyModifiers::NONE, 4, "see !"),
        (KeyCode::Char('d'), KeyModifiers::CONTROL, 4, "see !"),
        (KeyCode::Char('d'), KeyModifiers::ALT, 4, "see !"),
        (KeyCode::Char('k'), KeyModifiers::CONTROL, 4, "see "),
        (KeyCode::Char('u'), KeyModifiers::CONTROL, end, "!"),
    ] {
        let mut editor = marked(&lines, from);
        let (shown, text) = (editor.shown(), editor.text());
        press(&mut editor, key, modifiers);
        assert_eq!((editor.shown().as_str(), editor.text().as_str()), (rest, rest), "{key:?} {modifiers:?}");
        press(&mut editor, KeyCode::Char('z'), KeyModifiers::CONTROL);
        assert_eq!((editor.shown(), editor.text()), (shown, text), "{key:?} {modifiers:?} was taken back");
    }
}

#[test]
fn a_selection_has_marks_as_a_whole() {
    let lines = "line\n".repeat(20);
    let mut editor = marked(&lines, 3);
    for _ in 0..2 {
        press(&mut editor, KeyCode::Right, KeyModifiers::SHIFT);
    }
    press(&mut editor, KeyCode::Char('x'), KeyModifiers::CONTROL);
    assert_eq!(editor.text(), "see!");
    for _ in 0..2 {
        press(&mut editor, KeyCode::Char('y'), KeyModifiers::CONTROL);
    }
    assert_eq!(editor.text(), format!("see {lines} {lines}!"), "each mark stands for the text");
}

#[test]
fn a_text_has_a_bound() {
    let mut editor = Editor::new("");
    editor.paste(&"ä".repeat(BYTES_MAX));
    write(&mut editor, "x");
    assert!(editor.text().len() <= BYTES_MAX, "{}", editor.text().len());
}

#[test]
fn rows_are_counted_as_they_are_wrapped() {
    assert_eq!(Editor::holding("", "").rows(10), 1);
    assert_eq!(Editor::holding("aaaa bbbb", "").rows(6), 2);
    assert_eq!(Editor::holding("a\nb\n", "").rows(6), 3);
}
