//! Sessions: creates, lists, opens and switches them.

use std::collections::BTreeSet;

use agentloop_client::v1::{Entry, Role, Session};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::{App, Command, CurrentSession, Overlay};
use crate::{
    chat::{
        event::OpenedSession,
        transcript::{CUT_OFF_NOTE, Tone, Transcript},
    },
    command::conversation::overview::SessionOverview,
    terminal::{format, style::is_unsafe, text::sanitize},
};

/// Bound on the typed words of a filter.
const FILTER_CHARS: usize = 60;

/// The window with the list of sessions.
#[derive(Debug, Default)]
pub(crate) struct SessionPicker {
    /// Absent until the server has answered.
    pub(crate) sessions: Option<Result<Vec<SessionOverview>, String>>,
    /// The typed words. Only sessions that have them are shown.
    pub(crate) filter: String,
    /// Index of the selected line. Without a filter, the first line makes a new session.
    pub(crate) at: usize,
}

/// The effect of a key in the list.
#[derive(Debug, PartialEq)]
enum PickerAction {
    Nothing,
    New,
    Session(String),
    Closed,
}

impl App {
    /// Begins a new session. The server creates it with its first run.
    pub(super) fn new_session(&mut self) -> Vec<Command> {
        self.switch_session(CurrentSession::default());
        vec![Command::Unfollow]
    }

    pub(super) fn open(&mut self, session_id: &str) -> Vec<Command> {
        self.switch_session(CurrentSession {
            id: Some(session_id.to_owned()),
            opening: true,
            watched: true,
            ..CurrentSession::default()
        });
        // It is watched before it is read: a run that begins in between is told.
        let session_id = session_id.to_owned();
        vec![Command::Unfollow, Command::WatchSession(session_id.clone()), Command::OpenSession(session_id)]
    }

    /// Shows another session. A run that was followed goes on without the chat.
    fn switch_session(&mut self, session: CurrentSession) {
        self.session = session;
        self.transcript = Transcript::default();
        self.add_notes();
        self.live = None;
        self.queue = super::SessionQueue::default();
        self.asks_about_queue = false;
        self.cards.clear();
        self.focus = super::Focus::Editor;
        self.overlay = None;
        self.unsent = None;
        self.usage = super::SessionUsage::default();
        self.scroll_to_end();
    }

    pub(super) fn opened(&mut self, opened: &OpenedSession) -> Vec<Command> {
        let OpenedSession { session, entries, usage_of_runs } = opened;
        if !self.session.opening || self.session.id.as_ref() != Some(&session.session_id) {
            return Vec::new();
        }
        self.session.opening = false;
        self.session.title = sanitize(&session.title);
        if entries.first().is_some_and(|first| first.entry_no > 1) {
            self.transcript.note(Tone::Quiet, "… earlier messages are not shown");
        }
        // The entries of the live run come with its events.
        for entry in entries.iter().filter(|entry| !is_of(&entry.run_id, &session.live_run_id)) {
            self.transcript.entry(entry);
        }
        self.transcript.end_open_calls();
        self.remember_prompts(entries);
        // A run that has ended is among the entries.
        self.queue.of_others.retain(|run| !entries.iter().any(|entry| entry.run_id == *run));
        self.transcript.todos(&session.todos);
        self.count_listed(usage_of_runs);
        let mut commands = Vec::new();
        if !session.live_run_id.is_empty() {
            commands = self.join(&session.live_run_id);
            commands.push(Command::ListQueue(session.session_id.clone()));
        }
        commands.extend(self.next_in_queue());
        commands.extend(self.send_early());
        commands
    }

    /// Makes the session's earlier prompts available to Up, so that they are there after a restart, too.
    fn remember_prompts(&mut self, entries: &[Entry]) {
        let messages = entries.iter().filter_map(|entry| entry.message.as_ref());
        let users = messages.filter(|message| message.role() == Role::User);
        let texts =
            users.map(format::text).filter(|text| !text.is_empty() && !text.starts_with(CUT_OFF_NOTE));
        let known: BTreeSet<&String> = self.earlier.prompts.iter().collect();
        let earlier: Vec<String> = texts.filter(|text| !known.contains(text)).collect();
        self.earlier.read += earlier.len();
        self.earlier.prompts.splice(..0, earlier);
        self.earlier.recalled = None;
    }

    /// Sends the prompts that were entered before the session was read. The editor keeps its text.
    fn send_early(&mut self) -> Vec<Command> {
        let mut commands = Vec::new();
        let early = std::mem::take(&mut self.session.sent_early);
        if !early.is_empty() {
            // The hint has come true. It would hide the run's state until the next key.
            self.hint = None;
        }
        for (text, busy) in early {
            let typed = self.editor.text();
            self.editor.set(&text);
            commands.extend(self.send(busy));
            self.editor.set(&typed);
        }
        commands
    }

    /// Handles a session that cannot be read. Its early prompts go back into the editor.
    pub(super) fn not_opened(&mut self, why: &str) -> Vec<Command> {
        if self.session.opening {
            let current = std::mem::take(&mut self.session);
            self.hint = None;
            let sent_early = current.sent_early.into_iter().map(|(text, _)| text);
            let texts: Vec<String> =
                sent_early.chain([self.editor.text()]).filter(|text| !text.is_empty()).collect();
            self.editor.set(&texts.join("\n"));
            self.transcript.note(Tone::Bad, why);
        }
        Vec::new()
    }

    /// Handles a run that was seen in the session. If another client started it, it is followed at once, or when the run that
    /// is followed has ended.
    pub(super) fn session_run(&mut self, session_id: &str, run_id: String) -> Vec<Command> {
        let is_known = self.queue.left.contains(&run_id)
            || self.queue.of_others.contains(&run_id)
            || self.queue.runs.iter().any(|queued| queued.run_id == run_id)
            || self.queue.in_flight.iter().any(|unsent| unsent.run_id() == run_id);
        if self.session.id.as_deref() != Some(session_id) || is_known {
            return Vec::new();
        }
        self.queue.of_others.push_back(run_id);
        if self.session.opening {
            return Vec::new();
        }
        match self.live {
            None => self.next_in_queue(),
            // It may wait in the session's queue.
            Some(_) => vec![Command::ListQueue(session_id.to_owned())],
        }
    }

    pub(super) fn session_changed(&mut self, session: &Session) -> Vec<Command> {
        if self.session.id.as_ref() == Some(&session.session_id) {
            self.session.title = sanitize(&session.title);
        }
        Vec::new()
    }

    pub(super) fn session_deleted(&mut self, session_id: &str) -> Vec<Command> {
        if self.session.id.as_deref() == Some(session_id) {
            self.transcript.note(Tone::Bad, "this session was deleted");
        }
        Vec::new()
    }

    pub(super) fn session_not_watched(&mut self, session_id: &str) -> Vec<Command> {
        if self.session.id.as_deref() == Some(session_id) {
            self.session.watched = false;
            self.session.away = false;
        }
        Vec::new()
    }

    pub(super) fn session_connection(&mut self, session_id: &str, up: bool) -> Vec<Command> {
        if self.session.id.as_deref() == Some(session_id) {
            self.session.away = !up;
        }
        Vec::new()
    }

    /// Opens the session that another caller has begun. A run that this chat has begun is on the screen already.
    pub(super) fn session_begun(&mut self, session_id: &str) -> Vec<Command> {
        let is_shown = self.session.watched || self.live.is_some() || !self.queue.in_flight.is_empty();
        if self.session.id.as_deref() != Some(session_id) || is_shown {
            return Vec::new();
        }
        // The person did nothing: an open window stays, and a prompt is neither lost nor sent as a second run.
        let overlay = self.overlay.take();
        let unsent = self.unsent.take();
        let sent_early = std::mem::take(&mut self.session.sent_early);
        let commands = self.open(session_id);
        self.overlay = overlay;
        self.unsent = unsent;
        self.session.sent_early = sent_early;
        commands
    }

    pub(super) fn pick_session(&mut self) -> Vec<Command> {
        self.overlay = Some(Overlay::Sessions(SessionPicker::default()));
        vec![Command::ListSessions]
    }

    pub(super) fn listed(&mut self, listed: Result<Vec<SessionOverview>, String>) -> Vec<Command> {
        if let Some(Overlay::Sessions(picker)) = &mut self.overlay {
            picker.sessions = Some(listed);
            picker.at = picker.at.min(picker.lines().saturating_sub(1));
        }
        Vec::new()
    }

    pub(super) fn picker_key(&mut self, key: KeyEvent) -> Vec<Command> {
        let Some(Overlay::Sessions(picker)) = &mut self.overlay else { return Vec::new() };
        match picker.key(key) {
            PickerAction::Nothing => Vec::new(),
            PickerAction::New => self.new_session(),
            PickerAction::Session(id) => self.open(&id),
            PickerAction::Closed => {
                self.overlay = None;
                Vec::new()
            }
        }
    }
}

impl SessionPicker {
    /// The sessions that fit the filter; none until the server has answered.
    pub(crate) fn shown(&self) -> impl Iterator<Item = &SessionOverview> {
        let all = match &self.sessions {
            Some(Ok(sessions)) => &sessions[..],
            Some(Err(_)) | None => &[],
        };
        all.iter().filter(|session| session.fits(&self.filter))
    }

    /// True if the first line makes a new session. With a filter it does not, so that Enter opens what is looked for.
    pub(crate) fn offers_new(&self) -> bool {
        self.filter.is_empty()
    }

    /// Number of lines that can be selected.
    fn lines(&self) -> usize {
        self.shown().count() + usize::from(self.offers_new())
    }

    fn key(&mut self, key: KeyEvent) -> PickerAction {
        const PAGE: usize = 10;
        let last = self.lines().saturating_sub(1);
        match key.code {
            KeyCode::Down => self.at = if self.at == last { 0 } else { self.at + 1 },
            KeyCode::Up => self.at = self.at.checked_sub(1).unwrap_or(last),
            KeyCode::PageDown => self.at = (self.at + PAGE).min(last),
            KeyCode::PageUp => self.at = self.at.saturating_sub(PAGE),
            KeyCode::Home => self.at = 0,
            KeyCode::End => self.at = last,
            KeyCode::Esc => return PickerAction::Closed,
            KeyCode::Enter => return self.picked(),
            KeyCode::Backspace => {
                self.filter.pop();
                self.at = 0;
            }
            KeyCode::Char('n') if key.modifiers == KeyModifiers::CONTROL => return PickerAction::New,
            KeyCode::Char(c)
                if (key.modifiers - KeyModifiers::SHIFT).is_empty()
                    && !is_unsafe(c)
                    && self.filter.chars().count() < FILTER_CHARS =>
            {
                self.filter.push(c);
                self.at = 0;
            }
            _ => {}
        }
        PickerAction::Nothing
    }

    fn picked(&self) -> PickerAction {
        let at = if self.offers_new() { self.at.checked_sub(1) } else { Some(self.at) };
        let Some(at) = at else { return PickerAction::New };
        let session = self.shown().nth(at);
        session.map_or(PickerAction::Nothing, |overview| {
            PickerAction::Session(overview.session.session_id.clone())
        })
    }
}

fn is_of(run_id: &str, live_run_id: &str) -> bool {
    !live_run_id.is_empty() && run_id == live_run_id
}
