//! The replica that a call is for: its key, the rules of each RPC, and the owners that are known.

pub mod local;
pub(in crate::grpc::edge::forward) mod route_key;
pub(in crate::grpc::edge::forward) mod routing;
pub(in crate::grpc::edge::forward) mod rules;
pub(in crate::grpc::edge::forward) mod run_shards;
