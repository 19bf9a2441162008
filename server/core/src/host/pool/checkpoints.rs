//! What calls save of their progress. Only the newest is ever needed, so of many in a row few become durable: what
//! comes too soon waits, the next one takes its place, and none waits longer than its host has the call.

use super::{Pool, Timer};
use crate::host::call::State;
use crate::host::frame::CallRef;
use crate::host::io::News;
use crate::id::CallId;
use crate::time::Millis;

/// Between two checkpoints of a call that its run is told of.
const CHECKPOINT_INTERVAL: Millis = Millis::secs(1);

impl Pool {
    /// A host saved how far a call is.
    pub(super) fn checkpoint(&mut self, call: &CallRef, checkpoint: Vec<u8>) {
        let now = self.now;
        let Some(held) = self.held(call) else { return };
        held.checkpoint = Some(checkpoint);
        match held.checkpoint_told.map(|told| told.after(CHECKPOINT_INTERVAL)).filter(|at| *at > now) {
            Some(at) => self.timers.set(Timer::Checkpoint(call.call.clone()), at),
            None => self.tell_checkpoint(&call.call),
        }
    }

    /// The run is told of what waits, if anything does.
    pub(super) fn tell_checkpoint(&mut self, id: &CallId) {
        let now = self.now;
        let Some(State::Held(held)) = self.calls.get_mut(id).map(|call| &mut call.state) else { return };
        let Some(checkpoint) = held.checkpoint.take() else { return };
        held.checkpoint_told = Some(now);
        let attempt = held.attempt;
        self.timers.clear(&Timer::Checkpoint(id.clone()));
        self.news(id, News::Checkpoint { attempt, checkpoint });
    }
}
