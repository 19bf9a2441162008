//! Messages to a busy session: they are queued as runs, or steer the live run. And the window with the queue.

use agentloop_client::v1::{BusySessionPolicy, RunInput};
use crossterm::event::{KeyCode, KeyEvent};

use super::{App, Command, Overlay, UnsentPrompt};
use crate::{
    chat::{event::RpcError, transcript::Tone},
    command::conversation::queue::QueuedRun,
    terminal::text::sanitize,
};

/// Bound on messages that the server has not accepted yet.
const IN_FLIGHT_MAX: usize = 64;

/// The effect of a message that is sent while a run is live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BusyMode {
    /// It becomes a run of its own, which is queued.
    Queue,
    /// The live run reads it with its next model call.
    Steer,
}

/// A queued run, as the chat shows it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct QueueItem {
    pub(crate) run_id: String,
    /// The sanitized prompt.
    pub(crate) text: String,
    /// True once the server has accepted it.
    pub(crate) accepted: bool,
    /// True while it is being removed.
    pub(crate) removing: bool,
    /// True if its text goes back to the editor once it is removed.
    pub(crate) taken_back: bool,
}

impl QueueItem {
    fn of(unsent: &UnsentPrompt) -> QueueItem {
        let run_id = unsent.run_id().to_owned();
        QueueItem {
            run_id,
            text: sanitize(&unsent.text),
            accepted: false,
            removing: false,
            taken_back: false,
        }
    }
}

impl App {
    /// Sends the entered text to a busy session.
    pub(super) fn send_to_busy(&mut self, busy: BusyMode) -> Vec<Command> {
        if self.session.id.is_none() || self.queue.in_flight.len() == IN_FLIGHT_MAX {
            self.hint = Some("wait a moment: the server has not answered yet".into());
            return Vec::new();
        }
        let policy = match busy {
            BusyMode::Queue => BusySessionPolicy::Enqueue,
            BusyMode::Steer => BusySessionPolicy::Steer,
        };
        let unsent = self.take_typed(|input| RunInput { on_busy_session: policy.into(), ..input });
        self.resend(unsent)
    }

    /// Sends a prompt to a session that is, or was, busy.
    pub(super) fn resend(&mut self, unsent: UnsentPrompt) -> Vec<Command> {
        if unsent.input.on_busy_session() == BusySessionPolicy::Steer {
            self.hint = Some("sent to the run: it reads this before its next model call".into());
        } else {
            self.queue.runs.push_back(QueueItem::of(&unsent));
        }
        let send_to_busy = Command::SendToBusy(Box::new(unsent.input.clone()));
        self.queue.in_flight.push(unsent);
        vec![send_to_busy]
    }

    /// Handles the acceptance of a message. If the session was idle by then, it is a run of its own.
    pub(super) fn message_accepted(&mut self, sent_as: &str, by: &str) -> Vec<Command> {
        let Some(unsent) = self.take_in_flight(sent_as) else { return Vec::new() };
        match self.queue.runs.iter_mut().find(|queued| queued.run_id == sent_as) {
            Some(queued) => queued.accepted = true,
            None if by == sent_as => {
                self.queue.runs.push_front(QueueItem { accepted: true, ..QueueItem::of(&unsent) })
            }
            None => {}
        }
        self.next_in_queue()
    }

    /// Handles a message that was refused or lost: puts it back into the editor.
    pub(super) fn message_refused(&mut self, sent_as: &str, error: &RpcError) -> Vec<Command> {
        let Some(unsent) = self.take_in_flight(sent_as) else { return Vec::new() };
        self.queue.runs.retain(|queued| queued.run_id != sent_as);
        self.transcript.note(Tone::Bad, &format!("not sent: {}", error.message));
        if self.editor.is_empty() {
            self.editor.set(&unsent.text);
            self.unsent = error.unreachable.then_some(unsent);
        } else {
            self.transcript.note(Tone::Warning, &format!("this was not sent: {}", unsent.text));
        }
        self.next_in_queue()
    }

    fn take_in_flight(&mut self, run_id: &str) -> Option<UnsentPrompt> {
        let at = self.queue.in_flight.iter().position(|unsent| unsent.run_id() == run_id)?;
        Some(self.queue.in_flight.remove(at))
    }

    /// Follows the next queued run, if no run is live and the server has accepted it.
    pub(super) fn next_in_queue(&mut self) -> Vec<Command> {
        match self.queue.runs.front() {
            Some(next) if self.live.is_none() && next.accepted => {
                let run_id = next.run_id.clone();
                self.queue.runs.pop_front();
                self.queue.of_others.retain(|other| *other != run_id);
                self.join(&run_id)
            }
            _ if self.live.is_none() => self.next_of_others(),
            _ => Vec::new(),
        }
    }

    /// Follows the next run that another client started.
    fn next_of_others(&mut self) -> Vec<Command> {
        while let Some(run_id) = self.queue.of_others.pop_front() {
            if !self.queue.left.contains(&run_id) {
                self.queue.runs.retain(|queued| queued.run_id != run_id);
                return self.join(&run_id);
            }
        }
        Vec::new()
    }

    pub(super) fn show_queue(&mut self) -> Vec<Command> {
        self.overlay = Some(Overlay::Queue(0));
        self.session.id.iter().map(|id| Command::ListQueue(id.clone())).collect()
    }

    /// Handles the list of queued runs, which includes those of other callers.
    pub(super) fn queue_listed(
        &mut self,
        session_id: &str,
        answer: Result<Vec<QueuedRun>, String>,
    ) -> Vec<Command> {
        if self.session.id.as_deref() != Some(session_id) {
            return Vec::new();
        }
        let listed = match answer {
            Ok(listed) => listed,
            Err(why) => {
                self.transcript.note(Tone::Bad, &why);
                return Vec::new();
            }
        };
        let known = |run_id: &str| self.queue.runs.iter().find(|queued| queued.run_id == run_id);
        let leaves = |run_id: &str| known(run_id).is_some_and(|queued| queued.removing);
        let comes_back = |run_id: &str| known(run_id).is_some_and(|queued| queued.taken_back);
        let mut queue: Vec<QueueItem> = listed
            .into_iter()
            .filter(|waiting| !self.queue.left.contains(&waiting.run.run_id))
            .map(|QueuedRun { run, text }| QueueItem {
                removing: leaves(&run.run_id),
                taken_back: comes_back(&run.run_id),
                run_id: run.run_id,
                text: sanitize(&text),
                accepted: true,
            })
            .collect();
        let is_listed = |run_id: &str| queue.iter().any(|queued| queued.run_id == run_id);
        let unlisted: Vec<QueueItem> = self
            .queue
            .runs
            .iter()
            .filter(|queued| !queued.accepted && !is_listed(&queued.run_id))
            .cloned()
            .collect();
        queue.extend(unlisted);
        self.queue.runs = queue.into();
        self.clamp_queue_selection();
        self.next_in_queue()
    }

    /// Handles the removal of a run from the queue.
    pub(super) fn run_removed(&mut self, run_id: &str, answer: Result<(), String>) -> Vec<Command> {
        match answer {
            Ok(()) => {
                self.queue.left.insert(run_id.to_owned());
                let at = self.queue.runs.iter().position(|queued| queued.run_id == run_id);
                if let Some(removed) =
                    at.and_then(|at| self.queue.runs.remove(at)).filter(|removed| removed.taken_back)
                {
                    self.back_to_editor(&removed.text);
                }
            }
            Err(why) => {
                if let Some(queued) = self.queue.runs.iter_mut().find(|queued| queued.run_id == run_id) {
                    (queued.removing, queued.taken_back) = (false, false);
                }
                self.transcript.note(Tone::Bad, &why);
            }
        }
        self.clamp_queue_selection();
        let is_removed = !self.queue.runs.iter().any(|queued| queued.removing);
        if is_removed && std::mem::take(&mut self.queue.aborts_after_removal) {
            self.abort()
        } else {
            Vec::new()
        }
    }

    /// Puts a text below what the editor has.
    fn back_to_editor(&mut self, text: &str) {
        let typed = self.editor.text();
        let texts = [typed.as_str(), text];
        self.editor.set(&texts.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n"));
    }

    /// Asks what becomes of the queue, before ctrl-C aborts the live run.
    pub(super) fn ask_about_queue(&mut self) {
        self.asks_about_queue = true;
        let count = self.queue.runs.len();
        self.hint = Some(format!(
            "queued: {count}. n: abort, the next one starts  t: take them back, then abort  Esc: go on  ctrl-C: leave"
        ));
    }

    /// Handles the answer to that. Another key is none.
    pub(super) fn abort_choice_key(&mut self, key: KeyEvent) -> Vec<Command> {
        match key.code {
            KeyCode::Char('n') => {
                self.asks_about_queue = false;
                self.hint = Some("aborting the run; ctrl-C again leaves at once".into());
                self.interrupted_once = true;
                self.abort()
            }
            KeyCode::Char('t') => {
                self.asks_about_queue = false;
                let removals: Vec<Command> =
                    (0..self.queue.runs.len()).flat_map(|at| self.remove_at(at, true)).collect();
                if removals.is_empty() {
                    return self.abort();
                }
                self.queue.aborts_after_removal = true;
                removals
            }
            KeyCode::Esc => {
                self.asks_about_queue = false;
                Vec::new()
            }
            _ => {
                self.ask_about_queue();
                Vec::new()
            }
        }
    }

    pub(super) fn queue_key(&mut self, key: KeyEvent) -> Vec<Command> {
        let Some(Overlay::Queue(at)) = &mut self.overlay else { return Vec::new() };
        let count = self.queue.runs.len().max(1);
        match key.code {
            KeyCode::Down => *at = (*at + 1) % count,
            KeyCode::Up => *at = (*at + count - 1) % count,
            KeyCode::Esc | KeyCode::Char('q') => self.overlay = None,
            KeyCode::Char('d') | KeyCode::Delete | KeyCode::Backspace => {
                let at = *at;
                return self.remove_at(at, false);
            }
            KeyCode::Char('e') | KeyCode::Enter => {
                let at = *at;
                let removal = self.remove_at(at, true);
                if !removal.is_empty() {
                    self.overlay = None;
                }
                return removal;
            }
            _ => {}
        }
        Vec::new()
    }

    /// Removes a queued run. Its text goes back to the editor if it is taken back.
    fn remove_at(&mut self, at: usize, taken_back: bool) -> Vec<Command> {
        match (self.queue.runs.get_mut(at), &self.session.id) {
            (Some(queued), Some(session_id)) if queued.accepted && !queued.removing => {
                (queued.removing, queued.taken_back) = (true, taken_back);
                vec![Command::Remove { session_id: session_id.clone(), run_id: queued.run_id.clone() }]
            }
            _ => Vec::new(),
        }
    }

    /// Moves the selection to a line that exists.
    fn clamp_queue_selection(&mut self) {
        if let Some(Overlay::Queue(at)) = &mut self.overlay {
            *at = (*at).min(self.queue.runs.len().saturating_sub(1));
        }
    }
}
