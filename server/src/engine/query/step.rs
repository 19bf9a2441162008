//! A stepped run goes on by one instruction.

use std::panic::catch_unwind;
use std::sync::Arc;

use agentloop_core::id::{RequestId, RunId, RunKey, Seq, TenantId};
use agentloop_core::run::event::{Event, Record};
use agentloop_core::run::input::Input;
use agentloop_core::run::plan::Instruction;
use agentloop_core::run::steps::step_of;

use crate::engine::Engine;
use crate::engine::error::EngineError;
use crate::engine::query::view::RunView;
use crate::store::StoreError;

/// Who approves by stepping on.
const STEPPER: &str = "step";

/// What a step did.
#[derive(Debug, Clone)]
pub struct StepDone {
    /// What was carried out.
    pub instruction: Instruction,
    /// Its events, the decision first.
    pub records: Vec<Arc<Record>>,
    /// The run as it stands by now.
    pub view: RunView,
}

impl Engine {
    /// Carries out the next instruction of a stepped run, and waits until that is done, needs someone, or ends the
    /// run. The same request again waits for the same step and gives the same events.
    ///
    /// # Errors
    /// [`EngineError::RunNotFound`], [`EngineError::RequestNotFound`] or [`EngineError::Refused`] for a question that
    /// cannot be approved, [`EngineError::Refused`] when it is not its time or the request was another, or the store's.
    pub async fn step(
        &self,
        tenant: &TenantId,
        run: &RunId,
        request: &str,
        approve: Option<&RequestId>,
    ) -> Result<StepDone, EngineError> {
        let key = RunKey::new(tenant.clone(), run.clone());
        let input =
            || Input::Step { request: request.to_owned(), approve: approve.cloned(), by: STEPPER.to_owned() };
        self.ask(&key, input).await?;
        loop {
            let records = self.journal(&key).await?;
            let last = records.last().map_or(Seq(0), |record| record.seq);
            match find_step(&key, &records, request)? {
                Some(step) => {
                    let Some(Event::Planned { instruction, .. }) = step.first().map(|first| &first.event)
                    else {
                        unreachable!("a step begins with its decision")
                    };
                    let (instruction, records) = (instruction.clone(), step.to_vec());
                    let records = records.into_iter().map(Arc::new).collect();
                    return Ok(StepDone { instruction, records, view: self.view(tenant, run).await? });
                }
                None => self.next_stop(tenant, run, last).await?,
            }
        }
    }
}

/// The step, once it is over.
fn find_step<'a>(
    RunKey { run, .. }: &RunKey,
    records: &'a [Record],
    request: &str,
) -> Result<Option<&'a [Record]>, EngineError> {
    let found = catch_unwind(|| step_of(run, records, request)).map_err(|_| {
        EngineError::Store(StoreError::Corrupt { what: format!("the journal of run {run} does not fold") })
    })?;
    Ok(found.filter(|step| step.over).map(|step| step.records))
}
