//! A journal folded anew, event by event, and what does not fit.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::id::{RunId, Seq};
use crate::run::event::Record;
use crate::run::state::RunState;
use crate::tool::Digest;

/// What came of folding a journal.
#[derive(Debug, Clone, PartialEq)]
pub struct Replayed {
    /// Events that fitted.
    pub events: u64,
    /// The state after those.
    pub state: RunState,
    /// The first event that does not fit, and how.
    pub difference: Option<String>,
}

/// Folds a journal, whatever is in it. `visit` is shown the state after each event that fits, and says what is wrong
/// with it, if anything is.
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
    // What the fold asserts is what a journal must be; of the copy nothing is used after a panic.
    catch_unwind(AssertUnwindSafe(|| after.apply(record))).map_err(|panic| words(&*panic))?;
    let status = after.status().map_or("none", |status| status.as_str());
    if status == record.status.as_str() {
        Ok(after)
    } else {
        Err(format!("it says {}, the fold says {status}", record.status.as_str()))
    }
}

fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "it does not fit".to_owned())
}

impl RunState {
    /// Of everything that is known of the run: equal journals give equal digests, as one version of this program
    /// folds them.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of(&[format!("{self:?}").as_bytes()])
    }
}
