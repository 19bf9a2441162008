//! When a run has nothing to do: it ends, or parks, which takes no more mail.

use agentloop_core::run::state::Phase;
use tokio::sync::mpsc;

use crate::engine::run::table::{Mail, Mailbox};
use crate::engine::run::task::{End, RunTask};
use crate::store::StoreError;

impl RunTask {
    /// Whether this was the last step for now.
    pub(in crate::engine) fn end(&self) -> Option<End> {
        if matches!(self.machine.state().phase, Phase::Finished { .. }) {
            return Some(End::Finished);
        }
        self.may_park().then_some(End::Parked)
    }

    /// Whether the task may end, and somebody will wake the run: what its row says was true when it was written, and a
    /// clock that is set back makes a short wait a long one.
    pub(in crate::engine) fn may_park(&self) -> bool {
        self.parks() && (self.wakes || self.machine.deadline().is_none())
    }

    /// Whether nothing will happen until someone outside, or a distant time, moves the run.
    pub(in crate::engine) fn parks(&self) -> bool {
        if !self.judging.is_empty() {
            return false;
        }
        let state = self.machine.state();
        match &state.phase {
            Phase::Queued => true,
            Phase::BackingOff { until, .. } => {
                until.since(self.deps.clock.now()) > self.deps.options.park_after
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
                    && !self.machine.is_stepping()
                    && self.executing.is_empty()
                    && !state.is_at_hosts()
            }
        }
    }

    /// Takes no more mail, unless some has come by now: that is seen to with the mailbox open again, since what it leads
    /// to may be told of at once, and only once.
    pub(in crate::engine) async fn close(&mut self) -> Result<Option<End>, StoreError> {
        loop {
            self.mailbox.close();
            let Some(mut mail) = self.mailbox.recv().await else {
                if self.machine.deadline().is_some() {
                    self.wake.parked();
                }
                return Ok(Some(End::Parked));
            };
            let mut earlier = self.reopen();
            let end = loop {
                let end = self.mail(mail).await?;
                if matches!(end, Some(End::Finished)) {
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

    /// Takes mail again; what came before comes out of the earlier mailbox.
    fn reopen(&mut self) -> mpsc::Receiver<Mail> {
        let (mailbox, receiver) = Mailbox::new();
        self.place.occupy(mailbox);
        std::mem::replace(&mut self.mailbox, receiver)
    }
}
