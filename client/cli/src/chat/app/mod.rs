//! The state machine of the chat: it handles events and returns commands. It does no I/O, and gets the time in events.

mod choice;
mod keys;
mod queue;
mod rules;
mod run;
mod scroll;
mod session;
#[cfg(test)]
mod tests;
mod usage;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::{Duration, SystemTime},
};

use agentloop_client::v1::{Agent, ModelProvider, RunInput, RunStatus, Usage};
use ratatui::layout::Size;

pub(crate) use self::{
    choice::{ChoiceList, ChoiceRow, Chosen},
    queue::{BusyMode, QueueItem},
    rules::RuleList,
    scroll::Scroll,
    session::SessionPicker,
};
use super::{
    card::{Card, QuestionView},
    editor::Editor,
    event::{Command, Event},
    layout::fitting,
    transcript::{Tone, Transcript},
};
use crate::exit::Exit;

/// Keys of the empty text field, in words for a wide screen and for narrow ones.
const EDITOR_KEYS: [&str; 3] =
    ["Enter sends, Alt-Enter begins a line, F1 helps", "Enter sends, F1 helps", "F1 helps"];

/// Settings that do not change during the chat.
#[derive(Debug, Clone)]
pub(crate) struct ChatOptions {
    /// Input of every run, without prompt, session and id.
    pub(crate) input: RunInput,
    /// Notes about that input, shown at the beginning.
    pub(crate) notes: Vec<String>,
    /// Name of the person who answers questions.
    pub(crate) who: String,
    /// The time on the clock at the start of the program.
    pub(crate) started: SystemTime,
    /// Makes the id of a new run.
    pub(crate) new_id: fn() -> String,
}

/// The state of the chat.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) options: ChatOptions,
    /// Size of the terminal in columns and rows.
    pub(crate) size: Size,
    /// Time since the start of the program.
    pub(crate) now: Duration,
    pub(crate) session: CurrentSession,
    pub(crate) transcript: Transcript,
    pub(crate) scroll: Scroll,
    /// True if results and reasoning are shown in full.
    pub(crate) details: bool,
    pub(crate) editor: Editor,
    pub(crate) earlier: EarlierPrompts,
    pub(crate) live: Option<LiveRun>,
    pub(crate) queue: SessionQueue,
    /// Open questions, the oldest first. The first one is shown.
    pub(crate) cards: VecDeque<Card>,
    pub(crate) focus: Focus,
    pub(crate) overlay: Option<Overlay>,
    /// A prompt that may not have reached the server. Sent again, it is the same run.
    pub(crate) unsent: Option<UnsentPrompt>,
    /// A note about the last key; removed at the next key.
    pub(crate) hint: Option<String>,
    pub(crate) usage: SessionUsage,
    /// The configured agents. Absent until the server has answered.
    pub(crate) agents: Option<Result<Vec<Agent>, String>>,
    /// The configured providers of models. Empty until the server has answered, and of a server that does not list them.
    pub(crate) providers: Vec<ModelProvider>,
    /// Agent and model of the run that was started or joined last.
    pub(crate) last_model: Option<(String, String)>,
    /// True after a first ctrl-C: the next one quits.
    pub(crate) interrupted_once: bool,
    /// True while ctrl-C asks what becomes of the queue.
    pub(crate) asks_about_queue: bool,
}

/// Prompts that can be called back into the editor.
#[derive(Debug, Default)]
pub(crate) struct EarlierPrompts {
    /// All of them, the oldest first.
    pub(crate) prompts: Vec<String>,
    /// Number of the first of them that were read from a session, and not entered here.
    pub(crate) read: usize,
    /// Index of the one that the editor shows.
    pub(crate) recalled: Option<usize>,
}

/// Runs of the session that are not followed yet, and messages on their way to it.
#[derive(Debug, Default)]
pub(crate) struct SessionQueue {
    /// Queued runs, the next one first.
    pub(crate) runs: VecDeque<QueueItem>,
    /// Ids of runs that left the queue: they were followed here, or removed. An older list may still have them.
    pub(crate) left: BTreeSet<String>,
    /// Messages to a busy session that the server has not accepted yet.
    pub(crate) in_flight: Vec<UnsentPrompt>,
    /// Runs that others started in the session, the oldest first, until they are followed.
    pub(crate) of_others: VecDeque<String>,
    /// True if the live run is aborted once the runs that are being removed have left the queue.
    pub(crate) aborts_after_removal: bool,
}

/// Tokens and cost of the session.
#[derive(Debug, Default)]
pub(crate) struct SessionUsage {
    /// The sum of all its runs.
    pub(crate) total: Usage,
    /// The parts of that sum by run.
    pub(crate) of_runs: BTreeMap<String, Usage>,
}

/// The session on the screen.
#[derive(Debug, Default, Clone, PartialEq)]
pub(crate) struct CurrentSession {
    /// Absent until the server has created the session.
    pub(crate) id: Option<String>,
    pub(crate) title: String,
    /// True while the session is being read.
    pub(crate) opening: bool,
    /// True while it is watched for what others do there.
    pub(crate) watched: bool,
    /// True while the server that it is watched at cannot be reached.
    pub(crate) away: bool,
    /// Prompts entered while the session is read, the oldest first. They are sent afterwards.
    pub(crate) sent_early: Vec<(String, BusyMode)>,
}

/// The run that the chat follows.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LiveRun {
    pub(crate) run_id: String,
    pub(crate) status: RunStatus,
    /// The reason why it waits, for people; empty if there is none.
    pub(crate) waiting_on: String,
    /// The time of the next try, since the start of the program.
    pub(crate) next_try: Option<Duration>,
    /// True if the run was started here, so that its prompt is on the screen already.
    pub(crate) prompt_shown: bool,
    /// True once an event of the run came: it exists.
    pub(crate) confirmed: bool,
    pub(crate) connected: bool,
    pub(crate) aborting: bool,
    /// The time of the run's last event, or of the last read of its state.
    pub(crate) checked_at: Duration,
}

/// The part of the screen that gets the keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Focus {
    Editor,
    Card,
}

/// A window over everything else.
#[derive(Debug)]
pub(crate) enum Overlay {
    /// The list of keys, with the index of the line at its top.
    Help(usize),
    Sessions(SessionPicker),
    /// The queue, with the index of the selected line.
    Queue(usize),
    Rules(RuleList),
    /// The agents, or their models.
    Choice(ChoiceList),
}

/// A prompt that the server may not have received.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct UnsentPrompt {
    pub(crate) text: String,
    pub(crate) input: RunInput,
}

impl UnsentPrompt {
    pub(crate) fn run_id(&self) -> &str {
        self.input.run_id.as_deref().unwrap_or_default()
    }
}

impl App {
    /// A chat in this session, or in a new one, and the first commands.
    pub(crate) fn new(options: ChatOptions, session: Option<String>) -> (App, Vec<Command>) {
        let mut app = App {
            options,
            size: Size::new(80, 24),
            now: Duration::ZERO,
            session: CurrentSession::default(),
            transcript: Transcript::default(),
            scroll: Scroll::AtEnd,
            details: false,
            editor: Editor::new(EDITOR_KEYS[0]),
            earlier: EarlierPrompts::default(),
            live: None,
            queue: SessionQueue::default(),
            cards: VecDeque::new(),
            focus: Focus::Editor,
            overlay: None,
            unsent: None,
            hint: None,
            usage: SessionUsage::default(),
            agents: None,
            providers: Vec::new(),
            last_model: None,
            interrupted_once: false,
            asks_about_queue: false,
        };
        app.add_notes();
        let commands = session.map_or_else(Vec::new, |id| app.open(&id));
        (app, commands)
    }

    pub(super) fn add_notes(&mut self) {
        for note in &self.options.notes {
            self.transcript.note(Tone::Quiet, note);
        }
    }

    /// Handles an event, and returns the commands to perform.
    pub(crate) fn handle(&mut self, event: Event) -> Vec<Command> {
        match event {
            Event::Key(key) => self.key(key),
            Event::Paste(text) => self.paste(&text),
            Event::Resize(width, height) => {
                let size = Size::new(width, height);
                if size != self.size {
                    self.size = size;
                    // The field has a column for the cursor before them.
                    self.editor.set_hint(fitting(&EDITOR_KEYS, width.saturating_sub(1)));
                    // Lines are broken anew, so nothing is known of what was seen.
                    self.cards.iter_mut().for_each(|card| card.view = QuestionView::default());
                }
                Vec::new()
            }
            Event::Tick(now) => self.tick(now),
            Event::Terminated => vec![Command::Quit(Exit::Interrupted)],
            Event::SessionOpened(opened) => self.opened(&opened),
            Event::SessionNotOpened(why) => self.not_opened(&why),
            Event::Sessions(listed) => self.listed(listed),
            Event::SessionRun { session_id, run_id } => self.session_run(&session_id, run_id),
            Event::SessionChanged(session) => self.session_changed(&session),
            Event::SessionDeleted { session_id } => self.session_deleted(&session_id),
            Event::SessionNotWatched { session_id } => self.session_not_watched(&session_id),
            Event::SessionConnection { session_id, up } => self.session_connection(&session_id, up),
            Event::SessionBegun { session_id } => self.session_begun(&session_id),
            Event::Run(event) => self.run_event(&event),
            Event::Connection { run_id, up } => self.connection(&run_id, up),
            Event::RunLost { run_id, error } => self.lost(&run_id, &error),
            Event::RunRead(run) => self.run_read(&run),
            other => self.handle_result(other),
        }
    }

    /// Handles the result of a command.
    fn handle_result(&mut self, event: Event) -> Vec<Command> {
        match event {
            Event::AnswerAccepted(request) => self.question_answered(&request.request_id),
            Event::AnswerRefused { request_id, error } => self.answer_refused(&request_id, &error),
            Event::CommandFailed(why) => {
                if let Some(live) = &mut self.live {
                    live.aborting = false;
                }
                self.transcript.note(Tone::Bad, &why);
                Vec::new()
            }
            Event::RuleChecked { request_id, candidate, answer } => {
                self.checked(&request_id, &candidate, answer.as_deref().map_err(String::as_str));
                Vec::new()
            }
            Event::Agents(listed) => self.agents_listed(listed),
            Event::Providers(listed) => {
                self.providers = listed;
                Vec::new()
            }
            Event::Rules(listed) => self.rules_listed(listed),
            Event::RuleDeleted { rule_id, answer } => self.rule_deleted(&rule_id, answer),
            Event::QueueListed { session_id, answer } => self.queue_listed(&session_id, answer),
            Event::MessageAccepted { sent_as, by } => self.message_accepted(&sent_as, &by),
            Event::MessageRefused { sent_as, error } => self.message_refused(&sent_as, &error),
            Event::RunRemoved { run_id, answer } => self.run_removed(&run_id, answer),
            _ => Vec::new(),
        }
    }
}
