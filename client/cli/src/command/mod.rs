//! The commands, one file each. A command calls the server and prints the result.

pub(crate) mod abort;
pub(crate) mod approve;
pub(crate) mod cert;
pub(crate) mod completions;
pub(crate) mod doctor;
pub(crate) mod fork;
pub(crate) mod health;
pub(crate) mod host;
pub(crate) mod ids;
pub(crate) mod info;
pub(crate) mod init;
pub(crate) mod overview;
pub(crate) mod policy;
pub(crate) mod queue;
pub(crate) mod replay;
pub(crate) mod resume;
pub(crate) mod run;
pub(crate) mod runs;
pub(crate) mod search;
pub(crate) mod serve;
pub(crate) mod sessions;
pub(crate) mod token;
pub(crate) mod tools;
pub(crate) mod transfer;
pub(crate) mod trial;
pub(crate) mod watch;
