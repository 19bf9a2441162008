//! Writes that only this store has: those of blobs.

use agentloop_core::id::TenantId;

use crate::store::postgres::write::blobs::{BlobOp, BlobResult};
use crate::store::support::write::{self, OwnOp};

pub(in crate::store::postgres) type WriteOp = write::WriteOp<BlobOp>;
pub(in crate::store::postgres) type WriteRequest = write::WriteRequest<BlobOp>;
pub(in crate::store::postgres) type WriteResult = write::WriteResult<BlobResult>;
pub(in crate::store::postgres) type WriteReply = write::WriteReply<BlobOp>;
pub(in crate::store::postgres) type WriteSender = write::WriteSender<BlobOp>;
pub(in crate::store::postgres) type WeakWriteSender = write::WeakWriteSender<BlobOp>;
pub(in crate::store::postgres) type WriteQueue = write::WriteQueue<BlobOp>;

impl BlobOp {
    /// True for a write that may delete specs of runs.
    pub(super) fn deletes_specs(&self) -> bool {
        matches!(self, Self::Sweep { .. })
    }
}

impl OwnOp for BlobOp {
    type Result = BlobResult;

    fn tenant(&self) -> Option<&TenantId> {
        match self {
            Self::Keep(upload) => Some(&upload.new.tenant),
            Self::Claim { tenant, .. } => Some(tenant),
            Self::Sweep { .. } => None,
        }
    }

    fn is_act(&self) -> bool {
        matches!(self, Self::Keep(_))
    }

    /// The pieces of uploads are rows.
    fn is_long(&self) -> bool {
        matches!(self, Self::Keep { .. } | Self::Sweep { .. })
    }

    fn describe(&self) -> &'static str {
        "row of a blob"
    }
}
