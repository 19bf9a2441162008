//! The runs that are live in this process. Each has one task and one mailbox; a parked run has neither.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agentloop_core::id::RunKey;
use agentloop_core::run::input::Input;
use agentloop_core::run::refusal::Refusal;
use agentloop_core::run::state::RunState;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

/// Inputs that may wait for a run's task. A sender waits while the mailbox is full.
const MAILBOX: usize = 256;

/// Receives the machine's verdict on an input, once everything that the input led to is durable.
pub(in crate::engine) type Reply = oneshot::Sender<Result<(), Refusal>>;

/// A message to a run's task.
pub(in crate::engine) enum Mail {
    /// An input whose sender waits for no reply.
    Input(Input),
    /// An input whose sender waits until it is durable.
    InputWithReply(Input, Reply),
    /// A request for the durable state.
    ReadState(oneshot::Sender<Box<RunState>>),
}

/// The sending end of a run's mailbox. It is closed once the task has ended.
#[derive(Clone)]
pub(in crate::engine) struct Mailbox(mpsc::Sender<Mail>);

impl Mailbox {
    pub(in crate::engine) fn new() -> (Self, mpsc::Receiver<Mail>) {
        let (sender, receiver) = mpsc::channel(MAILBOX);
        (Self(sender), receiver)
    }

    /// Hands over an input and waits for the verdict. `None` if the task ended first; the input may have been applied.
    pub(in crate::engine) async fn deliver(&self, input: Input) -> Option<Result<(), Refusal>> {
        let (reply, verdict) = oneshot::channel();
        self.0.send(Mail::InputWithReply(input, reply)).await.ok()?;
        verdict.await.ok()
    }

    /// The run's durable state. `None` if the task has ended.
    pub(in crate::engine) async fn state(&self) -> Option<Box<RunState>> {
        let (reply, state) = oneshot::channel();
        self.0.send(Mail::ReadState(reply)).await.ok()?;
        state.await.ok()
    }

    /// Hands over an input without waiting for the verdict. False if the task has ended and did not take it.
    pub(in crate::engine) async fn send(&self, input: Input) -> bool {
        self.0.send(Mail::Input(input)).await.is_ok()
    }
}

enum Entry {
    /// The holder of the permit is starting the task. The token is cancelled when it has started or given up.
    Starting(CancellationToken),
    /// The task runs. The token is cancelled when it has ended.
    Live(Mailbox, CancellationToken),
}

/// The table of live runs. Clones share one table.
#[derive(Clone, Default)]
pub(in crate::engine) struct LiveRuns(Arc<Mutex<HashMap<RunKey, Entry>>>);

/// The result of looking a run up in [`LiveRuns`].
pub(in crate::engine) enum Lookup {
    /// The run has a task here.
    Live,
    /// The run has no task. Only the holder of this permit may start one.
    NotLive(StartPermit),
}

/// The exclusive right to start a run's task. Dropping the permit, or the task that holds it, removes the run from the
/// table.
pub(in crate::engine) struct StartPermit {
    table: LiveRuns,
    key: RunKey,
    /// Wakes the look-ups that wait for this run. Cancelled and replaced when the task is live, cancelled on drop.
    changed: Mutex<CancellationToken>,
}

impl LiveRuns {
    /// Finds the run's task or grants the right to start one. Waits while another holder of the permit starts or ends
    /// the task.
    pub(in crate::engine) async fn find(&self, key: &RunKey) -> Lookup {
        loop {
            match self.try_find(key) {
                Ok(found) => return found,
                Err(changed) => changed.cancelled().await,
            }
        }
    }

    /// The mailbox of the run's task, if the run has one now.
    pub(in crate::engine) fn live(&self, key: &RunKey) -> Option<Mailbox> {
        match self.entries().get(key) {
            Some(Entry::Live(mailbox, _)) => Some(mailbox.clone()),
            Some(Entry::Starting(_)) | None => None,
        }
    }

    /// Runs that are live or starting.
    pub(in crate::engine) fn len(&self) -> usize {
        self.entries().len()
    }

    fn try_find(&self, key: &RunKey) -> Result<Lookup, CancellationToken> {
        let mut entries = self.entries();
        match entries.get(key) {
            Some(Entry::Live(mailbox, _)) if !mailbox.0.is_closed() => Ok(Lookup::Live),
            Some(Entry::Live(_, changed) | Entry::Starting(changed)) => Err(changed.clone()),
            None => {
                let changed = CancellationToken::new();
                entries.insert(key.clone(), Entry::Starting(changed.clone()));
                Ok(Lookup::NotLive(StartPermit {
                    table: self.clone(),
                    key: key.clone(),
                    changed: Mutex::new(changed),
                }))
            }
        }
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<RunKey, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StartPermit {
    /// The run that may be started.
    pub(in crate::engine) fn key(&self) -> &RunKey {
        &self.key
    }

    /// Puts the task's mailbox into the table. A task that replaces its mailbox calls this again.
    pub(in crate::engine) fn set_live(&self, mailbox: Mailbox) {
        let mut entries = self.table.entries();
        if let Some(entry) = entries.get_mut(&self.key) {
            // A look-up that waits from here on waits for the task's end.
            let ended = CancellationToken::new();
            *entry = Entry::Live(mailbox, ended.clone());
            self.wake_waiting(ended);
        }
    }

    /// Wakes the look-ups that wait now. Later ones wait for `next`.
    fn wake_waiting(&self, next: CancellationToken) {
        let mut changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *changed, next).cancel();
    }
}

impl Drop for StartPermit {
    fn drop(&mut self) {
        self.table.entries().remove(&self.key);
        self.wake_waiting(CancellationToken::new());
    }
}

#[cfg(test)]
mod tests {
    use agentloop_core::id::{RunId, RunKey, TenantId};

    use super::*;

    #[tokio::test]
    async fn who_waits_for_a_run_to_come_up_goes_on_when_it_has() {
        let table = LiveRuns::default();
        let key = RunKey::new(TenantId::local(), RunId::parse("r1").unwrap());
        let Lookup::NotLive(permit) = table.find(&key).await else { panic!("the run has no task yet") };
        let waiting = table.find(&key);
        let mut waiting = std::pin::pin!(waiting);
        assert!(futures_util::poll!(waiting.as_mut()).is_pending());
        let (mailbox, receiver) = Mailbox::new();
        permit.set_live(mailbox);
        assert!(matches!(waiting.await, Lookup::Live));
        // The mailbox is closed and the task has not ended: a look-up waits for its end.
        drop(receiver);
        let ending = table.find(&key);
        let mut ending = std::pin::pin!(ending);
        assert!(futures_util::poll!(ending.as_mut()).is_pending());
        drop(permit);
        assert!(matches!(ending.await, Lookup::NotLive(_)));
    }
}
