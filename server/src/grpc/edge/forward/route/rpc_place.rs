//! The replica that has an RPC at the moment.

use parking_lot::Mutex;

use crate::grpc::edge::forward::route::routing::Recipient;

/// The replica that has an RPC. `None` while no replica is known to have it.
#[derive(Default)]
pub(in crate::grpc::edge::forward) struct RpcPlace(Mutex<Option<Recipient>>);

impl RpcPlace {
    pub(in crate::grpc::edge::forward) fn set(&self, at: Option<Recipient>) {
        *self.0.lock() = at;
    }

    pub(in crate::grpc::edge::forward) fn get(&self) -> Option<Recipient> {
        *self.0.lock()
    }
}
