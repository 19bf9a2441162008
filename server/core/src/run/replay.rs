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
    let mut done = Replayed { events: 0, state: RunState::new(run.clone()), difference: None };
    for record in records {
        match next(&done.state, record).and_then(|state| visit(&state).map(|()| state)) {
            Ok(state) => {
                done.state = state;
                done.events += 1;
            }
            Err(why) => {
                let Seq(seq) = record.seq;
                done.difference = Some(format!("event {seq} ({}): {why}", record.event.kind()));
                break;
            }
        }
    }
    done
}

/// The state after one more event.
fn next(state: &RunState, record: &Record) -> Result<RunState, String> {
    let mut after = state.clone();
    // The fold panics on a journal that no machine wrote. The copy is dropped then.
    catch_unwind(AssertUnwindSafe(|| after.apply(record))).map_err(|panic| panic_text(&*panic))?;
    let status = after.status().map_or("none", |status| status.as_str());
    if status == record.status.as_str() {
        Ok(after)
    } else {
        Err(format!("it says {}, the fold says {status}", record.status.as_str()))
    }
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
