//! Sessions: making, listing, reading and switching them.

use agentloop_client::v1::Session;
use crossterm::event::{KeyCode, KeyEvent};

use super::{App, Command, Current, Overlay};
use crate::{
    chat::{
        event::Opened,
        transcript::{Tone, Transcript},
    },
    terminal::text::tame,
};

/// The list of sessions, to pick one of.
#[derive(Debug, Default)]
pub(crate) struct Picker {
    /// Absent while they are asked for.
    pub(crate) sessions: Option<Result<Vec<Session>, String>>,
    /// Which line: the first one makes a new session.
    pub(crate) at: usize,
}

/// What a key in the list led to.
#[derive(Debug, PartialEq)]
enum Picked {
    Nothing,
    New,
    Session(String),
    Closed,
}

impl App {
    /// Begins a new session. The server makes it with its first run.
    pub(super) fn new_session(&mut self) -> Vec<Command> {
        self.shows(Current::default());
        vec![Command::Unfollow]
    }

    pub(super) fn open(&mut self, session_id: &str) -> Vec<Command> {
        self.shows(Current { id: Some(session_id.to_owned()), opening: true, ..Current::default() });
        vec![Command::Unfollow, Command::Open(session_id.to_owned())]
    }

    /// A run that was followed goes on without us.
    fn shows(&mut self, session: Current) {
        self.session = session;
        self.transcript = Transcript::default();
        self.say_notes();
        self.live = None;
        self.queue.clear();
        self.past.clear();
        self.on_their_way.clear();
        self.cards.clear();
        self.focus = super::Focus::Editor;
        self.overlay = None;
        self.unsent = None;
        self.usage = agentloop_client::v1::Usage::default();
        self.scroll_to_end();
    }

    pub(super) fn opened(&mut self, opened: &Opened) -> Vec<Command> {
        let Opened { session, entries } = opened;
        if !self.session.opening || self.session.id.as_ref() != Some(&session.session_id) {
            return Vec::new();
        }
        self.session.opening = false;
        self.session.title = tame(&session.title);
        if entries.first().is_some_and(|first| first.entry_no > 1) {
            self.transcript.note(Tone::Quiet, "… earlier messages are not shown");
        }
        // What the live run adds comes with its events.
        for entry in entries.iter().filter(|entry| !is_of(&entry.run_id, &session.live_run_id)) {
            self.transcript.entry(entry);
        }
        let mut commands = Vec::new();
        if !session.live_run_id.is_empty() {
            commands = self.join(&session.live_run_id);
            commands.push(Command::ListWaiting(session.session_id.clone()));
        }
        commands.extend(self.send_early());
        commands
    }

    /// Sends what was sent before the session was read. What is being typed stays.
    fn send_early(&mut self) -> Vec<Command> {
        let mut commands = Vec::new();
        for (text, busy) in std::mem::take(&mut self.session.early) {
            let typed = self.editor.text();
            self.editor.set(&text);
            commands.extend(self.send(busy));
            self.editor.set(&typed);
        }
        commands
    }

    /// What was sent meanwhile is given back: it was meant for that session.
    pub(super) fn not_opened(&mut self, why: &str) -> Vec<Command> {
        if self.session.opening {
            let current = std::mem::take(&mut self.session);
            let early = current.early.into_iter().map(|(text, _)| text);
            let texts: Vec<String> =
                early.chain([self.editor.text()]).filter(|text| !text.is_empty()).collect();
            self.editor.set(&texts.join("\n"));
            self.transcript.note(Tone::Bad, why);
        }
        Vec::new()
    }

    pub(super) fn pick_session(&mut self) -> Vec<Command> {
        self.overlay = Some(Overlay::Sessions(Picker::default()));
        vec![Command::ListSessions]
    }

    pub(super) fn listed(&mut self, listed: Result<Vec<Session>, String>) -> Vec<Command> {
        if let Some(Overlay::Sessions(picker)) = &mut self.overlay {
            picker.sessions = Some(listed);
            picker.at = picker.at.min(picker.lines() - 1);
        }
        Vec::new()
    }

    pub(super) fn picker_key(&mut self, key: KeyEvent) -> Vec<Command> {
        let Some(Overlay::Sessions(picker)) = &mut self.overlay else { return Vec::new() };
        match picker.key(key) {
            Picked::Nothing => Vec::new(),
            Picked::New => self.new_session(),
            Picked::Session(id) => self.open(&id),
            Picked::Closed => {
                self.overlay = None;
                Vec::new()
            }
        }
    }
}

impl Picker {
    /// The sessions, as far as they are known.
    pub(crate) fn listed(&self) -> &[Session] {
        match &self.sessions {
            Some(Ok(sessions)) => sessions,
            Some(Err(_)) | None => &[],
        }
    }

    /// One for each session, and one for a new one.
    fn lines(&self) -> usize {
        self.listed().len() + 1
    }

    fn key(&mut self, key: KeyEvent) -> Picked {
        const PAGE: usize = 10;
        let last = self.lines() - 1;
        match key.code {
            KeyCode::Down => self.at = if self.at == last { 0 } else { self.at + 1 },
            KeyCode::Up => self.at = self.at.checked_sub(1).unwrap_or(last),
            KeyCode::PageDown => self.at = (self.at + PAGE).min(last),
            KeyCode::PageUp => self.at = self.at.saturating_sub(PAGE),
            KeyCode::Home => self.at = 0,
            KeyCode::End => self.at = last,
            KeyCode::Esc | KeyCode::Char('q') => return Picked::Closed,
            KeyCode::Char('n') => return Picked::New,
            KeyCode::Enter => {
                let session = self.at.checked_sub(1).and_then(|at| self.listed().get(at));
                return session.map_or(Picked::New, |session| Picked::Session(session.session_id.clone()));
            }
            _ => {}
        }
        Picked::Nothing
    }
}

fn is_of(run_id: &str, live_run_id: &str) -> bool {
    !live_run_id.is_empty() && run_id == live_run_id
}
