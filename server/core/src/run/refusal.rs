//! Reasons of the machine to refuse an input.

use crate::policy::PolicyRule;
use crate::run::human::{Answer, BadAnswer, CannotRemember, NotAnApprover};
use crate::run::status::RunStatus;

/// Reasons of the machine to refuse an input. A refused input changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The run's phase does not allow the input.
    #[error("not possible while the run is {0:?}")]
    WrongPhase(Option<RunStatus>),
    /// The input is about a model call that is not the current one.
    #[error("the input is about a model call that is over; ignore it")]
    StaleModelCall,
    /// The run has no such tool call, or its lease is a different one.
    #[error("no such tool call")]
    UnknownCall,
    /// The result of this attempt was recorded before.
    #[error("the result is already recorded; drop it")]
    DuplicateResult,
    /// The tool call ended otherwise, or a later attempt is under way.
    #[error("the tool call has ended or has a later attempt; drop the result")]
    StaleAttempt,
    /// The run has no open or answered question with this id.
    #[error("no such question")]
    UnknownRequest,
    /// The decision is one that only the run itself makes: expired or withdrawn.
    #[error("only the run itself can make this decision; send another one")]
    NotADecision,
    /// The answer does not fit the question.
    #[error(transparent)]
    BadAnswer(BadAnswer),
    /// The question is for other people.
    #[error(transparent)]
    NotAnApprover(NotAnApprover),
    /// A step is one person's approval, and the question needs several.
    #[error("the question needs {0} approvals: send them by SubmitApproval, then step")]
    SeveralApprovals(u32),
    /// A rule denies the edited arguments.
    #[error("{} denies these arguments", .0.title())]
    DeniedByRule(Box<PolicyRule>),
    /// The decision cannot be remembered as requested.
    #[error(transparent)]
    CannotRemember(CannotRemember),
    /// The question already has a different answer.
    #[error("answered before: {}", .0.decision.name())]
    AlreadyResolved(Box<Answer>),
    /// The request's id was used before with different content.
    #[error("the id was used before, with other content; choose a new id")]
    IdReused,
    /// Too many messages wait for the run's next model call.
    #[error("too many messages wait for the run's next model call; send more after it")]
    TooManyWaitingMessages,
    /// The run was not started with `stepped`, so it takes no `Step`.
    #[error("the run is not moved by hand; start it with `stepped` to use Step")]
    NotStepped,
    /// The planner's instruction is not for the decision that is due.
    #[error("the instruction is not for the decision that is due; drop it")]
    StaleDecision,
    /// The digest of the answer differs from the question's: the person saw something else.
    #[error("the digest is not that of the question; read the question again before you answer")]
    DigestMismatch,
}
