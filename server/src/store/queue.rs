//! Runs that wait for their session.

use agentloop_core::id::{RunId, RunKey, SessionId, TenantId};
use agentloop_core::tool::Digest;
use async_trait::async_trait;

use super::StoreError;

/// A live run that a queued run interrupts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interrupted {
    /// The tenant that it belongs to.
    pub tenant: TenantId,
    /// The live run.
    pub run: RunId,
    /// The run that waits for it to end.
    pub by: RunId,
}

/// Queues of sessions: runs that wait until the session has no live run, and requests that were handed to the live one.
#[async_trait]
pub trait QueueStore: Send + Sync + 'static {
    /// The run that may enter this session now: the first in its queue, if it has no live run. Runs queue in the order in
    /// which their first append was made, those that interrupt before all others.
    async fn next_queued(&self, tenant: &TenantId, session: &SessionId) -> Result<Option<RunId>, StoreError>;

    /// Of every session that has a queue and no live run, the first in the queue: what a start has to let in.
    async fn queue_heads(&self) -> Result<Vec<RunKey>, StoreError>;

    /// Live runs that a queued run of their session interrupts, each with the first such: what a start has to end.
    async fn interrupted(&self) -> Result<Vec<Interrupted>, StoreError>;

    /// The live run of this session, if a queued run interrupts it.
    async fn interrupted_in(
        &self,
        tenant: &TenantId,
        session: &SessionId,
    ) -> Result<Option<Interrupted>, StoreError>;

    /// The run that the request of this id handed messages to, and the digest of that request.
    async fn steered(&self, tenant: &TenantId, id: &RunId) -> Result<Option<(RunId, Digest)>, StoreError>;
}
