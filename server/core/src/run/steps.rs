//! What a step of a stepped run did, read from the journal.

use crate::id::RunId;
use crate::run::event::Record;
use crate::run::state::RunState;

/// What a step did.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stepped<'a> {
    /// From its instruction on, up to where the run rested for the first time.
    pub records: &'a [Record],
    /// Whether it has come that far.
    pub over: bool,
}

/// The step that was called for by this request; `None` where there is none. However much later it is asked for, the
/// answer is the same.
///
/// # Panics
/// When the records are not a journal that a machine wrote.
#[must_use]
pub fn step_of<'a>(run: &RunId, records: &'a [Record], request: &str) -> Option<Stepped<'a>> {
    let mut state = RunState::new(run.clone());
    let mut from = None;
    for (at, record) in records.iter().enumerate() {
        state.apply(record);
        if from.is_none() && state.steps().contains_key(request) {
            from = Some(at);
        }
        if let Some(from) = from.filter(|_| state.is_at_rest()) {
            return Some(Stepped { records: &records[from..=at], over: true });
        }
    }
    from.map(|from| Stepped { records: &records[from..], over: false })
}
