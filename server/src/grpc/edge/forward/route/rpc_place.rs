//! The replica that has an RPC at the moment.

use std::sync::{Mutex, PoisonError};

use crate::grpc::edge::forward::route::routing::AskedReplica;

/// The replica that has an RPC. `None` while no replica is known to have it.
#[derive(Default)]
pub(in crate::grpc::edge::forward) struct RpcPlace(Mutex<Option<AskedReplica>>);

impl RpcPlace {
    pub(in crate::grpc::edge::forward) fn set(&self, at: Option<AskedReplica>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = at;
    }

    pub(in crate::grpc::edge::forward) fn get(&self) -> Option<AskedReplica> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
