//! Checkpoints: progress that a call saves for its next attempt.
//!
//! Only the newest checkpoint is needed, and each one that is reported to the run is a durable write. So at most one a
//! second is reported: an early one waits, and is replaced by the next. None waits longer than its host has the call.

use super::{TenantPool, Timer};
use crate::host::call::FleetCallState;
use crate::host::frame::CallRef;
use crate::host::io::CallUpdate;
use crate::id::CallId;
use crate::time::Millis;

/// Shortest time between two checkpoints of a call that are reported to its run.
const CHECKPOINT_INTERVAL: Millis = Millis::secs(1);

impl TenantPool {
    /// Takes a checkpoint from a host, and reports it now or when the interval has passed.
    pub(super) fn checkpoint(&mut self, call: &CallRef, checkpoint: Vec<u8>) {
        let now = self.now;
        let Some(assignment) = self.assignment(call) else { return };
        assignment.checkpoint = Some(checkpoint);
        match assignment
            .checkpoint_reported_at
            .map(|told| told.after(CHECKPOINT_INTERVAL))
            .filter(|at| *at > now)
        {
            Some(at) => self.timers.set(Timer::Checkpoint(call.call.clone()), at),
            None => self.report_checkpoint(&call.call),
        }
    }

    /// Reports the waiting checkpoint to the run, if there is one.
    pub(super) fn report_checkpoint(&mut self, id: &CallId) {
        let now = self.now;
        let Some(FleetCallState::Assigned(assignment)) = self.calls.get_mut(id).map(|call| &mut call.state)
        else {
            return;
        };
        let Some(checkpoint) = assignment.checkpoint.take() else { return };
        assignment.checkpoint_reported_at = Some(now);
        let attempt = assignment.attempt;
        self.timers.clear(&Timer::Checkpoint(id.clone()));
        self.tell(id, CallUpdate::Checkpoint { attempt, checkpoint });
    }
}
