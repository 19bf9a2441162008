//! The commands that help to set up a server on this machine.

pub(crate) mod completions;
pub(crate) mod doctor;
pub(crate) mod init;
pub(crate) mod trial;
