//! The commands of those who operate a server: its state, its rules and tools, its store, and credentials for its callers.

pub(crate) mod audit;
pub(crate) mod cert;
pub(crate) mod cluster;
pub(crate) mod health;
pub(crate) mod info;
pub(crate) mod policy;
pub(crate) mod store;
pub(crate) mod token;
pub(crate) mod tools;
pub(crate) mod usage;
