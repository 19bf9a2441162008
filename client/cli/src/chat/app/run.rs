//! The run that is followed: starting it, what it says, its questions and its end.

use std::time::Duration;

use agentloop_client::v1::{
    BusySessionPolicy, CheckPolicyResponse, ErrorReason, HumanRequest, PolicyRule, Run, RunEvent, RunInput,
    RunStatus, Usage, WaitKind, WaitingOn, run_event::Event,
};

use super::{App, Command, Focus, Live, Overlay, Unsent, queue::Busy};
use crate::{
    chat::{
        card::{Card, Outcome},
        event::Trouble,
        transcript::Tone,
    },
    terminal::names,
    terminal::text::tame,
};

/// A run that has not moved for so long is looked at: what does it wait for?
const LOOK_AFTER: Duration = Duration::from_secs(2);
/// Questions that are kept; more than a run can ask at once.
const CARDS_MAX: usize = 256;

impl App {
    /// Sends what was typed; `busy` is how, where a run is under way.
    pub(super) fn send(&mut self, busy: Busy) -> Vec<Command> {
        if let Some(commands) = self.told_by_name() {
            return commands;
        }
        if self.editor.text().trim().is_empty() {
            return Vec::new();
        }
        if self.session.opening {
            self.hint = Some("sent once the session is read".into());
            self.session.early.push((self.editor.take(), busy));
            return Vec::new();
        }
        if self.live.is_some() || !self.queue.is_empty() {
            return self.say(busy);
        }
        let unsent = self.take_typed(|input| input);
        if unsent.input.on_busy_session() != BusySessionPolicy::Unspecified {
            return self.say_again(unsent);
        }
        self.transcript.user(&unsent.text);
        self.follows(Live { echoed: true, ..Live::of(unsent.run_id(), self.now) });
        let start = Command::Start(Box::new(unsent.input.clone()));
        self.unsent = Some(unsent);
        vec![start]
    }

    /// Takes what was typed out of the editor. What did not arrive for sure, and was not changed, is sent as it was:
    /// it is the same run. Anything else is `made` anew.
    pub(super) fn take_typed(&mut self, made: impl FnOnce(RunInput) -> RunInput) -> Unsent {
        let text = self.editor.take();
        self.prompts.push(text.clone());
        self.recalled = None;
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
                Unsent { text, input }
            }
        }
    }

    /// What is typed by its name does not go to the server.
    fn told_by_name(&mut self) -> Option<Vec<Command>> {
        let commands = match self.editor.text().trim() {
            "/help" => {
                self.overlay = Some(Overlay::Help);
                Vec::new()
            }
            "/rules" => self.show_rules(),
            "/queue" => self.show_queue(),
            "/sessions" => self.pick_session(),
            "/new" => self.new_session(),
            _ => return None,
        };
        self.editor.set("");
        Some(commands)
    }

    /// Follows a run that is under way.
    pub(super) fn join(&mut self, run_id: &str) -> Vec<Command> {
        self.follows(Live::of(run_id, self.now));
        vec![Command::Follow(run_id.to_owned())]
    }

    fn follows(&mut self, live: Live) {
        self.past.insert(live.run_id.clone());
        self.live = Some(live);
        self.cards.clear();
        self.focus = Focus::Editor;
        self.scroll_to_end();
    }

    pub(super) fn run_event(&mut self, event: &RunEvent) -> Vec<Command> {
        let Some(live) = self.live.as_mut().filter(|live| live.run_id == event.run_id) else {
            return Vec::new();
        };
        live.moves(event, self.now);
        self.unsent.take_if(|unsent| unsent.run_id() == event.run_id);
        if self.session.id.is_none() && !event.session_id.is_empty() {
            self.session.id = Some(event.session_id.clone());
        }
        let Some(event) = &event.event else { return Vec::new() };
        let echo = matches!(event, Event::InputMessage(_)) && std::mem::take(&mut live.echoed);
        if !echo {
            self.transcript.event(event, self.now);
        }
        match event {
            Event::AssistantMessage(message) => self.spend(message.usage.as_ref()),
            Event::HumanRequested(requested) => self.asked(requested.request.as_ref()),
            Event::HumanResolved(resolved) => return self.settled(&resolved.request_id),
            Event::RunFinished(_) => return self.finished(),
            _ => {}
        }
        Vec::new()
    }

    fn spend(&mut self, usage: Option<&Usage>) {
        if let Some(usage) = usage {
            self.usage.input_tokens = self.usage.input_tokens.saturating_add(usage.input_tokens);
            self.usage.output_tokens = self.usage.output_tokens.saturating_add(usage.output_tokens);
        }
    }

    /// A question takes the keys, unless somebody is writing.
    fn asked(&mut self, request: Option<&HumanRequest>) {
        let Some(request) = request else { return };
        if request.answer.is_some() || self.cards.len() == CARDS_MAX {
            return;
        }
        self.cards.push_back(Card::new(request.clone()));
        if self.cards.len() == 1 && self.editor.is_empty() {
            self.focus = Focus::Card;
        }
    }

    /// A question is settled, here or elsewhere.
    pub(super) fn settled(&mut self, request_id: &str) -> Vec<Command> {
        self.cards.retain(|card| card.request.request_id != request_id);
        if self.cards.is_empty() {
            self.focus = Focus::Editor;
        }
        Vec::new()
    }

    pub(super) fn not_taken(&mut self, request_id: &str, trouble: &Trouble) -> Vec<Command> {
        if trouble.reason == Some(ErrorReason::AlreadyResolved) {
            self.transcript.note(Tone::Warning, &trouble.message);
            return self.settled(request_id);
        }
        if let Some(card) = self.cards.iter_mut().find(|card| card.request.request_id == request_id) {
            card.refused(&tame(&trouble.message));
        }
        Vec::new()
    }

    /// What a key in a card led to.
    pub(super) fn card_says(&mut self, outcome: Outcome) -> Vec<Command> {
        match outcome {
            Outcome::None => Vec::new(),
            Outcome::PutAside => {
                self.focus = Focus::Editor;
                Vec::new()
            }
            Outcome::Decided(answer) => vec![Command::Decide(answer)],
            Outcome::Answered(answer) => vec![Command::Answer(answer)],
            Outcome::Check(check) => {
                let request_id = self.cards.front().map(|card| card.request.request_id.clone());
                vec![Command::Check { request_id: request_id.unwrap_or_default(), check }]
            }
        }
    }

    /// What a rule would match is known.
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
        self.ends();
        self.next_in_queue()
    }

    fn ends(&mut self) {
        self.live = None;
        self.cards.clear();
        self.focus = Focus::Editor;
        self.leaving = false;
        // What was said about the run's last key is over with it.
        self.hint = None;
    }

    pub(super) fn connection(&mut self, run_id: &str, up: bool) -> Vec<Command> {
        if let Some(live) = self.live.as_mut().filter(|live| live.run_id == run_id) {
            live.connected = up;
        }
        Vec::new()
    }

    /// The run cannot be followed any more. If it never came to be, its prompt is given back.
    pub(super) fn lost(&mut self, run_id: &str, trouble: &Trouble) -> Vec<Command> {
        let Some(live) = self.live.take_if(|live| live.run_id == run_id) else { return Vec::new() };
        self.ends();
        if live.echoed && !live.seen {
            self.give_back(trouble);
        }
        self.transcript.note(Tone::Bad, &trouble.message);
        match &trouble.busy_run {
            Some(busy) => self.join(busy),
            None => self.next_in_queue(),
        }
    }

    /// A prompt that did not arrive stands in the editor again. Where it may have arrived, sending it again is
    /// joining that run.
    fn give_back(&mut self, trouble: &Trouble) {
        self.transcript.take_back_user();
        let unsent = if trouble.unreachable { self.unsent.clone() } else { self.unsent.take() };
        if let Some(unsent) = unsent
            && self.editor.is_empty()
        {
            self.editor.set(&unsent.text);
        }
    }

    /// Ends the run.
    pub(super) fn abort(&mut self) -> Vec<Command> {
        let Some(live) = &mut self.live else { return Vec::new() };
        live.aborting = true;
        vec![Command::Abort(live.run_id.clone())]
    }

    /// Lets a paused run go on.
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
            Some(live) if live.seen && live.connected && now.saturating_sub(live.looked_at) >= LOOK_AFTER => {
                live.looked_at = now;
                vec![Command::Look(live.run_id.clone())]
            }
            _ => Vec::new(),
        }
    }

    pub(super) fn looked(&mut self, run: &Run) -> Vec<Command> {
        let now = self.now;
        if let Some(live) = self.live.as_mut().filter(|live| live.run_id == run.run_id) {
            live.looked_at = now;
            live.waiting_on = run.waiting_on.as_ref().map(waiting_on).unwrap_or_default();
        }
        Vec::new()
    }
}

impl Live {
    fn of(run_id: &str, now: Duration) -> Live {
        Live {
            run_id: run_id.to_owned(),
            status: RunStatus::Unspecified,
            waiting_on: String::new(),
            echoed: false,
            seen: false,
            connected: true,
            aborting: false,
            looked_at: now,
        }
    }

    fn moves(&mut self, event: &RunEvent, now: Duration) {
        self.seen = true;
        self.connected = true;
        self.looked_at = now;
        if self.status != event.status() {
            self.status = event.status();
            self.waiting_on.clear();
        }
    }
}

/// "Why is it not moving", in a few words.
fn waiting_on(waiting: &WaitingOn) -> String {
    let kind = match waiting.kind() {
        // The question itself is shown.
        WaitKind::Human => return String::new(),
        WaitKind::Unspecified => String::new(),
        kind => names::plain(kind.as_str_name(), "WAIT_KIND_").replace('_', " "),
    };
    let mut words = format!("{kind} {}", tame(&waiting.what)).trim().to_owned();
    if waiting.attempt > 1 {
        words.push_str(&format!(", try {}", waiting.attempt));
    }
    if let Some(last) = &waiting.last_error {
        words.push_str(&format!(": {}", names::brief(&tame(&last.message), 80)));
    }
    words
}
