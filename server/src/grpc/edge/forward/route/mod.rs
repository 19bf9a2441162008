//! The replica that an RPC is for: its key, the owners that are known, and the end of this replica.

pub mod local;
pub(in crate::grpc::edge::forward) mod route_key;
pub(in crate::grpc::edge::forward) mod routing;
pub(in crate::grpc::edge::forward) mod rpc_place;
pub(in crate::grpc::edge) mod shutdown;
