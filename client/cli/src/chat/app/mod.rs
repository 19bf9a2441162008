//! The chat as a state machine: what happened goes in, what is to be done comes out. It draws nothing, waits for
//! nothing and knows no clock.

mod keys;
mod queue;
mod rules;
mod run;
mod scroll;
mod session;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeSet, VecDeque},
    time::Duration,
};

use agentloop_client::v1::{RunInput, RunStatus, Usage};

pub(crate) use self::{
    keys::HELP,
    queue::{Busy, Queued},
    rules::Rules,
    scroll::Scroll,
    session::Picker,
};
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
    /// What was said while a run is under way and waits for its turn, the next one first.
    pub(crate) queue: VecDeque<Queued>,
    /// Runs of the session that wait no more: they were followed here, or taken out. A list that was made before may
    /// still have them.
    pub(crate) past: BTreeSet<String>,
    /// What was said to a busy session, until the server has taken it.
    pub(crate) on_their_way: Vec<Unsent>,
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
    /// What was sent meanwhile, the oldest first: sent on once the session is read.
    pub(crate) early: Vec<(String, Busy)>,
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
    /// What waits, and which line of it is picked.
    Queue(usize),
    Rules(Rules),
}

/// A prompt that may or may not have arrived.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Unsent {
    pub(crate) text: String,
    pub(crate) input: RunInput,
}

impl Unsent {
    pub(crate) fn run_id(&self) -> &str {
        self.input.run_id.as_deref().unwrap_or_default()
    }
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
            queue: VecDeque::new(),
            past: BTreeSet::new(),
            on_their_way: Vec::new(),
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
            Event::Paste(text) => self.paste(&text),
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
            other => self.answered(other),
        }
    }

    /// An answer of the server to what was done here.
    fn answered(&mut self, event: Event) -> Vec<Command> {
        match event {
            Event::Taken(request) => self.settled(&request.request_id),
            Event::NotTaken { request_id, trouble } => self.not_taken(&request_id, &trouble),
            Event::Failed(why) => {
                if let Some(live) = &mut self.live {
                    live.aborting = false;
                }
                self.transcript.note(Tone::Bad, &why);
                Vec::new()
            }
            Event::Checked { request_id, candidate, answer } => {
                self.checked(&request_id, &candidate, answer.as_deref().map_err(String::as_str));
                Vec::new()
            }
            Event::Rules(listed) => self.rules_listed(listed),
            Event::Forgotten { rule_id, answer } => self.forgotten(&rule_id, answer),
            Event::Waiting { session_id, answer } => self.waiting(&session_id, answer),
            Event::Accepted { sent_as, by } => self.accepted(&sent_as, &by),
            Event::NotAccepted { sent_as, trouble } => self.not_accepted(&sent_as, &trouble),
            Event::Removed { run_id, answer } => self.removed(&run_id, answer),
            _ => Vec::new(),
        }
    }
}
