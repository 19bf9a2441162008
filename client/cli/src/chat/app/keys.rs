//! Handles keys and pasted text.

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::{App, Command, Focus, Overlay, queue::BusyMode};
use crate::{chat::layout::help, exit::Exit};

impl App {
    pub(super) fn key(&mut self, key: KeyEvent) -> Vec<Command> {
        if key.kind == KeyEventKind::Release {
            return Vec::new();
        }
        self.hint = None;
        let ctrl = key.modifiers.contains(KeyModifiers::CONTROL);
        if ctrl && key.code == KeyCode::Char('c') {
            return self.interrupted();
        }
        self.interrupted_once = false;
        if self.asks_about_queue {
            return self.abort_choice_key(key);
        }
        match (&self.overlay, key.code) {
            (_, KeyCode::Char('d')) if ctrl && self.editor.is_empty() => {
                vec![Command::Quit(Exit::Completed)]
            }
            (Some(Overlay::Sessions(_)), _) => self.picker_key(key),
            (Some(Overlay::Queue(_)), _) => self.queue_key(key),
            (Some(Overlay::Rules(_)), _) => self.rules_key(key),
            (Some(Overlay::Choice(_)), _) => self.choice_key(key),
            (Some(Overlay::Help(_)), code) => self.help_key(code),
            (None, _) => self.global_key(key),
        }
    }

    pub(super) fn paste(&mut self, text: &str) -> Vec<Command> {
        match (&self.overlay, self.focus, self.cards.front_mut()) {
            (Some(_), ..) => {}
            (None, Focus::Card, Some(card)) => {
                let outcome = card.paste(text);
                return self.handle_card(outcome);
            }
            (None, ..) => self.editor.paste_folded(text),
        }
        Vec::new()
    }

    /// Handles ctrl-C: closes a window, then aborts the run or empties the editor. A second one quits.
    fn interrupted(&mut self) -> Vec<Command> {
        if std::mem::replace(&mut self.interrupted_once, true) {
            let exit = if self.live.is_some() { Exit::Interrupted } else { Exit::Completed };
            return vec![Command::Quit(exit)];
        }
        self.overlay = None;
        if self.live.as_ref().is_some_and(|live| !live.aborting) {
            if !self.queue.runs.is_empty() {
                self.ask_about_queue();
                return Vec::new();
            }
            self.hint = Some("aborting the run; ctrl-C again leaves at once".into());
            return self.abort();
        }
        if !self.editor.is_empty() {
            self.editor.set("");
        }
        self.hint = Some("ctrl-C again, or ctrl-D, leaves".into());
        Vec::new()
    }

    /// Scrolls the list of keys where it is longer than the screen. Any other key closes it.
    fn help_key(&mut self, code: KeyCode) -> Vec<Command> {
        let Some(Overlay::Help(at)) = &mut self.overlay else { return Vec::new() };
        let (last, page) = help::scroll_range(self.size);
        match code {
            KeyCode::Down if last > 0 => *at = (*at + 1).min(last),
            KeyCode::PageDown if last > 0 => *at = (*at + page).min(last),
            KeyCode::Up if last > 0 => *at = at.saturating_sub(1),
            KeyCode::PageUp if last > 0 => *at = at.saturating_sub(page),
            _ => self.overlay = None,
        }
        Vec::new()
    }

    /// Handles keys that work in the editor and in a card.
    fn global_key(&mut self, key: KeyEvent) -> Vec<Command> {
        let ctrl = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::F(1) => self.overlay = Some(Overlay::Help(0)),
            KeyCode::PageUp if self.scroll_question(-1) => {}
            KeyCode::PageDown if self.scroll_question(1) => {}
            KeyCode::PageUp => self.scroll_pages(-1),
            KeyCode::PageDown => self.scroll_pages(1),
            KeyCode::Up if key.modifiers.contains(KeyModifiers::SHIFT) => self.scroll_lines(-1),
            KeyCode::Down if key.modifiers.contains(KeyModifiers::SHIFT) => self.scroll_lines(1),
            KeyCode::Home if ctrl => self.scroll_to_start(),
            KeyCode::End if ctrl => self.scroll_to_end(),
            KeyCode::Char('t') if ctrl => self.details = !self.details,
            KeyCode::Char('o') if ctrl => return self.pick_session(),
            KeyCode::Char('q') if ctrl => return self.show_queue(),
            KeyCode::Char('n') if ctrl => return self.new_session(),
            KeyCode::Char('g') if ctrl => return self.resume(),
            _ => return self.focused_key(key),
        }
        Vec::new()
    }

    fn focused_key(&mut self, key: KeyEvent) -> Vec<Command> {
        self.note_question();
        if self.focus == Focus::Card
            && let Some(card) = self.cards.front_mut()
        {
            let outcome = card.key(key, &self.options.who);
            return self.handle_card(outcome);
        }
        self.editor_key(key)
    }

    fn editor_key(&mut self, key: KeyEvent) -> Vec<Command> {
        match key.code {
            KeyCode::Enter if key.modifiers == KeyModifiers::NONE => return self.send(BusyMode::Queue),
            KeyCode::Char('s') if key.modifiers == KeyModifiers::CONTROL => {
                return self.send(BusyMode::Steer);
            }
            KeyCode::Tab => {
                if !self.cards.is_empty() {
                    self.focus = Focus::Card;
                } else if self.editor.unfold() {
                    self.earlier.recalled = None;
                }
            }
            KeyCode::Up if self.editor.is_on_first_line() && self.can_recall() => self.recall(true),
            KeyCode::Down if self.editor.is_on_last_line() && self.earlier.recalled.is_some() => {
                self.recall(false)
            }
            KeyCode::Esc => {}
            _ => {
                self.earlier.recalled = None;
                self.editor.key(key);
            }
        }
        Vec::new()
    }

    /// True if an earlier prompt may replace the editor's text, which must be empty or a recalled prompt.
    fn can_recall(&self) -> bool {
        !self.earlier.prompts.is_empty() && (self.editor.is_empty() || self.earlier.recalled.is_some())
    }

    fn recall(&mut self, earlier: bool) {
        let at = match (self.earlier.recalled, earlier) {
            (None, _) => Some(self.earlier.prompts.len() - 1),
            (Some(at), true) => Some(at.saturating_sub(1)),
            (Some(at), false) => (at + 1 < self.earlier.prompts.len()).then_some(at + 1),
        };
        self.earlier.recalled = at;
        match at {
            Some(at) if at < self.earlier.read => self.editor.set_earlier(&self.earlier.prompts[at]),
            Some(at) => self.editor.set(&self.earlier.prompts[at]),
            None => self.editor.set(""),
        }
    }
}
