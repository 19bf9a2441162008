//! Moves a stepped run on by one instruction.

use std::panic::catch_unwind;
use std::sync::Arc;

use agentloop_core::id::{RequestId, RunId, RunKey, Seq, TenantId};
use agentloop_core::run::event::{Event, Record};
use agentloop_core::run::human::Person;
use agentloop_core::run::input::Input;
use agentloop_core::run::plan::Instruction;
use agentloop_core::run::steps::step_of;

use crate::engine::Engine;
use crate::engine::error::EngineError;
use crate::engine::fold::{corrupt, incomplete};
use crate::engine::query::view::RunView;

/// The name that the journal has for a caller who approves a call by stepping, and whose name no credential proves.
const STEPPER: &str = "step";

/// The result of a step.
#[derive(Debug, Clone)]
pub struct StepDone {
    /// The instruction that was carried out.
    pub instruction: Instruction,
    /// The events of the step. The first one is the planner's decision.
    pub records: Vec<Arc<Record>>,
    /// The run after the step. It may have moved on since.
    pub view: RunView,
}

impl Engine {
    /// Carries out the next instruction of a stepped run. `by` approves the question, if there is one. Waits until the
    /// instruction is done, waits for a human, or ends the run. The same request again waits for the same step and returns
    /// the same events.
    ///
    /// # Errors
    /// [`EngineError::RunNotFound`]; [`EngineError::RequestNotFound`] or [`EngineError::Refused`] for a question that
    /// cannot be approved; [`EngineError::Refused`] if the run takes no step now or the id was used for another
    /// request; the store's.
    pub async fn step(
        &self,
        tenant: &TenantId,
        run: &RunId,
        request: &str,
        approve: Option<&RequestId>,
        by: Person,
    ) -> Result<StepDone, EngineError> {
        let key = RunKey::new(tenant.clone(), run.clone());
        let mut by = self.asked_person(tenant, run, by).await?;
        if !by.is_proved {
            STEPPER.clone_into(&mut by.name);
        }
        let input = || Input::Step { request: request.to_owned(), approve: approve.cloned(), by: by.clone() };
        self.deliver(&key, input).await?;
        let mut waited_after = None;
        loop {
            let entered = self.deps().memory.journal_gate.enter(tenant).await;
            let records = self.journal(&key).await?;
            let last = records.last().map_or(Seq(0), |record| record.seq);
            match find_step(run, &records, request)? {
                Some(step) => {
                    let Some(Event::Planned { instruction, .. }) = step.first().map(|first| &first.event)
                    else {
                        unreachable!("a step begins with its decision")
                    };
                    let (instruction, records) = (instruction.clone(), step.to_vec());
                    let records = records.into_iter().map(Arc::new).collect();
                    drop(entered);
                    return Ok(StepDone { instruction, records, view: self.view(tenant, run).await? });
                }
                None => {
                    drop((records, entered));
                    // A wait ends with an event, and events are stored before they are shown.
                    if waited_after.replace(last) == Some(last) {
                        return Err(incomplete(run));
                    }
                    self.wait_for_stop(tenant, run, last).await?;
                }
            }
        }
    }
}

/// The events of the step of this request, once the step is over.
fn find_step<'a>(
    run: &RunId,
    records: &'a [Record],
    request: &str,
) -> Result<Option<&'a [Record]>, EngineError> {
    let found = catch_unwind(|| step_of(run, records, request)).map_err(|_| corrupt(run))?;
    Ok(found.filter(|step| step.is_done).map(|step| step.records))
}
