//! The port for queues of sessions: runs that wait until their session is free.

use agentloop_core::id::{RunId, RunKey, SessionId, TenantId};
use agentloop_core::tool::Digest;
use async_trait::async_trait;

use super::StoreError;

/// A live run that a queued run interrupts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interrupted {
    /// The tenant of both runs.
    pub tenant: TenantId,
    /// The live run, which is to end.
    pub run: RunId,
    /// The queued run that interrupts it.
    pub by: RunId,
}

/// Queues of sessions: runs that wait until the session has no live run, and requests that were handed to the live one.
#[async_trait]
pub trait QueueStore: Send + Sync + 'static {
    /// The run that may enter this session now: the first in its queue, if there is no live run. Runs queue in the order
    /// of their first appends, those that interrupt before all others.
    async fn next_queued(&self, tenant: &TenantId, session: &SessionId) -> Result<Option<RunId>, StoreError>;

    /// The first run in the queue of every session that has no live run: the runs that a start of the server lets in.
    async fn queue_heads(&self) -> Result<Vec<RunKey>, StoreError>;

    /// Live runs that a queued run interrupts, each with the first such run: a start of the server ends them.
    async fn interrupted(&self) -> Result<Vec<Interrupted>, StoreError>;

    /// The live run of this session, if a queued run interrupts it.
    async fn interrupted_in(
        &self,
        tenant: &TenantId,
        session: &SessionId,
    ) -> Result<Option<Interrupted>, StoreError>;

    /// The run that the request of this id handed its messages to, and the digest of that request.
    async fn steered(&self, tenant: &TenantId, id: &RunId) -> Result<Option<(RunId, Digest)>, StoreError>;
}
