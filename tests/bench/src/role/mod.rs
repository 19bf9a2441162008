//! The processes around the server: this program, started in a role.

pub(crate) mod host;
pub(crate) mod model;
