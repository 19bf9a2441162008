//! The traffic between replicas: the links, and the metadata of an RPC that goes over one.

pub(in crate::grpc::edge::forward) mod bodies;
pub mod connection;
mod exchange;
pub mod links;
pub(in crate::grpc::edge) mod metadata;
pub(in crate::grpc::edge) mod principal;

#[cfg(test)]
mod tests;
