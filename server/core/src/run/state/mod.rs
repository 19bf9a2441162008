//! A run's state: the fold of its journal.
//!
//! ```text
//! phase        leaves by                              to
//! New          Start                                  ModelRunning | Queued | Preparing (if it has hooks or sources)
//!              Import                                 Finished(completed)
//! Queued       Enter                                  ModelRunning | Preparing
//!              Abort                                  Finished(aborted); its messages never entered the session
//! Preparing    Prepared                               ModelRunning | Finished(failed)
//! ModelRunning ModelFinished with tool calls          Tools
//!              ModelFinished without                  Finished(completed) | ModelRunning (if messages wait)
//!                                                     | Observed (directed runs)
//!              ModelFailed, retryable                 BackingOff
//!              ModelFailed, fatal or out of retries   Finished(failed) | Paused
//!              Recovered                              ModelRunning (next attempt)
//!              ContextTooLarge, or an overflow        Compacting (an overflow is a ModelFailed, or a ModelFinished that
//!                                                     says nothing for want of room)
//! BackingOff   DeadlinePassed                         ModelRunning (next attempt)
//! Compacting   Compacted                              ModelRunning (next call) | Finished(failed), if an overflow is
//!                                                     not helped
//!              CompactionFailed                       Compacting (trim) | Finished(failed)
//! Tools        last call settled                      ModelRunning (next call) | Finished(a limit)
//! Preparing, Observed, Tools   Planned | Step         as the instruction says (directed runs only)
//! Paused       Resume                                 ModelRunning (next attempt)
//! any live     Abort | a limit | deny and stop        Finished(aborted | failed)
//!
//! call                 leaves by                         to
//! Proposed             the same input                    AwaitingApproval | AwaitingInput | Ready
//!                                                        | AwaitingInstruction (directed runs)
//! AwaitingInstruction  Planned | Step                    AwaitingApproval | Ready | Settled
//!                      Decided: a deny is remembered     Settled
//! AwaitingApproval     Decided: approve                  Ready | AwaitingInstruction (stepped runs)
//!                      Decided: else | expired           Settled
//! AwaitingInput        Decided | expired                 Settled
//! Ready                HostGranted                       Offered | AwaitingApproval (under terms that nobody approved)
//!                                                        | InDoubt (an earlier attempt may have run, and the call may
//!                                                        not be repeated under the host's terms)
//!                      HostDenied                        Settled
//!                      Decided: a deny is remembered     Settled (before the first attempt)
//!                      CallFinished, by the last attempt Settled
//! Offered              CallAccepted                      Accepted
//! Offered, Accepted    InputNeeded, Decided, expired     the same; the deadline stands still in between
//!                      CallFinished                      Settled | Ready (next attempt)
//!                      CallLost                          Ready (next attempt) | InDoubt | Settled
//!                      its deadline                      Settled; or the same for a while, then InDoubt, if the call
//!                                                        must not run twice
//!                      CallStopped, after its deadline   InDoubt | Settled (did not begin)
//!                      InputNeeded with a resume_state   Suspended
//! Suspended            Decided | expired, the last one   Ready (next attempt) | Settled (out of tries)
//!                      CallFinished, a result            Settled
//! InDoubt              Decided: approve                  Ready (next attempt) | AwaitingInstruction (stepped runs)
//!                      CallFinished: has not run         Ready (next attempt)
//!                      CallStopped: did not begin        Ready (next attempt) | Settled, after its deadline
//!                      Decided: else | CallFinished | expired  Settled
//! ```

mod apply;
mod call;
mod conversation;
mod identity;
mod phase;
mod planning;
mod progress;
mod questions;
mod requests;
mod round;
mod status;
mod tools;

use std::sync::Arc;

use crate::agent::RunSpec;
use crate::entry::CompactionReason;
use crate::id::RunId;
use crate::run::status::RunError;

use conversation::RunConversation;
use identity::RunIdentity;
use planning::Planning;
use progress::{Counters, LastRecorded, Times};
use questions::Questions;
use requests::CarriedOut;
use tools::ToolHistory;

pub use call::{
    Approval, AskedInput, AttemptCounts, CallApprovals, CallState, CallTerms, LastAttempt, ResumeState,
    RoundCall, SettlingResult,
};
pub use phase::{AfterCompaction, ModelCall, Phase, RunningCompaction};
pub use planning::InstructionResult;
pub use progress::CallCounts;
pub use questions::AskedQuestion;
pub use requests::StepRequest;
pub use tools::{PlacedRuntime, Repetition};

/// Everything that the journal says about a run. Only [`RunState::apply`] changes it: all fields are private to this
/// module, and the getters stand in the file of their group.
#[derive(Debug, Clone, PartialEq)]
pub struct RunState {
    identity: RunIdentity,
    /// With the rules that were remembered when the run entered its session.
    spec: Arc<RunSpec>,
    times: Times,
    position: LastRecorded,
    counters: Counters,
    phase: Phase,
    /// The last failure, until something succeeds.
    last_error: Option<RunError>,
    conversation: RunConversation,
    context: ContextPressure,
    tools: ToolHistory,
    questions: Questions,
    planning: Planning,
    carried_out: CarriedOut,
}

/// Facts about the size of the context.
#[derive(Debug, Clone, Default, PartialEq)]
struct ContextPressure {
    /// Compactions begun since the model's last message.
    compactions: u32,
    /// Reason for a compaction before the next model call.
    due: Option<CompactionReason>,
}

impl RunState {
    /// The state before the first event.
    #[must_use]
    pub fn new(run: RunId) -> Self {
        Self {
            identity: RunIdentity::new(run),
            spec: Arc::default(),
            times: Times::default(),
            position: LastRecorded::default(),
            counters: Counters::default(),
            phase: Phase::New,
            last_error: None,
            conversation: RunConversation::default(),
            context: ContextPressure::default(),
            tools: ToolHistory::default(),
            questions: Questions::default(),
            planning: Planning::default(),
            carried_out: CarriedOut::default(),
        }
    }

    /// Settings of the run, with the rules that were remembered when it entered its session.
    #[must_use]
    pub fn spec(&self) -> &Arc<RunSpec> {
        &self.spec
    }

    /// The phase, with the facts that hold only in that phase.
    #[must_use]
    pub fn phase(&self) -> &Phase {
        &self.phase
    }

    /// The last failure, until a model call or a compaction succeeds.
    #[must_use]
    pub fn last_error(&self) -> Option<&RunError> {
        self.last_error.as_ref()
    }

    /// Compactions begun since the model's last message. Each must be stronger than the one before.
    #[must_use]
    pub fn compactions_since_message(&self) -> u32 {
        self.context.compactions
    }

    /// Reason for a compaction before the next model call; `None` if none is needed.
    #[must_use]
    pub fn compaction_due(&self) -> Option<CompactionReason> {
        self.context.due
    }
}
