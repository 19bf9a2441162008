//! What is said while a run is under way: it waits for its turn, or it is told to the run.

use agentloop_client::v1::{BusySessionPolicy, RunInput};
use crossterm::event::{KeyCode, KeyEvent};

use super::{App, Command, Overlay, Unsent};
use crate::{
    chat::{event::Trouble, transcript::Tone},
    command::queue::Waiting,
    terminal::text::tame,
};

/// What is on its way at once; more than anybody types before the server answers.
const ON_THEIR_WAY_MAX: usize = 64;

/// What becomes of words that are typed while a run is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Busy {
    /// They are a run of their own, which waits for its turn.
    Queue,
    /// The run reads them with its next model call.
    Steer,
}

/// A run that waits for its turn.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Queued {
    pub(crate) run_id: String,
    /// What it was asked, fit to be drawn.
    pub(crate) text: String,
    /// The server has it.
    pub(crate) sure: bool,
    /// It is being taken out.
    pub(crate) leaving: bool,
}

impl Queued {
    fn of(unsent: &Unsent) -> Queued {
        let run_id = unsent.run_id().to_owned();
        Queued { run_id, text: tame(&unsent.text), sure: false, leaving: false }
    }
}

impl App {
    /// Sends what was typed to the session whose run is under way.
    pub(super) fn say(&mut self, busy: Busy) -> Vec<Command> {
        if self.session.id.is_none() || self.on_their_way.len() == ON_THEIR_WAY_MAX {
            self.hint = Some("a moment: the server has not answered yet".into());
            return Vec::new();
        }
        let policy = match busy {
            Busy::Queue => BusySessionPolicy::Enqueue,
            Busy::Steer => BusySessionPolicy::Steer,
        };
        let unsent = self.take_typed(|input| RunInput { on_busy_session: policy.into(), ..input });
        self.say_again(unsent)
    }

    /// Sends what is for a session that is, or was, busy.
    pub(super) fn say_again(&mut self, unsent: Unsent) -> Vec<Command> {
        if unsent.input.on_busy_session() == BusySessionPolicy::Steer {
            self.hint = Some("telling the run: it reads this before it asks its model again".into());
        } else {
            self.queue.push_back(Queued::of(&unsent));
        }
        let say = Command::Say(Box::new(unsent.input.clone()));
        self.on_their_way.push(unsent);
        vec![say]
    }

    /// The server has taken what was said. Where the session was at rest meanwhile, it is a run of its own.
    pub(super) fn accepted(&mut self, sent_as: &str, by: &str) -> Vec<Command> {
        let Some(unsent) = self.take_on_its_way(sent_as) else { return Vec::new() };
        match self.queue.iter_mut().find(|queued| queued.run_id == sent_as) {
            Some(queued) => queued.sure = true,
            None if by == sent_as => self.queue.push_front(Queued { sure: true, ..Queued::of(&unsent) }),
            None => {}
        }
        self.next_in_queue()
    }

    /// The server has not taken what was said, or it is not known: it stands in the editor again.
    pub(super) fn not_accepted(&mut self, sent_as: &str, trouble: &Trouble) -> Vec<Command> {
        let Some(unsent) = self.take_on_its_way(sent_as) else { return Vec::new() };
        self.queue.retain(|queued| queued.run_id != sent_as);
        self.transcript.note(Tone::Bad, &format!("not sent: {}", trouble.message));
        if self.editor.is_empty() {
            self.editor.set(&unsent.text);
            self.unsent = trouble.unreachable.then_some(unsent);
        } else {
            self.transcript.note(Tone::Warning, &format!("this was not sent: {}", unsent.text));
        }
        self.next_in_queue()
    }

    fn take_on_its_way(&mut self, run_id: &str) -> Option<Unsent> {
        let at = self.on_their_way.iter().position(|unsent| unsent.run_id() == run_id)?;
        Some(self.on_their_way.remove(at))
    }

    /// Follows what is next, once nothing is under way and the server has it.
    pub(super) fn next_in_queue(&mut self) -> Vec<Command> {
        match self.queue.front() {
            Some(next) if self.live.is_none() && next.sure => {
                let run_id = next.run_id.clone();
                self.queue.pop_front();
                self.join(&run_id)
            }
            _ => Vec::new(),
        }
    }

    pub(super) fn show_queue(&mut self) -> Vec<Command> {
        self.overlay = Some(Overlay::Queue(0));
        self.session.id.iter().map(|id| Command::ListWaiting(id.clone())).collect()
    }

    /// What waits on the server, whoever said it.
    pub(super) fn waiting(&mut self, session_id: &str, answer: Result<Vec<Waiting>, String>) -> Vec<Command> {
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
        let leaves = |run_id: &str| self.queue.iter().any(|queued| queued.run_id == run_id && queued.leaving);
        let mut queue: Vec<Queued> = listed
            .into_iter()
            .filter(|waiting| !self.past.contains(&waiting.run.run_id))
            .map(|Waiting { run, text }| Queued {
                leaving: leaves(&run.run_id),
                run_id: run.run_id,
                text: tame(&text),
                sure: true,
            })
            .collect();
        let is_listed = |run_id: &str| queue.iter().any(|queued| queued.run_id == run_id);
        let unlisted: Vec<Queued> =
            self.queue.iter().filter(|queued| !queued.sure && !is_listed(&queued.run_id)).cloned().collect();
        queue.extend(unlisted);
        self.queue = queue.into();
        self.keep_in_queue();
        self.next_in_queue()
    }

    /// A run was taken out of the queue.
    pub(super) fn removed(&mut self, run_id: &str, answer: Result<(), String>) -> Vec<Command> {
        match answer {
            Ok(()) => {
                self.past.insert(run_id.to_owned());
                self.queue.retain(|queued| queued.run_id != run_id);
            }
            Err(why) => {
                if let Some(queued) = self.queue.iter_mut().find(|queued| queued.run_id == run_id) {
                    queued.leaving = false;
                }
                self.transcript.note(Tone::Bad, &why);
            }
        }
        self.keep_in_queue();
        Vec::new()
    }

    pub(super) fn queue_key(&mut self, key: KeyEvent) -> Vec<Command> {
        let Some(Overlay::Queue(at)) = &mut self.overlay else { return Vec::new() };
        let count = self.queue.len().max(1);
        match key.code {
            KeyCode::Down => *at = (*at + 1) % count,
            KeyCode::Up => *at = (*at + count - 1) % count,
            KeyCode::Esc | KeyCode::Char('q') => self.overlay = None,
            KeyCode::Char('d') | KeyCode::Delete | KeyCode::Backspace => {
                let at = *at;
                return self.remove_at(at);
            }
            _ => {}
        }
        Vec::new()
    }

    fn remove_at(&mut self, at: usize) -> Vec<Command> {
        match (self.queue.get_mut(at), &self.session.id) {
            (Some(queued), Some(session_id)) if queued.sure && !queued.leaving => {
                queued.leaving = true;
                vec![Command::Remove { session_id: session_id.clone(), run_id: queued.run_id.clone() }]
            }
            _ => Vec::new(),
        }
    }

    /// The picked line is one that there is.
    fn keep_in_queue(&mut self) {
        if let Some(Overlay::Queue(at)) = &mut self.overlay {
            *at = (*at).min(self.queue.len().saturating_sub(1));
        }
    }
}
