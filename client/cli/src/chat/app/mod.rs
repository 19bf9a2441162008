//! The chat as a state machine: what happened goes in, what is to be done comes out. It draws nothing, waits for
//! nothing and knows no clock.

mod keys;
mod run;
mod scroll;
mod session;
#[cfg(test)]
mod tests;

use std::{collections::VecDeque, time::Duration};

use agentloop_client::v1::{RunInput, RunStatus, Usage};

pub(crate) use self::{keys::HELP, scroll::Scroll, session::Picker};
use super::{
    card::Card,
    editor::Editor,
    event::{Command, Event},
    transcript::{Tone, Transcript},
};
use crate::exit::Exit;

/// What does not change while the chat lasts.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// What every run is given besides prompt, session and id.
    pub(crate) input: RunInput,
    /// What the human should know of that, said at the beginning.
    pub(crate) notes: Vec<String>,
    /// Who answers questions.
    pub(crate) who: String,
    /// Makes ids of runs.
    pub(crate) new_id: fn() -> String,
}

/// The chat.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) options: Options,
    /// Columns and rows of the terminal.
    pub(crate) size: (u16, u16),
    /// Since the start of the program.
    pub(crate) now: Duration,
    pub(crate) session: Current,
    pub(crate) transcript: Transcript,
    pub(crate) scroll: Scroll,
    /// Whether results and reasoning are shown whole.
    pub(crate) details: bool,
    pub(crate) editor: Editor,
    /// Earlier prompts, and which of them the editor shows.
    pub(crate) prompts: Vec<String>,
    pub(crate) recalled: Option<usize>,
    pub(crate) live: Option<Live>,
    /// Questions, oldest first: the first one is shown.
    pub(crate) cards: VecDeque<Card>,
    pub(crate) focus: Focus,
    pub(crate) overlay: Option<Overlay>,
    /// What was typed and did not reach the server for sure: sent again, it is the same run.
    pub(crate) unsent: Option<Unsent>,
    /// A word about the last key, until the next one.
    pub(crate) hint: Option<String>,
    /// Tokens of all runs seen here.
    pub(crate) usage: Usage,
    /// Ctrl-C was pressed once.
    pub(crate) leaving: bool,
}

/// The session that is shown.
#[derive(Debug, Default, Clone, PartialEq)]
pub(crate) struct Current {
    /// Absent until the server has made it.
    pub(crate) id: Option<String>,
    pub(crate) title: String,
    /// It is being read.
    pub(crate) opening: bool,
}

/// The run that is followed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Live {
    pub(crate) run_id: String,
    pub(crate) status: RunStatus,
    /// What it waits for, in words.
    pub(crate) waiting_on: String,
    /// The run was started here, and its first message is shown already.
    pub(crate) echoed: bool,
    /// An event of it was seen: it exists.
    pub(crate) seen: bool,
    pub(crate) connected: bool,
    pub(crate) aborting: bool,
    /// When it last moved or was looked at.
    pub(crate) looked_at: Duration,
}

/// Where keys go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Focus {
    Editor,
    Card,
}

/// What is shown over everything else.
#[derive(Debug)]
pub(crate) enum Overlay {
    Help,
    Sessions(Picker),
}

/// A prompt that may or may not have arrived.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Unsent {
    pub(crate) text: String,
    pub(crate) run_id: String,
}

impl App {
    /// A chat in this session, or in a new one.
    pub(crate) fn new(options: Options, session: Option<String>) -> (App, Vec<Command>) {
        let mut app = App {
            options,
            size: (80, 24),
            now: Duration::ZERO,
            session: Current::default(),
            transcript: Transcript::default(),
            scroll: Scroll::Follow,
            details: false,
            editor: Editor::new("Enter sends, Alt-Enter begins a line, F1 helps"),
            prompts: Vec::new(),
            recalled: None,
            live: None,
            cards: VecDeque::new(),
            focus: Focus::Editor,
            overlay: None,
            unsent: None,
            hint: None,
            usage: Usage::default(),
            leaving: false,
        };
        app.say_notes();
        let commands = session.map_or_else(Vec::new, |id| app.open(&id));
        (app, commands)
    }

    pub(super) fn say_notes(&mut self) {
        for note in &self.options.notes {
            self.transcript.note(Tone::Quiet, note);
        }
    }

    /// Takes up what happened.
    pub(crate) fn handle(&mut self, event: Event) -> Vec<Command> {
        match event {
            Event::Key(key) => self.key(key),
            Event::Paste(text) => {
                self.paste(&text);
                Vec::new()
            }
            Event::Resize(width, height) => {
                self.size = (width, height);
                Vec::new()
            }
            Event::Tick(now) => self.tick(now),
            Event::Terminated => vec![Command::Leave(Exit::Interrupted)],
            Event::Opened(opened) => self.opened(&opened),
            Event::NotOpened(why) => self.not_opened(&why),
            Event::Sessions(listed) => self.listed(listed),
            Event::Run(event) => self.run_event(&event),
            Event::Connection { run_id, up } => self.connection(&run_id, up),
            Event::Lost { run_id, trouble } => self.lost(&run_id, &trouble),
            Event::Looked(run) => self.looked(&run),
            Event::Taken(request) => self.settled(&request.request_id),
            Event::NotTaken { request_id, trouble } => self.not_taken(&request_id, &trouble),
            Event::Failed(why) => {
                if let Some(live) = &mut self.live {
                    live.aborting = false;
                }
                self.transcript.note(Tone::Bad, &why);
                Vec::new()
            }
        }
    }
}
