//! Hands inputs from outside to runs: live, parked, queued and finished ones.

use agentloop_core::id::RunKey;
use agentloop_core::run::input::Input;

use crate::engine::Engine;
use crate::engine::error::EngineError;
use crate::engine::fold::fold;
use crate::engine::run::recover::{HistoryNeed, Opening};
use crate::store::StoreError;

/// Attempts to hand one input to a run whose task keeps ending. A run that waits parks after each input, so many inputs at
/// a time need many attempts.
const DELIVERY_TRIES: u32 = 64;

impl Engine {
    /// Hands an input to a run, live or not. Returns when the events that it led to are durable.
    pub(in crate::engine) async fn deliver(
        &self,
        key: &RunKey,
        input: impl Fn() -> Input,
    ) -> Result<(), EngineError> {
        for _ in 0..DELIVERY_TRIES {
            if let Some(mailbox) = self.0.live_runs.live(key) {
                match mailbox.deliver(input()).await {
                    Some(verdict) => return verdict.map_err(EngineError::Refused),
                    // The task has ended. Its journal says whether it took the input, and the machine recognises a
                    // repetition.
                    None => {
                        self.check_running()?;
                    }
                }
            }
            let row = self.store().run(&key.tenant, &key.run).await?.ok_or(EngineError::RunNotFound)?;
            if row.summary.status.is_terminal() {
                return self.deliver_to_finished(key, input()).await;
            }
            if row.queue_no.is_some() {
                let (engine, of, input) = (self.clone(), key.clone(), input());
                let delivered =
                    self.run_detached(
                        "deliver queued",
                        async move { engine.deliver_to_queued(&of, input).await },
                    );
                match delivered.await? {
                    Some(verdict) => return verdict.map_err(EngineError::Refused),
                    // The run has entered its session meanwhile, or ended.
                    None => continue,
                }
            }
            let need =
                if is_taken_in_damaged_session(&input()) { HistoryNeed::Later } else { HistoryNeed::Now };
            self.ensure_live_with(key, Opening { need, ..Opening::default() }).await?;
        }
        Err(EngineError::Store(StoreError::Unavailable {
            what: "the run's task ends again and again; see the log".to_owned(),
        }))
    }

    /// Hands an input to a run that has ended. Its machine accepts a repetition of an earlier input and refuses others.
    async fn deliver_to_finished(&self, key: &RunKey, input: Input) -> Result<(), EngineError> {
        let _entered = self.deps().memory.journal_gate.enter(&key.tenant).await;
        let mut machine = fold(&key.run, &self.journal(key).await?)?;
        let transition = machine.handle(input, self.now())?;
        debug_assert!(transition.records.is_empty(), "a run that has ended does not change");
        Ok(())
    }
}

/// True for inputs that a run takes even if its session is damaged: its end, and reports of hosts, which would otherwise repeat
/// them for ever. Nothing else is begun for a run that cannot go on afterwards.
fn is_taken_in_damaged_session(input: &Input) -> bool {
    matches!(
        input,
        Input::Abort { .. }
            | Input::CallFinished(_)
            | Input::CallStopped { .. }
            | Input::CallResumable { .. }
            | Input::InputNeeded { .. }
    )
}
