//! The records of one step of a stepped run, read from the journal.

use crate::id::RunId;
use crate::run::event::Record;
use crate::run::state::RunState;

/// The records of one step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepRecords<'a> {
    /// The records from the step's instruction to the first point at which the run rests.
    pub records: &'a [Record],
    /// True if the run has come to that point.
    pub is_done: bool,
}

/// The step that this request asked for; `None` if there is none. A journal that has grown since gives the same records.
///
/// # Panics
/// When the records are not a journal that a machine wrote.
#[must_use]
pub fn step_of<'a>(run: &RunId, records: &'a [Record], request: &str) -> Option<StepRecords<'a>> {
    let mut state = RunState::new(run.clone());
    let mut from = None;
    for (at, record) in records.iter().enumerate() {
        state.apply(record);
        if from.is_none() && state.steps().contains_key(request) {
            from = Some(at);
        }
        if let Some(from) = from.filter(|_| state.is_at_rest()) {
            return Some(StepRecords { records: &records[from..=at], is_done: true });
        }
    }
    from.map(|from| StepRecords { records: &records[from..], is_done: false })
}
