//! Writes that only this store has.

use agentloop_core::id::TenantId;

use crate::store::sqlite::write::blobs::{BlobOp, BlobResult};
use crate::store::support::write::{self, OwnOp};

/// A write that only this store has.
#[derive(Debug)]
pub(in crate::store) enum SqliteOp {
    /// Forgets the numbers of documents that the search index has deleted. The result is `Done`.
    ForgetDeleted(Vec<i64>),
    Blob(BlobOp),
}

pub(in crate::store::sqlite) type WriteOp = write::WriteOp<SqliteOp>;
pub(in crate::store::sqlite) type WriteRequest = write::WriteRequest<SqliteOp>;
pub(in crate::store::sqlite) type WriteResult = write::WriteResult<BlobResult>;
pub(in crate::store::sqlite) type WriteReply = write::WriteReply<SqliteOp>;
pub(in crate::store::sqlite) type WriteSender = write::WriteSender<SqliteOp>;
pub(in crate::store::sqlite) type WeakWriteSender = write::WeakWriteSender<SqliteOp>;
pub(in crate::store::sqlite) type WriteQueue = write::WriteQueue<SqliteOp>;

impl OwnOp for SqliteOp {
    type Result = BlobResult;

    fn tenant(&self) -> Option<&TenantId> {
        match self {
            Self::ForgetDeleted(_) => None,
            Self::Blob(op) => Some(op.tenant()),
        }
    }

    fn is_act(&self) -> bool {
        match self {
            Self::ForgetDeleted(_) => false,
            // The other writes of a blob follow this one, or are for no caller.
            Self::Blob(op) => matches!(op, BlobOp::Announce { .. }),
        }
    }

    /// A blob's bytes are in a file.
    fn is_long(&self) -> bool {
        false
    }

    fn describe(&self) -> &'static str {
        match self {
            Self::ForgetDeleted(_) => "deletion from the search index",
            Self::Blob(_) => "row of a blob",
        }
    }
}
