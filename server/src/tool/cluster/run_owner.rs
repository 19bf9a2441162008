//! The owner of a run, for the hub: it reports to the engine of that replica.

use std::sync::Arc;

use agentloop_core::cluster::shard::OwnerNo;
use agentloop_core::id::{RunId, TenantId};
use async_trait::async_trait;

use crate::cluster::locate::Locate;
use crate::cluster::{Ownerships, ShardOwner};

/// The replica that owns a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunOwner {
    /// This replica. It also answers for runs that do not exist.
    Here,
    /// The replica with this number.
    Peer(OwnerNo),
    /// Nobody for the moment, or nobody who is known.
    Nobody,
}

/// Finds the owner of a run for which no replica has asked.
#[async_trait]
pub trait RunOwners: Send + Sync + 'static {
    /// The present owner of this run.
    async fn owner_of(&self, tenant: &TenantId, run: &RunId) -> RunOwner;
}

/// Finds the shard of a run, and the shard's owner.
pub struct LocatedOwners {
    locate: Arc<dyn Locate>,
    ownerships: Ownerships,
}

impl LocatedOwners {
    /// Asks `locate` for shards, and takes their owners from `ownerships`.
    #[must_use]
    pub fn new(locate: Arc<dyn Locate>, ownerships: Ownerships) -> Self {
        Self { locate, ownerships }
    }
}

#[async_trait]
impl RunOwners for LocatedOwners {
    async fn owner_of(&self, tenant: &TenantId, run: &RunId) -> RunOwner {
        match self.locate.shard_of_run(tenant, run).await {
            Ok(Some(shard)) => match self.ownerships.borrow().owner(shard) {
                ShardOwner::Here => RunOwner::Here,
                ShardOwner::Peer(peer) => RunOwner::Peer(peer.number),
                ShardOwner::Nobody => RunOwner::Nobody,
            },
            Ok(None) => RunOwner::Here,
            Err(error) => {
                tracing::warn!(run.id = %run, %error, "the owner of a run cannot be found; the reports of its hosts wait");
                RunOwner::Nobody
            }
        }
    }
}
