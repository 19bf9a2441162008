//! Ends a task that has nothing to do: the run has finished, or it parks until something outside moves it.

use agentloop_core::run::state::Phase;
use tokio::sync::mpsc;

use crate::engine::run::table::{Mail, Mailbox};
use crate::engine::run::task::{RunTask, TaskEnd};
use crate::store::StoreError;

impl RunTask {
    /// The reason to end the task now, if there is one.
    pub(in crate::engine) fn check_end(&self) -> Option<TaskEnd> {
        if matches!(self.machine.state().phase(), Phase::Finished { .. }) {
            return Some(TaskEnd::Finished);
        }
        self.may_park().then_some(TaskEnd::Parked)
    }

    /// True if the run waits and something will wake it. A run with a deadline must have a wake time in its row, by the
    /// clock as it is. The row may lack one although the run waits now: the run's wait was short when the row was written,
    /// and the clock was set back since.
    pub(in crate::engine) fn may_park(&self) -> bool {
        let is_woken_in_time = self.row.has_wake_time && !self.machine.is_ahead();
        self.is_waiting() && (is_woken_in_time || self.machine.deadline().is_none())
    }

    /// True if nothing happens until an input from outside or a distant deadline moves the run.
    pub(in crate::engine) fn is_waiting(&self) -> bool {
        if !self.running.hooks.is_empty() {
            return false;
        }
        let state = self.machine.state();
        match state.phase() {
            Phase::Queued => true,
            Phase::BackingOff { .. } => {
                let now = self.deps.clock.now();
                self.machine.deadline().is_some_and(|due| due.since(now) > self.deps.options.park_after)
            }
            Phase::New
            | Phase::Preparing
            | Phase::ModelRunning(_)
            | Phase::Compacting(_)
            | Phase::Observed { .. }
            | Phase::Tools(_)
            | Phase::Paused { .. }
            | Phase::Finished { .. } => {
                state.status().is_some_and(|status| status.is_interrupted())
                    && !self.machine.has_pending_step()
                    && self.running.answers.is_empty()
                    && !state.has_calls_in_flight()
            }
        }
    }

    /// Closes the mailbox and ends the task. Mail that is already in the mailbox is handled first, with a new mailbox
    /// open: its effects may send mail at once, and some of it is sent only once. `None` if the run has work again.
    pub(in crate::engine) async fn park(&mut self) -> Result<Option<TaskEnd>, StoreError> {
        loop {
            self.mailbox.close();
            let Some(mut mail) = self.mailbox.recv().await else {
                if self.machine.deadline().is_some() {
                    self.wake_signal.run_parked();
                }
                return Ok(Some(TaskEnd::Parked));
            };
            let mut earlier = self.reopen();
            let end = loop {
                let end = self.handle_mail(mail).await?;
                if matches!(end, Some(TaskEnd::Finished | TaskEnd::Stopped)) {
                    return Ok(end);
                }
                mail = match earlier.recv().await {
                    Some(next) => next,
                    None => break end,
                };
            };
            if end.is_none() && !self.may_park() {
                return Ok(None);
            }
        }
    }

    /// Opens a new mailbox and returns the receiver of the closed one, which still holds mail.
    fn reopen(&mut self) -> mpsc::Receiver<Mail> {
        let (mailbox, receiver) = Mailbox::new();
        self.permit.set_live(mailbox);
        std::mem::replace(&mut self.mailbox, receiver)
    }
}
