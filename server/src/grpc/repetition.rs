//! The mark of an RPC that was sent before, to an owner that may have done it.

use agentloop_core::time::Timestamp;
use tonic::codegen::http::HeaderValue;

/// An earlier try of this RPC may have been done, and its session deleted and made again since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::grpc) struct RepeatedRpc {
    /// Creation of the session that the first try meant. `None` if there was none.
    pub(in crate::grpc) created_at: Option<Timestamp>,
}

impl RepeatedRpc {
    /// The mark as one replica sends it to another: the time in milliseconds, or nothing.
    pub(in crate::grpc) fn to_header(self) -> HeaderValue {
        self.created_at.map_or(HeaderValue::from_static(""), |at| HeaderValue::from(at.0))
    }

    /// The mark that a replica has sent. One that cannot be read means no session that there is.
    pub(in crate::grpc) fn from_header(value: &HeaderValue) -> Self {
        let created_at = value.to_str().ok().and_then(|at| at.parse().ok()).map(Timestamp);
        Self { created_at }
    }
}
