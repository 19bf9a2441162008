//! The situations of a run between two steps, and the way to each.

use agentloop_core::agent::{RetryPolicy, RunSpec};
use agentloop_core::id::CallSlot;
use agentloop_core::model::error::ModelErrorKind;
use agentloop_core::run::event::{Outcome, Ran};
use agentloop_core::run::human::Decision;
use agentloop_core::run::state::{CallState, Phase, RunState};
use agentloop_core::time::Millis;

use crate::support::*;

/// Settled in an earlier round, by its first try; a human approved it.
pub(super) const K: CallSlot = CallSlot { model_call: 1, position: 0 };
/// The call that the situation is about.
pub(super) const X: CallSlot = CallSlot { model_call: 2, position: 0 };
/// Settled in the same round, by its first try.
pub(super) const Y: CallSlot = CallSlot { model_call: 2, position: 1 };
/// A call that no run of these has.
pub(super) const NEVER: CallSlot = CallSlot { model_call: 9, position: 9 };

/// The situation of a run between two steps. A round is told by its one open call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Situation {
    New,
    Queued,
    ModelRunning,
    BackingOff,
    Paused,
    Completed,
    Failed,
    Aborted,
    AwaitingApproval,
    AwaitingInput,
    Ready,
    ReadyLater,
    Offered,
    Accepted,
    InDoubt,
    Compacting,
    Asking,
    Suspended,
}

/// The columns of the table, in order.
pub(super) const COLUMNS: [(Situation, &str); 18] = [
    (Situation::New, "New"),
    (Situation::Queued, "Que"),
    (Situation::ModelRunning, "Mod"),
    (Situation::BackingOff, "Bck"),
    (Situation::Paused, "Pau"),
    (Situation::Completed, "Com"),
    (Situation::Failed, "Fai"),
    (Situation::Aborted, "Abo"),
    (Situation::AwaitingApproval, "Awa"),
    (Situation::AwaitingInput, "Inp"),
    (Situation::Ready, "Rdy"),
    (Situation::ReadyLater, "Lat"),
    (Situation::Offered, "Off"),
    (Situation::Accepted, "Acc"),
    (Situation::InDoubt, "Dbt"),
    (Situation::Compacting, "Cmp"),
    (Situation::Asking, "Ask"),
    (Situation::Suspended, "Sus"),
];

/// Exhaustive, so that a new phase or call state has to find its column.
pub(super) fn situation_of(state: &RunState) -> Option<Situation> {
    match &state.phase() {
        Phase::New => Some(Situation::New),
        Phase::Queued => Some(Situation::Queued),
        // Only a run that is directed rests there: see the tests of steps and planners.
        Phase::Preparing | Phase::Observed { .. } => None,
        Phase::ModelRunning(_) => Some(Situation::ModelRunning),
        Phase::BackingOff { .. } => Some(Situation::BackingOff),
        Phase::Compacting(_) => Some(Situation::Compacting),
        Phase::Paused { .. } => Some(Situation::Paused),
        Phase::Finished { outcome: Outcome::Completed } => Some(Situation::Completed),
        Phase::Finished { outcome: Outcome::Failed } => Some(Situation::Failed),
        Phase::Finished { outcome: Outcome::Aborted } => Some(Situation::Aborted),
        Phase::Tools(calls) => {
            let mut open = calls.iter().filter(|call| !call.is_settled());
            let call = open.next()?;
            let situation = match call.state {
                CallState::Offered { .. } | CallState::Accepted { .. } if call.last.open_inputs > 0 => {
                    Some(Situation::Asking)
                }
                CallState::Proposed | CallState::AwaitingInstruction { .. } | CallState::Settled => None,
                CallState::AwaitingApproval { .. } => Some(Situation::AwaitingApproval),
                CallState::AwaitingInput { .. } => Some(Situation::AwaitingInput),
                CallState::Ready { not_before: None, .. } => Some(Situation::Ready),
                CallState::Ready { not_before: Some(_), .. } => Some(Situation::ReadyLater),
                CallState::Offered { .. } => Some(Situation::Offered),
                CallState::Accepted { .. } => Some(Situation::Accepted),
                CallState::InDoubt { .. } => Some(Situation::InDoubt),
                CallState::Suspended { .. } => Some(Situation::Suspended),
            };
            situation.filter(|_| open.next().is_none())
        }
    }
}

/// One retry, then a pause; questions stay open for ten minutes.
fn patient() -> RunSpec {
    RunSpec {
        retry: RetryPolicy {
            max_retries: 1,
            pause_when_exhausted: true,
            jitter: false,
            ..RetryPolicy::default()
        },
        approval_timeout: Some(Millis::secs(600)),
        in_doubt_timeout: Some(Millis::secs(600)),
        ..spec()
    }
}

/// A run with a past: more was said, it was paused and resumed, a human approved K, and K was run.
fn with_a_past() -> Script {
    let mut script = given(patient());
    script.does(steer("said", "and tomorrow?"));
    script.model_fails(ModelErrorKind::Timeout);
    script.wakes();
    script.model_fails(ModelErrorKind::Timeout);
    script.resumes("old");
    script.asks([tool("weather").approval()]);
    script.decides(K, Decision::Approve);
    script.runs(K, "sunny");
    script
}

/// A second round, whose Y is settled.
fn in_round(x: Tool) -> Script {
    let mut script = with_a_past();
    script.asks([x, tool("forecast")]);
    script.runs(Y, "cloudy");
    script
}

pub(super) fn in_situation(situation: Situation) -> Script {
    let x = tool("weather");
    let offered = || {
        let mut script = in_round(x.clone());
        script.grants(X);
        script
    };
    match situation {
        Situation::New => unstarted(),
        Situation::Queued => {
            let mut script = unstarted();
            script.does(start_queued(patient()));
            script
        }
        Situation::ModelRunning => with_a_past(),
        Situation::BackingOff => {
            let mut script = with_a_past();
            script.model_fails(ModelErrorKind::Timeout);
            script
        }
        Situation::Paused => {
            let mut script = in_situation(Situation::BackingOff);
            script.wakes();
            script.model_fails(ModelErrorKind::Timeout);
            script
        }
        Situation::Compacting => {
            let mut script = with_a_past();
            script.model_fails(ModelErrorKind::ContextOverflow);
            script
        }
        Situation::Completed => {
            let mut script = with_a_past();
            script.says("it is sunny");
            script
        }
        Situation::Failed => {
            let mut script = with_a_past();
            script.model_fails(ModelErrorKind::BadRequest);
            script
        }
        Situation::Aborted => {
            let mut script = offered();
            script.aborts();
            script
        }
        Situation::AwaitingApproval => in_round(x.approval()),
        Situation::AwaitingInput => in_round(question("which?")),
        Situation::Ready => in_round(x),
        Situation::ReadyLater => {
            let mut script = offered();
            script.loses(X, Ran::No);
            script
        }
        Situation::Offered => offered(),
        Situation::Accepted => {
            let mut script = offered();
            script.accepts(X);
            script
        }
        Situation::Asking => {
            let mut script = in_situation(Situation::Accepted);
            script.does(needs(X, 1, "q"));
            script
        }
        Situation::Suspended => {
            let mut script = in_situation(Situation::Accepted);
            script.does(leaves(X, 1, "q", b"half"));
            script
        }
        Situation::InDoubt => {
            let mut script = offered();
            script.loses(X, Ran::Maybe);
            script
        }
    }
}
