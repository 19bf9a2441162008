//! Writes through the sending end of a writer's queue: one method for each kind of result.

use agentloop_core::id::{RunId, TenantId};
use tokio::sync::oneshot;

use super::op::{OwnOp, WriteOp, WriteResult};
use super::queue::{WriteSender, WriterGone};
use super::request::{WriteReply, WriteRequest};
use crate::audit;
use crate::store::{ClaimedRow, SessionRow, StoreError};

/// The error of a write to a store whose writer has ended.
pub(in crate::store) fn closed() -> StoreError {
    StoreError::Unavailable { what: "the store is closed".to_owned() }
}

impl<O: OwnOp> WriteSender<O> {
    /// Returns when the write is durable or refused. The row of the caller's act goes with it.
    pub(in crate::store) async fn write(&self, op: WriteOp<O>) -> WriteReply<O> {
        let (reply, result) = oneshot::channel();
        let act = if op.is_act() { audit::unrecorded() } else { None };
        self.send(WriteRequest { op, act, reply }).await.map_err(|WriterGone| closed())?;
        result.await.map_err(|_| closed())?
    }

    pub(in crate::store) async fn done(&self, op: WriteOp<O>) -> Result<(), StoreError> {
        match self.write(op).await? {
            WriteResult::Done => Ok(()),
            other => unreachable!("the result is {other:?}"),
        }
    }

    pub(in crate::store) async fn existed(&self, op: WriteOp<O>) -> Result<bool, StoreError> {
        match self.write(op).await? {
            WriteResult::Existed(existed) => Ok(existed),
            other => unreachable!("the result is {other:?}"),
        }
    }

    pub(in crate::store) async fn session(&self, op: WriteOp<O>) -> Result<SessionRow, StoreError> {
        match self.write(op).await? {
            WriteResult::Session(row) => Ok(*row),
            other => unreachable!("the result is {other:?}"),
        }
    }

    pub(in crate::store) async fn claim(
        &self,
        tenant: &TenantId,
        run: &RunId,
    ) -> Result<Option<ClaimedRow>, StoreError> {
        let op = WriteOp::Claim { tenant: tenant.clone(), run: run.clone() };
        match self.write(op).await? {
            WriteResult::Claimed(claim) => Ok(claim.map(|claim| *claim)),
            other => unreachable!("the result is {other:?}"),
        }
    }

    pub(in crate::store) async fn own(&self, op: O) -> Result<O::Result, StoreError> {
        match self.write(WriteOp::Own(op)).await? {
            WriteResult::Own(result) => Ok(result),
            other => unreachable!("the result is {other:?}"),
        }
    }
}
