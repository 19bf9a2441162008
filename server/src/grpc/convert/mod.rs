//! Between the wire's types and ours, each way, with every check on what comes from outside.

pub(crate) mod host;
pub(crate) mod server_frame;
