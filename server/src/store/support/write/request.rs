//! Writes in a writer's queue, those of one commit, and their replies.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::oneshot;

use super::op::{OwnOp, WriteOp, WriteResult};
use crate::audit::{Act, ActsOfCommit, AuditEntry};
use crate::store::support::append::EncodedAppend;
use crate::store::{StoreError, StoreStats};

/// The reply to a [`WriteRequest`].
pub(in crate::store) type WriteReply<O> = Result<WriteResult<<O as OwnOp>::Result>, StoreError>;

/// A [`WriteOp`] in the writer's queue, with the sender of its result.
#[derive(Debug)]
pub(in crate::store) struct WriteRequest<O: OwnOp> {
    pub(in crate::store) op: WriteOp<O>,
    /// The call that it is for, whose row of the audit log goes into the same commit.
    pub(in crate::store) act: Option<Arc<Act>>,
    pub(in crate::store) reply: oneshot::Sender<WriteReply<O>>,
}

/// Writes of a commit that are executed together.
pub(in crate::store) enum WriteGroup<'a, O> {
    /// All appends between two other writes.
    Appends(Vec<&'a EncodedAppend>),
    /// One write that is no append.
    Alone(&'a WriteOp<O>),
}

/// The groups of a commit, in order.
pub(in crate::store) fn groups<O: OwnOp>(
    requests: &[WriteRequest<O>],
) -> impl Iterator<Item = WriteGroup<'_, O>> {
    let groups = requests.chunk_by(|a, b| a.op.as_append().is_some() && b.op.as_append().is_some());
    groups.map(|group| {
        let appends: Vec<&EncodedAppend> =
            group.iter().filter_map(|request| request.op.as_append()).collect();
        if appends.is_empty() { WriteGroup::Alone(&group[0].op) } else { WriteGroup::Appends(appends) }
    })
}

/// The appends of a commit that has nothing else, not even rows of the audit log.
pub(in crate::store) fn only_appends<O: OwnOp>(requests: &[WriteRequest<O>]) -> Option<Vec<&EncodedAppend>> {
    if requests.iter().any(|request| request.act.is_some()) {
        return None;
    }
    requests.iter().map(|request| request.op.as_append()).collect()
}

/// The replies to appends.
pub(in crate::store) fn replies_of<R>(
    appends: Vec<Result<(), StoreError>>,
) -> impl Iterator<Item = Result<WriteResult<R>, StoreError>> {
    appends.into_iter().map(|done| done.map(|()| WriteResult::Done))
}

/// The replies to the writes that are done.
fn done<'a, O: OwnOp>(
    requests: &'a [WriteRequest<O>],
    replies: &'a [WriteReply<O>],
) -> impl Iterator<Item = &'a WriteRequest<O>> {
    requests.iter().zip(replies).filter(|(_, reply)| reply.is_ok()).map(|(request, _)| request)
}

/// The writes that take the row of their act along: those that are done, but for a deletion of what is not there. The call
/// says after that one how its row is to be.
fn recording<'a, O: OwnOp>(
    requests: &'a [WriteRequest<O>],
    replies: &'a [WriteReply<O>],
) -> impl Iterator<Item = &'a WriteRequest<O>> {
    let is_recording =
        |reply: &WriteReply<O>| matches!(reply, Ok(result) if !matches!(result, WriteResult::Existed(false)));
    requests.iter().zip(replies).filter(move |(_, reply)| is_recording(reply)).map(|(request, _)| request)
}

/// Says of the acts of these writes that the audit log has them.
pub(in crate::store) fn set_recorded<O: OwnOp>(requests: &[WriteRequest<O>], replies: &[WriteReply<O>]) {
    recording(requests, replies)
        .filter_map(|request| request.act.as_ref())
        .for_each(|act| act.set_recorded());
}

/// The rows of the audit log about those of the writes that are done, but for deletions of what is not there.
pub(in crate::store) fn audit_rows<O: OwnOp>(
    requests: &[WriteRequest<O>],
    replies: &[WriteReply<O>],
) -> Vec<AuditEntry> {
    let mut acts = ActsOfCommit::default();
    let first = recording(requests, replies).filter(|request| acts.is_first(request.act.as_ref()));
    first.flat_map(|request| request.op.audited(request.act.as_ref())).collect()
}

/// Counts of writes since the store was opened.
#[derive(Debug, Default)]
pub(in crate::store) struct WriteCounters {
    appends: AtomicU64,
    commits: AtomicU64,
    bytes: AtomicU64,
}

impl WriteCounters {
    /// Counts a commit with those of its appends that were not refused.
    pub(in crate::store) fn count<O: OwnOp>(&self, requests: &[WriteRequest<O>], replies: &[WriteReply<O>]) {
        let (mut appends, mut bytes) = (0, 0);
        for append in done(requests, replies).filter_map(|request| request.op.as_append()) {
            appends += 1;
            bytes += append.bytes() as u64;
        }
        self.appends.fetch_add(appends, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.commits.fetch_add(1, Ordering::Relaxed);
    }

    pub(in crate::store) fn stats(&self) -> StoreStats {
        StoreStats {
            appends: self.appends.load(Ordering::Relaxed),
            commits: self.commits.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
        }
    }
}
