//! A principal with the role `caller` alone works with its own runs and sessions. Those of others are as if they were not
//! there.

use agentloop_core::id::{RequestId, RunId, SessionId};
use tonic::Status;

use crate::audit;
use crate::engine::Engine;
use crate::engine::error::EngineError;
use crate::grpc::caller::Caller;

/// Right to a run or a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::grpc) enum Right {
    /// The caller wants to read it.
    Read,
    /// The caller wants to change it.
    Change,
}

impl Right {
    fn includes(self, caller: &Caller, created_by: Option<&str>) -> bool {
        match self {
            Self::Read => caller.reads_only_of().is_none_or(|own| created_by == Some(own)),
            Self::Change => caller.author().may_use(created_by),
        }
    }

    /// True if the caller has it for everything of its tenant, so that nothing has to be looked up.
    fn is_for_all(self, caller: &Caller) -> bool {
        self.includes(caller, None)
    }
}

/// Refuses a run that the caller has no right to.
///
/// # Errors
/// NOT_FOUND, or the store's.
pub(in crate::grpc) async fn check_run(
    engine: &Engine,
    caller: &Caller,
    run: &RunId,
    right: Right,
) -> Result<(), Status> {
    if right.is_for_all(caller) {
        return Ok(());
    }
    let row = engine.store().run(caller.tenant(), run).await?.ok_or(EngineError::RunNotFound)?;
    let allowed = right.includes(caller, row.created_by.as_deref());
    allowed.then_some(()).ok_or_else(|| {
        audit::denied(audit::OTHERS_RUN);
        EngineError::RunNotFound.into()
    })
}

/// Refuses a session that the caller has no right to.
///
/// # Errors
/// NOT_FOUND, or the store's.
pub(in crate::grpc) async fn check_session(
    engine: &Engine,
    caller: &Caller,
    session: &SessionId,
    right: Right,
) -> Result<(), Status> {
    if right.is_for_all(caller) {
        return Ok(());
    }
    let row = engine.store().session(caller.tenant(), session).await?;
    match row {
        Some(row) if right.includes(caller, row.created_by.as_deref()) => Ok(()),
        Some(_) => {
            audit::denied(audit::OTHERS_SESSION);
            Err(EngineError::SessionNotFound.into())
        }
        None => Err(EngineError::SessionNotFound.into()),
    }
}

/// Refuses a question of a run that the caller has no right to change.
///
/// # Errors
/// NOT_FOUND, or the store's.
pub(in crate::grpc) async fn check_question(
    engine: &Engine,
    caller: &Caller,
    question: &RequestId,
) -> Result<(), Status> {
    if Right::Change.is_for_all(caller) {
        return Ok(());
    }
    let not_found = || Status::from(EngineError::RequestNotFound);
    let run = question.run().ok_or_else(not_found)?;
    check_run(engine, caller, &run, Right::Change)
        .await
        .map_err(|error| if error.code() == tonic::Code::NotFound { not_found() } else { error })
}
