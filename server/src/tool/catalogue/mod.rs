//! Which tools there are, and what may be asked of them.

pub(in crate::tool) mod arguments;
pub(in crate::tool) mod own;
pub(in crate::tool) mod registry;
pub(in crate::tool) mod schema;
