//! The warning that a call which did not end may have taken effect.

use crate::message::ToolStatus;
use crate::run::event::Ran;
use crate::run::state::RoundCall;

const WARNING: &str = "it may have taken effect all the same";

/// The output of a result, with a warning for the model if the status is misleading. It is if it says that the call did not
/// run or end, while the call may have taken effect and must not run twice. `last` tells if the last attempt ran.
pub(in crate::run::transition) fn warned(
    call: &RoundCall,
    status: ToolStatus,
    last: Ran,
    output: String,
) -> String {
    let is_doubtful = match status {
        ToolStatus::Rejected
        | ToolStatus::Denied
        | ToolStatus::Aborted
        | ToolStatus::TimedOut
        | ToolStatus::Unavailable => may_have_taken_effect(call, last),
        // These results speak for all attempts of the call.
        ToolStatus::Succeeded | ToolStatus::Failed | ToolStatus::Answered | ToolStatus::OutcomeUnknown => {
            false
        }
    };
    match (is_doubtful, output.is_empty()) {
        (false, _) => output,
        (true, true) => WARNING.to_owned(),
        (true, false) => format!("{output}; {WARNING}"),
    }
}

/// True if the call may have taken effect and must not run twice.
fn may_have_taken_effect(call: &RoundCall, last: Ran) -> bool {
    // A call that goes on from a state has done what was before it. One that a person had run again may have run before.
    let by_earlier = call.resume.is_some() || call.attempts.repeated_in_doubt;
    let by_last = last != Ran::No && (call.in_flight() || call.is_in_doubt());
    (by_earlier || by_last) && !call.terms.effect.repeatable()
}
