//! Memory for effects that read the session's history. A run that finds no memory gives up its history, waits its turn, and
//! loads the history again.

use std::future::ready;
use std::pin::Pin;

use agentloop_core::id::RunKey;
use agentloop_core::run::input::{AbortCause, Input};

use crate::engine::error::damaged_entry;
use crate::engine::memory::{ListedWait, RESPONSE_BYTES};
use crate::engine::run::recovery_order::RecoveryPlace;
use crate::engine::run::task::{RunTask, TaskEnd};
use crate::memory::Charge;
use crate::store::StoreError;

/// Starts an effect, which holds the charge.
type Start = Box<dyn FnOnce(&mut RunTask, Charge) + Send>;

/// An effect that waits for memory, or for its history.
pub(in crate::engine) struct MemoryWait {
    start: Start,
    pub(super) reserved: Pin<Box<dyn Future<Output = WaitEnd> + Send>>,
    /// `None` if only the history is still to be loaded.
    _listed: Option<ListedWait>,
    /// True if the run has not requested memory yet. It may hold its history, and gives it up if others want the memory.
    before_asking: bool,
}

/// The result of a wait.
pub(super) enum WaitEnd {
    Reserved(Charge),
    /// The run may request memory.
    MayAsk,
    /// The run alone needs more than all runs may have: this many bytes.
    TooLarge(usize),
}

/// The outcome of loading the history.
enum Loaded {
    /// It is loaded, and this is reserved for the effect.
    Ready(Charge),
    /// There is no memory. The run needs at least this many bytes.
    Wait(usize),
}

impl RunTask {
    /// Starts an effect that reads the history, now or when there is memory for it.
    pub(super) fn start_with_history(&mut self, start: impl FnOnce(&mut Self, Charge) + Send + 'static) {
        match self.memory.recovery_place.as_mut().and_then(RecoveryPlace::begin) {
            Some(earlier_done) => self.wait_for_place(Box::new(start), earlier_done),
            None => self.start_asking(start),
        }
    }

    fn wait_for_place(&mut self, start: Start, earlier_done: impl Future<Output = ()> + Send + 'static) {
        let listed = self.deps.memory.waits.add(self.permit.key());
        let reserved = Box::pin(async {
            earlier_done.await;
            WaitEnd::MayAsk
        });
        self.memory.wait = Some(MemoryWait { start, reserved, _listed: Some(listed), before_asking: true });
    }

    fn start_asking(&mut self, start: impl FnOnce(&mut Self, Charge) + Send + 'static) {
        if !self.history.is_loaded() {
            let reserved = self.deps.try_reserve(self.tenant(), RESPONSE_BYTES);
            self.wait_for_memory(Box::new(start), reserved, RESPONSE_BYTES);
            return;
        }
        let effect_bytes = self.effect_bytes();
        let bytes = self.history.bytes() + effect_bytes;
        let reserved = match bytes > self.bytes_max() {
            true => None,
            false => self.deps.try_reserve(self.tenant(), effect_bytes),
        };
        match reserved {
            Some(reserved) => start(self, reserved),
            None => self.wait_for_memory(Box::new(start), None, bytes),
        }
    }

    /// True if the history can be given up: nothing that is under way reads it.
    pub(super) fn can_unload(&self) -> bool {
        self.running.effect.is_none()
            && self.memory.wait.as_ref().is_none_or(|wait| wait.before_asking)
            && self.history.has_entries()
    }

    /// Goes on after the wait: loads the history and starts the effect, or waits again.
    pub(super) async fn handle_memory_wait(&mut self, end: WaitEnd) -> Result<Option<TaskEnd>, StoreError> {
        let Some(MemoryWait { start, .. }) = self.memory.wait.take() else { return Ok(None) };
        let reserved = match end {
            WaitEnd::Reserved(reserved) => reserved,
            WaitEnd::MayAsk => {
                self.start_asking(start);
                return Ok(self.check_end());
            }
            WaitEnd::TooLarge(bytes) => return self.fail_too_large(bytes).await,
        };
        match self.load_history(reserved).await {
            Ok(Loaded::Ready(reserved)) => {
                start(self, reserved);
                Ok(self.check_end())
            }
            Ok(Loaded::Wait(bytes)) => {
                self.wait_for_memory(start, None, bytes);
                Ok(None)
            }
            Err(error) if error.is_damage() => {
                tracing::error!(%error, "the history of this run's session cannot be read; the run fails");
                let reason = match error {
                    StoreError::DamagedEntry { session, entry, .. } => damaged_entry(&session, entry),
                    _ => "stored data of the session cannot be read".to_owned(),
                };
                self.handle_input(Input::Abort { cause: AbortCause::Fault, reason }, None).await
            }
            Err(error) => Err(error),
        }
    }

    async fn fail_too_large(&mut self, bytes: usize) -> Result<Option<TaskEnd>, StoreError> {
        let max = self.bytes_max();
        let reason = format!("the run needs about {bytes} bytes of memory; all live runs may have {max}");
        self.handle_input(Input::Abort { cause: AbortCause::Memory, reason }, None).await
    }

    /// Gives the history up, and waits until this many bytes can be reserved, unless they are already.
    fn wait_for_memory(&mut self, start: Start, reserved: Option<Charge>, bytes: usize) {
        let (reserved, listed): (Pin<Box<dyn Future<Output = WaitEnd> + Send>>, _) = match reserved {
            Some(charge) => (Box::pin(ready(WaitEnd::Reserved(charge))), None),
            None if bytes > self.bytes_max() => (Box::pin(ready(WaitEnd::TooLarge(bytes))), None),
            None => {
                self.history.unload();
                let listed = self.deps.memory.waits.add(self.permit.key());
                let (deps, tenant) = (self.deps.clone(), self.permit.key().tenant.clone());
                let reserved = async move { WaitEnd::Reserved(deps.reserve(&tenant, bytes).await) };
                (Box::pin(reserved), Some(listed))
            }
        };
        self.memory.wait = Some(MemoryWait { start, reserved, _listed: listed, before_asking: false });
    }

    /// Loads the missing part of the history. The loaded bytes count against the reservation.
    async fn load_history(&mut self, mut reserved: Charge) -> Result<Loaded, StoreError> {
        let reserved_bytes = reserved.bytes();
        let max = self.bytes_max();
        while !self.history.is_loaded() {
            // Few runs load at a time: how much a page brings is known only afterwards.
            let RunKey { tenant, .. } = self.permit.key();
            let _entered = self.deps.memory.journal_gate.enter(tenant).await;
            self.history.load_more(&*self.deps.store, tenant, &self.session).await?;
            let loaded = self.history.bytes();
            reserved.set(reserved_bytes.saturating_sub(loaded));
            if loaded > reserved_bytes && self.is_without_memory(loaded) {
                // The rest is unknown, so the next wait is for twice as much.
                return Ok(Loaded::Wait(if loaded > max { loaded } else { (2 * loaded).min(max) }));
            }
        }
        let effect_bytes = self.effect_bytes();
        let bytes = self.history.bytes() + effect_bytes;
        let missing = effect_bytes.saturating_sub(reserved.bytes());
        if bytes > max || (missing > 0 && self.free_bytes() < missing) {
            return Ok(Loaded::Wait(bytes));
        }
        reserved.set(effect_bytes);
        Ok(Loaded::Ready(reserved))
    }

    /// True if there is no memory for what is loaded, although idle histories were dropped.
    fn is_without_memory(&self, loaded: usize) -> bool {
        if self.free_bytes() == 0 {
            self.deps.free_memory(self.tenant(), 1);
        }
        loaded > self.bytes_max() || self.free_bytes() == 0
    }

    /// Bytes that the run's tenant may still take.
    fn free_bytes(&self) -> usize {
        self.deps.ledger_of(self.tenant()).free()
    }

    /// The output of an effect, made of the history: an encoded request and a response.
    fn effect_bytes(&self) -> usize {
        self.history.unencoded_bytes() + RESPONSE_BYTES
    }

    fn bytes_max(&self) -> usize {
        self.deps.ledger().bytes_max()
    }
}
