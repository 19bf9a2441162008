//! Calls that reach a replica which does not own what they are about are sent on to the one that does.
//!
//! [`layer::ForwardLayer`] takes the calls of the public port, behind the check of credentials. It gives them to the services of this
//! replica, or sends them over a link to the owner, whose [`peer`](super::peer) port takes them. The caller is authenticated where it dials in.

mod bodies;
mod budget;
mod buffered_call;
pub(in crate::grpc::edge) mod call;
mod ending;
pub mod layer;
pub(in crate::grpc::edge) mod leave;
pub mod links;
pub mod local;
mod messages;
pub(in crate::grpc::edge) mod metadata;
mod outcome;
mod passing;
pub(in crate::grpc::edge) mod principal;
pub mod reach;
pub(in crate::grpc::edge) mod refusals;
mod replayable;
mod resume;
mod route_key;
mod routing;
mod rules;
mod run_shards;
mod send;
mod streams;

#[cfg(test)]
mod tests;
