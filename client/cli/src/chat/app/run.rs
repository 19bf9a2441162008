//! The live run: its start, events, questions and end.

use std::time::{Duration, SystemTime};

use agentloop_client::v1::{
    BusySessionPolicy, CheckPolicyResponse, ErrorReason, HumanRequest, PolicyRule, Run, RunEvent, RunInput,
    RunStatus, WaitKind, WaitingOn, run_event::Event,
};

use prost_types::Timestamp;

use super::{App, Chosen, Command, Focus, LiveRun, Overlay, UnsentPrompt, queue::BusyMode};
use crate::{
    chat::{
        card::{Card, CardOutcome},
        event::RpcError,
        transcript::Tone,
    },
    exit::Exit,
    terminal::format,
    terminal::text::sanitize,
};

/// After this time without an event, the run's state is read, to show why it waits.
const CHECK_AFTER: Duration = Duration::from_secs(2);
/// Bound on open questions.
const CARDS_MAX: usize = 256;

impl App {
    /// Sends the entered text. `busy` applies if a run is live.
    pub(super) fn send(&mut self, busy: BusyMode) -> Vec<Command> {
        if let Some(commands) = self.slash_command() {
            return commands;
        }
        if self.editor.text().trim().is_empty() {
            return Vec::new();
        }
        if self.session.opening {
            self.hint = Some("sent once the session is read".into());
            self.session.sent_early.push((self.editor.take(), busy));
            return Vec::new();
        }
        if self.live.is_some() || !self.queue.runs.is_empty() {
            return self.send_to_busy(busy);
        }
        let unsent = self.take_typed(|input| input);
        if unsent.input.on_busy_session() != BusySessionPolicy::Unspecified {
            return self.resend(unsent);
        }
        self.transcript.user(&unsent.text);
        self.start_following(LiveRun { prompt_shown: true, ..LiveRun::of(unsent.run_id(), self.now) });
        let start = Command::Start(Box::new(unsent.input.clone()));
        self.unsent = Some(unsent);
        vec![start]
    }

    /// Takes the prompt out of the editor. If it is unchanged and may not have reached the server, it is the same run
    /// again. Otherwise `made` completes a new input.
    pub(super) fn take_typed(&mut self, made: impl FnOnce(RunInput) -> RunInput) -> UnsentPrompt {
        let text = self.editor.take();
        self.earlier.prompts.push(text.clone());
        self.earlier.recalled = None;
        match self.unsent.take() {
            Some(unsent) if unsent.text == text => unsent,
            _ => {
                let input = made(RunInput {
                    session_id: self.session.id.clone(),
                    auto_create_session: self.session.id.is_some().then_some(true),
                    run_id: Some((self.options.new_id)()),
                    prompt: text.clone(),
                    ..self.options.input.clone()
                });
                UnsentPrompt { text, input }
            }
        }
    }

    /// Performs a command such as `/help`; `None` if the text is none. A mistyped one stays in the editor: the model must
    /// not get it.
    fn slash_command(&mut self) -> Option<Vec<Command>> {
        let text = self.editor.text();
        let text = text.trim_end();
        if !is_command(text) {
            return None;
        }
        let (name, argument) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let commands = match text {
            _ if name == "/agent" => self.choose(Chosen::Agent, argument.trim()),
            _ if name == "/model" => self.choose(Chosen::Model, argument.trim()),
            "/quit" | "/exit" => return Some(vec![Command::Quit(Exit::Completed)]),
            "/help" => {
                self.overlay = Some(Overlay::Help(0));
                Vec::new()
            }
            "/rules" => self.show_rules(),
            "/queue" => self.show_queue(),
            "/sessions" => self.pick_session(),
            "/new" => self.new_session(),
            other => {
                let typed = format::first_line(&sanitize(other), COMMAND_CHARS);
                self.hint =
                    Some(format!("no command {typed}: {COMMANDS}; a space before it sends it as text"));
                return Some(Vec::new());
            }
        };
        // A name that there is none of stays, to be mended.
        if self.hint.is_none() {
            self.editor.set("");
        }
        Some(commands)
    }

    /// Follows a run that exists.
    pub(super) fn join(&mut self, run_id: &str) -> Vec<Command> {
        self.start_following(LiveRun::of(run_id, self.now));
        vec![Command::FollowRun(run_id.to_owned())]
    }

    fn start_following(&mut self, live: LiveRun) {
        self.queue.left.insert(live.run_id.clone());
        self.count_from_start(&live.run_id);
        self.live = Some(live);
        self.cards.clear();
        self.focus = Focus::Editor;
        self.scroll_to_end();
    }

    pub(super) fn run_event(&mut self, event: &RunEvent) -> Vec<Command> {
        let Some(live) = self.live.as_mut().filter(|live| live.run_id == event.run_id) else {
            return Vec::new();
        };
        let is_first = !live.confirmed;
        live.update(event, self.now);
        self.unsent.take_if(|unsent| unsent.run_id() == event.run_id);
        if self.session.id.is_none() && !event.session_id.is_empty() {
            self.session.id = Some(event.session_id.clone());
        }
        let mut commands = if is_first { self.watch_session() } else { Vec::new() };
        let run_id = &event.run_id;
        let Some(event) = &event.event else { return commands };
        let Some(live) = &mut self.live else { return commands };
        let echo = matches!(event, Event::InputMessage(_)) && std::mem::take(&mut live.prompt_shown);
        if !echo {
            self.transcript.event(event, self.now);
        }
        match event {
            Event::RunStarted(started) => {
                self.last_model = Some((started.agent.clone(), started.model.clone()));
            }
            Event::AssistantMessage(message) => self.add_usage(run_id, message.usage.as_ref()),
            Event::ModelCallFailed(failed) => self.set_next_try(failed.retry_at.as_ref()),
            Event::HumanRequested(requested) => self.add_question(requested.request.as_ref()),
            Event::HumanResolved(resolved) => drop(self.question_answered(&resolved.request_id)),
            Event::RunFinished(finished) => {
                self.count_finished(run_id, finished.usage.as_ref());
                commands.extend(self.finished());
            }
            _ => {}
        }
        commands
    }

    /// Begins to watch the session, once the server has it.
    fn watch_session(&mut self) -> Vec<Command> {
        match &self.session.id {
            Some(id) if !self.session.watched => {
                self.session.watched = true;
                vec![Command::WatchSession(id.clone())]
            }
            _ => Vec::new(),
        }
    }

    /// Adds a question. It gets the keys, unless the editor has text.
    fn add_question(&mut self, request: Option<&HumanRequest>) {
        let Some(request) = request else { return };
        if request.answer.is_some() || self.cards.len() == CARDS_MAX {
            return;
        }
        self.cards.push_back(Card::new(request.clone()));
        if self.cards.len() == 1 && self.editor.is_empty() {
            self.focus = Focus::Card;
        }
    }

    /// Removes an answered question.
    pub(super) fn question_answered(&mut self, request_id: &str) -> Vec<Command> {
        self.cards.retain(|card| card.request.request_id != request_id);
        if self.cards.is_empty() {
            self.focus = Focus::Editor;
        }
        Vec::new()
    }

    pub(super) fn answer_refused(&mut self, request_id: &str, error: &RpcError) -> Vec<Command> {
        if error.reason == Some(ErrorReason::AlreadyResolved) {
            self.transcript.note(Tone::Warning, &error.message);
            return self.question_answered(request_id);
        }
        if let Some(card) = self.cards.iter_mut().find(|card| card.request.request_id == request_id) {
            card.refused(&sanitize(&error.message));
        }
        Vec::new()
    }

    /// Handles the outcome of a key in a card.
    pub(super) fn handle_card(&mut self, outcome: CardOutcome) -> Vec<Command> {
        match outcome {
            CardOutcome::None => Vec::new(),
            CardOutcome::PutAside => {
                self.focus = Focus::Editor;
                Vec::new()
            }
            CardOutcome::Decided(answer) => vec![Command::Decide(answer)],
            CardOutcome::Answered(answer) => vec![Command::Answer(answer)],
            CardOutcome::Check(check) => {
                let request_id = self.cards.front().map(|card| card.request.request_id.clone());
                vec![Command::CheckRule { request_id: request_id.unwrap_or_default(), check }]
            }
        }
    }

    /// Gives the result of a rule check to its card.
    pub(super) fn checked(
        &mut self,
        request_id: &str,
        candidate: &PolicyRule,
        answer: Result<&CheckPolicyResponse, &str>,
    ) {
        if let Some(card) = self.cards.iter_mut().find(|card| card.request.request_id == request_id) {
            card.checked(candidate, answer);
        }
    }

    fn finished(&mut self) -> Vec<Command> {
        self.stop_following();
        self.next_in_queue()
    }

    fn stop_following(&mut self) {
        self.live = None;
        self.cards.clear();
        self.focus = Focus::Editor;
        self.interrupted_once = false;
        self.asks_about_queue = false;
        self.queue.aborts_after_removal = false;
        // A hint about the run is void with its end, and one about the text in the editor is not.
        if self.editor.text().is_empty() {
            self.hint = None;
        }
    }

    pub(super) fn connection(&mut self, run_id: &str, up: bool) -> Vec<Command> {
        if let Some(live) = self.live.as_mut().filter(|live| live.run_id == run_id) {
            live.connected = up;
        }
        Vec::new()
    }

    /// Handles a run that cannot be followed. If it never started, its prompt goes back into the editor.
    pub(super) fn lost(&mut self, run_id: &str, error: &RpcError) -> Vec<Command> {
        let Some(live) = self.live.take_if(|live| live.run_id == run_id) else { return Vec::new() };
        self.stop_following();
        if live.prompt_shown && !live.confirmed {
            self.restore_prompt(error);
        }
        self.transcript.note(Tone::Bad, &error.message);
        match &error.busy_run {
            Some(busy) => self.join(busy),
            None => self.next_in_queue(),
        }
    }

    /// Puts a prompt back into the editor. If it may have reached the server, sending it again follows that run.
    fn restore_prompt(&mut self, error: &RpcError) {
        self.transcript.remove_last_user();
        let unsent = if error.unreachable { self.unsent.clone() } else { self.unsent.take() };
        if let Some(unsent) = unsent
            && self.editor.is_empty()
        {
            self.editor.set(&unsent.text);
        }
    }

    /// Aborts the live run.
    pub(super) fn abort(&mut self) -> Vec<Command> {
        let Some(live) = &mut self.live else { return Vec::new() };
        live.aborting = true;
        vec![Command::Abort(live.run_id.clone())]
    }

    /// Resumes the live run, if it is paused.
    pub(super) fn resume(&mut self) -> Vec<Command> {
        match &self.live {
            Some(live) if live.status == RunStatus::Paused => vec![Command::Resume(live.run_id.clone())],
            _ => {
                self.hint = Some("the run is not paused".into());
                Vec::new()
            }
        }
    }

    pub(super) fn tick(&mut self, now: Duration) -> Vec<Command> {
        self.now = now;
        match &mut self.live {
            Some(live)
                if live.confirmed && live.connected && now.saturating_sub(live.checked_at) >= CHECK_AFTER =>
            {
                live.checked_at = now;
                vec![Command::ReadRun(live.run_id.clone())]
            }
            _ => Vec::new(),
        }
    }

    pub(super) fn run_read(&mut self, run: &Run) -> Vec<Command> {
        let now = self.now;
        if let Some(live) = self.live.as_mut().filter(|live| live.run_id == run.run_id) {
            live.checked_at = now;
            live.waiting_on = run.waiting_on.as_ref().map(waiting_on).unwrap_or_default();
            let backoff = run.waiting_on.as_ref().filter(|waiting| waiting.kind() == WaitKind::Backoff);
            self.set_next_try(backoff.and_then(|waiting| waiting.next_at.as_ref()));
        }
        Vec::new()
    }

    /// Notes when the live run's model is called again, to count down to it.
    fn set_next_try(&mut self, at: Option<&Timestamp>) {
        let at = at.and_then(|at| SystemTime::try_from(*at).ok());
        let since_start = at.and_then(|at| at.duration_since(self.options.started).ok());
        if let Some(live) = &mut self.live {
            live.next_try = since_start;
        }
    }
}

impl LiveRun {
    fn of(run_id: &str, now: Duration) -> LiveRun {
        LiveRun {
            run_id: run_id.to_owned(),
            status: RunStatus::Unspecified,
            waiting_on: String::new(),
            next_try: None,
            prompt_shown: false,
            confirmed: false,
            connected: true,
            aborting: false,
            checked_at: now,
        }
    }

    fn update(&mut self, event: &RunEvent, now: Duration) {
        self.confirmed = true;
        self.connected = true;
        self.checked_at = now;
        if self.status != event.status() {
            self.status = event.status();
            self.waiting_on.clear();
            self.next_try = None;
        }
    }
}

/// Bound on a mistyped command that is repeated.
const COMMAND_CHARS: usize = 20;
/// The commands, for people.
const COMMANDS: &str = "/agent /help /model /new /queue /quit /rules /sessions";

/// True for one line whose first word is a `/` and anything without a second `/`, and for a `/` alone. A path of several parts
/// is no command.
fn is_command(text: &str) -> bool {
    let Some(rest) = text.strip_prefix('/').filter(|_| !text.contains('\n')) else { return false };
    match rest.split(char::is_whitespace).next().unwrap_or_default() {
        "" => rest.trim().is_empty(),
        name => !name.contains('/'),
    }
}

/// The reason why a run waits, in a few words.
fn waiting_on(waiting: &WaitingOn) -> String {
    // A question is on the screen.
    if waiting.kind() == WaitKind::Human {
        return String::new();
    }
    let mut words = format::waited_for(waiting.kind(), &sanitize(&waiting.what));
    if waiting.attempt > 1 {
        words.push_str(&format!(", try {}", waiting.attempt));
    }
    if let Some(last) = &waiting.last_error {
        words.push_str(&format!(": {}", format::first_line(&sanitize(&last.message), 80)));
    }
    words
}
