//! Checks a journal: folds it event by event, and reports the first event that does not fit.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::id::{RunId, Seq};
use crate::run::event::Record;
use crate::run::state::RunState;
use crate::tool::Digest;

/// Result of checking a journal.
#[derive(Debug, Clone, PartialEq)]
pub struct Replayed {
    /// Number of events that fit.
    pub events: u64,
    /// The state after these events.
    pub state: RunState,
    /// The first event that does not fit, and why; `None` if all fit.
    pub difference: Option<String>,
}

/// Folds a journal that may have any content. `visit` gets the state after each event that fits, and may reject it with
/// a reason.
#[must_use]
pub fn replay(
    run: &RunId,
    records: &[Record],
    mut visit: impl FnMut(&RunState) -> Result<(), String>,
) -> Replayed {
    let mut state = RunState::new(run.clone());
    for (at, record) in records.iter().enumerate() {
        if let Err(why) = apply(&mut state, record).and_then(|()| visit(&state)) {
            let Seq(seq) = record.seq;
            let difference = Some(format!("event {seq} ({}): {why}", record.event.kind()));
            return Replayed { events: at as u64, state: folded(run, &records[..at]), difference };
        }
    }
    Replayed { events: records.len() as u64, state, difference: None }
}

/// Applies one more event. If it does not fit, the state is of no use any more.
fn apply(state: &mut RunState, record: &Record) -> Result<(), String> {
    // The fold panics on a journal that no machine wrote.
    catch_unwind(AssertUnwindSafe(|| state.apply(record))).map_err(|panic| panic_text(&*panic))?;
    let status = state.status().map_or("none", |status| status.as_str());
    if status == record.status.as_str() {
        Ok(())
    } else {
        Err(format!("it says {}, the fold says {status}", record.status.as_str()))
    }
}

/// The state after events that fit.
fn folded(run: &RunId, records: &[Record]) -> RunState {
    let mut state = RunState::new(run.clone());
    for record in records {
        state.apply(record);
    }
    state
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "it does not fit".to_owned())
}

impl RunState {
    /// Digest of the whole state. Equal journals give equal digests within one version of this program.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of(&[format!("{self:?}").as_bytes()])
    }
}
