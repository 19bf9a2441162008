//! The sending end of a writer's queue.

use agentloop_core::id::{RunId, TenantId};
use tokio::sync::{mpsc, oneshot};

use super::op::{OwnOp, WriteOp, WriteResult};
use super::request::{Answer, WriteRequest};
use crate::audit;
use crate::store::{ClaimedRow, SessionRow, StoreError};

/// The writer has ended.
#[derive(Debug)]
pub(in crate::store) struct WriterGone;

/// The error of a write to a store whose writer has ended.
pub(in crate::store) fn closed() -> StoreError {
    StoreError::Unavailable { what: "the store is closed".to_owned() }
}

/// The sending end of a writer's queue. An implementation has [`Self::send`]; the others are called by the ports, each for
/// writes of one kind of result.
pub(in crate::store) trait Writes: Sync {
    /// Writes that only this store has.
    type Own: OwnOp;

    /// Enqueues a write, as soon as there is room for it.
    fn send(&self, request: WriteRequest<Self::Own>) -> impl Future<Output = Result<(), WriterGone>> + Send;

    /// Returns when the write is durable or refused. The row of the caller's act goes with it.
    async fn write(&self, op: WriteOp<Self::Own>) -> Answer<Self::Own> {
        let (reply, answer) = oneshot::channel();
        let act = if op.is_act() { audit::unrecorded() } else { None };
        self.send(WriteRequest { op, act, reply }).await.map_err(|WriterGone| closed())?;
        answer.await.map_err(|_| closed())?
    }

    async fn done(&self, op: WriteOp<Self::Own>) -> Result<(), StoreError> {
        match self.write(op).await? {
            WriteResult::Done => Ok(()),
            other => unreachable!("answered with {other:?}"),
        }
    }

    async fn existed(&self, op: WriteOp<Self::Own>) -> Result<bool, StoreError> {
        match self.write(op).await? {
            WriteResult::Existed(existed) => Ok(existed),
            other => unreachable!("answered with {other:?}"),
        }
    }

    async fn session(&self, op: WriteOp<Self::Own>) -> Result<SessionRow, StoreError> {
        match self.write(op).await? {
            WriteResult::Session(row) => Ok(*row),
            other => unreachable!("answered with {other:?}"),
        }
    }

    async fn claim(&self, tenant: &TenantId, run: &RunId) -> Result<Option<ClaimedRow>, StoreError> {
        let op = WriteOp::Claim { tenant: tenant.clone(), run: run.clone() };
        match self.write(op).await? {
            WriteResult::Claimed(claim) => Ok(claim.map(|claim| *claim)),
            other => unreachable!("answered with {other:?}"),
        }
    }

    async fn own(&self, op: Self::Own) -> Result<<Self::Own as OwnOp>::Result, StoreError> {
        match self.write(WriteOp::Own(op)).await? {
            WriteResult::Own(result) => Ok(result),
            other => unreachable!("answered with {other:?}"),
        }
    }
}

impl<O: OwnOp> Writes for mpsc::Sender<WriteRequest<O>> {
    type Own = O;

    async fn send(&self, request: WriteRequest<O>) -> Result<(), WriterGone> {
        self.send(request).await.map_err(|_| WriterGone)
    }
}
