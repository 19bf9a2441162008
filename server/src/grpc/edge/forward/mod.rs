//! Sends an RPC for another replica's session on to that replica.
//!
//! [`layer::ForwardLayer`] takes the RPCs of the public port, behind the check of credentials. It gives them to the services of
//! this replica, or sends them over a link to the owner, whose [`peer`](super::peer) port takes them. The caller is authenticated
//! where it dials in.

mod caller_presence;
mod host_stream;
pub mod layer;
pub(in crate::grpc::edge) mod outcome;
mod passing;
pub mod reach;
pub(in crate::grpc::edge) mod request;
pub mod route;
mod send;
mod streams;
pub mod wire;

pub(crate) use route::shutdown::RESPONSE_WAIT;

#[cfg(test)]
mod tests;
