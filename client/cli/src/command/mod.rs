//! The commands, one file each. A command calls the server and prints the result.

pub(crate) mod blob;
pub(crate) mod conversation;
pub(crate) mod host;
pub(crate) mod ids;
pub(crate) mod operate;
pub(crate) mod serve;
pub(crate) mod setup;
