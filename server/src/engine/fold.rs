//! Rebuilds a run's machine from its journal.

use std::panic::AssertUnwindSafe;

use agentloop_core::id::RunId;
use agentloop_core::run::event::Record;
use agentloop_core::run::machine::Machine;

use crate::engine::error::EngineError;
use crate::store::StoreError;

/// The machine of a run after these records.
///
/// # Errors
/// [`StoreError::Corrupt`] if no machine can have written the journal.
pub(in crate::engine) fn fold<'a>(
    run: &RunId,
    records: impl IntoIterator<Item = &'a Record>,
) -> Result<Machine, EngineError> {
    let folded = AssertUnwindSafe(|| Machine::replay(run.clone(), records));
    std::panic::catch_unwind(folded).map_err(|_| corrupt(run))
}

/// The error for a journal that cannot be folded.
pub(in crate::engine) fn corrupt(run: &RunId) -> EngineError {
    EngineError::Store(StoreError::Corrupt { what: format!("the journal of run {run} does not fold") })
}

/// The error for a journal without an event that was shown. A wait for the event would have no end.
pub(in crate::engine) fn incomplete(run: &RunId) -> EngineError {
    EngineError::Store(StoreError::Corrupt {
        what: format!("the journal of run {run} has lost an event that was shown"),
    })
}
