//! RPCs that may be sent on: their messages are kept so that they can be sent again.

pub(in crate::grpc::edge::forward) mod boundary;
pub(in crate::grpc::edge::forward) mod budget;
pub(in crate::grpc::edge::forward) mod buffered_rpc;
pub(in crate::grpc::edge) mod forwarded_rpc;
pub(in crate::grpc::edge::forward) mod messages;
pub(in crate::grpc::edge::forward) mod replayable;
pub(in crate::grpc::edge::forward) mod resume;
