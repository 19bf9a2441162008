//! The catalogue of known tools, with their declarations and compiled argument schemas.

pub(in crate::tool) mod arguments;
pub(in crate::tool) mod own;
pub(in crate::tool) mod registry;
pub(in crate::tool) mod schema;
pub(in crate::tool) mod terms;
