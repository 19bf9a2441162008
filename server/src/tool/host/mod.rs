//! Tools on tool hosts: their connections, the fleet that places calls, and delivery of results to the engine.

pub(in crate::tool) mod connection;
pub(in crate::tool) mod deliver;
pub(in crate::tool) mod identity;
pub(in crate::tool) mod ids;
pub(in crate::tool) mod options;
pub(in crate::tool) mod outbound;
pub(in crate::tool) mod remote;
pub(in crate::tool) mod rows;
pub(in crate::tool) mod snapshot;
pub(in crate::tool) mod state;
pub(in crate::tool) mod tools;
pub(in crate::tool) mod translate;
