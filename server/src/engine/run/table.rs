//! Which runs live here: each has one task and one mailbox. A run that waits for someone has neither.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use agentloop_core::error::Refusal;
use agentloop_core::id::RunKey;
use agentloop_core::run::input::Input;
use agentloop_core::run::state::State;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

/// Inputs that wait for a run's task.
const MAILBOX: usize = 256;

/// What an input led to, once that is durable.
pub(in crate::engine) type Reply = oneshot::Sender<Result<(), Refusal>>;

/// What a run's task is told from outside.
pub(in crate::engine) enum Mail {
    /// Something happened; nobody waits for an answer.
    Tell(Input),
    /// Something happened; the answer comes when what it led to is durable.
    Ask(Input, Reply),
    /// Someone wants to look at what is durable.
    Look(oneshot::Sender<Box<State>>),
}

/// A run's mailbox. The task that empties it may have ended: then it is closed.
#[derive(Clone)]
pub(in crate::engine) struct Mailbox(mpsc::Sender<Mail>);

impl Mailbox {
    pub(in crate::engine) fn new() -> (Self, mpsc::Receiver<Mail>) {
        let (sender, receiver) = mpsc::channel(MAILBOX);
        (Self(sender), receiver)
    }

    /// `None`: the task has ended, and the input was not taken.
    pub(in crate::engine) async fn ask(&self, input: Input) -> Option<Result<(), Refusal>> {
        let (reply, answer) = oneshot::channel();
        self.0.send(Mail::Ask(input, reply)).await.ok()?;
        answer.await.ok()
    }

    /// `None`: the task has ended.
    pub(in crate::engine) async fn look(&self) -> Option<Box<State>> {
        let (reply, answer) = oneshot::channel();
        self.0.send(Mail::Look(reply)).await.ok()?;
        answer.await.ok()
    }

    /// `false`: the task has ended, and the input was not taken.
    pub(in crate::engine) async fn tell(&self, input: Input) -> bool {
        self.0.send(Mail::Tell(input)).await.is_ok()
    }
}

enum Slot {
    /// Someone is bringing the run up; cancelled when that is over, well or not.
    Opening(CancellationToken),
    /// Its task runs; cancelled when it has ended.
    Live(Mailbox, CancellationToken),
}

/// The live runs.
#[derive(Clone, Default)]
pub(in crate::engine) struct Table(Arc<Mutex<HashMap<RunKey, Slot>>>);

/// What there is of a run.
pub(in crate::engine) enum Found {
    /// A task.
    Live,
    /// No task. Only the holder of this permit may start one.
    Vacant(StartPermit),
}

/// The right to start a run's task. The run's place is free again when this is dropped, or when the task that holds it
/// ends.
pub(in crate::engine) struct StartPermit {
    table: Table,
    key: RunKey,
    /// Tells those who wait: cancelled, and replaced, each time that a task is there, and when the permit is dropped.
    over: Mutex<CancellationToken>,
}

impl Table {
    /// The run's task, or the right to make one; waits while someone else is at it.
    pub(in crate::engine) async fn find(&self, key: &RunKey) -> Found {
        loop {
            match self.enter(key) {
                Ok(found) => return found,
                Err(over) => over.cancelled().await,
            }
        }
    }

    /// The run's task, if it has one now.
    pub(in crate::engine) fn live(&self, key: &RunKey) -> Option<Mailbox> {
        match self.slots().get(key) {
            Some(Slot::Live(mailbox, _)) => Some(mailbox.clone()),
            Some(Slot::Opening(_)) | None => None,
        }
    }

    /// How many there are.
    pub(in crate::engine) fn len(&self) -> usize {
        self.slots().len()
    }

    fn enter(&self, key: &RunKey) -> Result<Found, CancellationToken> {
        let mut slots = self.slots();
        match slots.get(key) {
            Some(Slot::Live(mailbox, _)) if !mailbox.0.is_closed() => Ok(Found::Live),
            Some(Slot::Live(_, over) | Slot::Opening(over)) => Err(over.clone()),
            None => {
                let over = CancellationToken::new();
                slots.insert(key.clone(), Slot::Opening(over.clone()));
                Ok(Found::Vacant(StartPermit {
                    table: self.clone(),
                    key: key.clone(),
                    over: Mutex::new(over),
                }))
            }
        }
    }

    fn slots(&self) -> std::sync::MutexGuard<'_, HashMap<RunKey, Slot>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StartPermit {
    /// The run that it is for.
    pub(in crate::engine) fn key(&self) -> &RunKey {
        &self.key
    }

    /// Puts a task's mailbox in the place, in place of an earlier one of the same task.
    pub(in crate::engine) fn occupy(&self, mailbox: Mailbox) {
        let mut slots = self.table.slots();
        if let Some(slot) = slots.get_mut(&self.key) {
            // Whoever waits from here on waits for the task's end.
            let ending = CancellationToken::new();
            *slot = Slot::Live(mailbox, ending.clone());
            self.next(ending);
        }
    }

    /// Tells those who wait, and has the others wait for this.
    fn next(&self, over: CancellationToken) {
        let mut current = self.over.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *current, over).cancel();
    }
}

impl Drop for StartPermit {
    fn drop(&mut self) {
        self.table.slots().remove(&self.key);
        self.next(CancellationToken::new());
    }
}

#[cfg(test)]
mod tests {
    use agentloop_core::id::{RunId, RunKey, TenantId};

    use super::*;

    #[tokio::test]
    async fn who_waits_for_a_run_to_come_up_goes_on_when_it_has() {
        let table = Table::default();
        let key = RunKey::new(TenantId::local(), RunId::parse("r1").unwrap());
        let Found::Vacant(place) = table.find(&key).await else { panic!("nobody is there") };
        let waiting = table.find(&key);
        let mut waiting = std::pin::pin!(waiting);
        assert!(futures_util::poll!(waiting.as_mut()).is_pending());
        let (mailbox, receiver) = Mailbox::new();
        place.occupy(mailbox);
        assert!(matches!(waiting.await, Found::Live));
        // A task that takes no more mail is waited for to its end.
        drop(receiver);
        let ending = table.find(&key);
        let mut ending = std::pin::pin!(ending);
        assert!(futures_util::poll!(ending.as_mut()).is_pending());
        drop(place);
        assert!(matches!(ending.await, Found::Vacant(_)));
    }
}
