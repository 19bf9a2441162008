//! Finds the shard of a run, for those who have to send an RPC to its owner and know nothing but the run's id. Also finds what
//! tells a session from an earlier one of the same id.

use agentloop_core::cluster::shard::ShardNo;
use agentloop_core::id::{RunId, SessionId, TenantId};
use agentloop_core::time::Timestamp;
use async_trait::async_trait;

/// Knows the shards of runs. Each replica calls it when an RPC names a run and no session.
///
/// A run stays in its shard as long as it exists.
#[async_trait]
pub trait Locate: Send + Sync {
    /// The shard of the run with this id, or of the run that the request with this id has handed its messages to. `None` if there
    /// is neither.
    ///
    /// # Errors
    /// [`LocateError`]
    async fn shard_of_run(&self, tenant: &TenantId, run: &RunId) -> Result<Option<ShardNo>, LocateError>;

    /// The time at which the session that has this id now was created. `None` if there is none.
    ///
    /// # Errors
    /// [`LocateError`]
    async fn session_created_at(
        &self,
        tenant: &TenantId,
        session: &SessionId,
    ) -> Result<Option<Timestamp>, LocateError>;
}

/// A run or a session cannot be looked up for now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a run or a session cannot be looked up: {0}")]
pub struct LocateError(
    /// The reply of the database, for the log.
    pub String,
);
