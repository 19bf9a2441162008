//! When a run has nothing to do: it ends, or parks, which takes no more mail.

use agentloop_core::run::state::Phase;

use crate::engine::run_task::{End, RunTask};
use crate::engine::table::Mailbox;
use crate::store::StoreError;

impl RunTask {
    /// Whether this was the last step for now.
    pub(super) fn end(&self) -> Option<End> {
        if matches!(self.machine.state().phase, Phase::Finished { .. }) {
            return Some(End::Finished);
        }
        self.may_park().then_some(End::Parked)
    }

    /// Whether the task may end, and somebody will wake the run: what its row says was true when it was written, and a
    /// clock that is set back makes a short wait a long one.
    pub(super) fn may_park(&self) -> bool {
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

    /// Takes no more mail, and sees to what has come by now. If that brings the run back to life, it opens again.
    pub(super) async fn close(&mut self) -> Result<Option<End>, StoreError> {
        self.mailbox.close();
        let mut end = Some(End::Parked);
        while let Some(mail) = self.mailbox.recv().await {
            end = match self.mail(mail).await? {
                None if self.may_park() => Some(End::Parked),
                end => end,
            };
            if matches!(end, Some(End::Finished)) {
                return Ok(end);
            }
        }
        if end.is_none() {
            let (mailbox, receiver) = Mailbox::new();
            self.mailbox = receiver;
            self.place.occupy(mailbox);
        }
        if matches!(end, Some(End::Parked)) && self.machine.deadline().is_some() {
            self.wake.parked();
        }
        Ok(end)
    }
}
