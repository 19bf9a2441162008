//! The keys of each section of the file: one file for the sections that belong together.

pub(in crate::config) mod agents;
pub(in crate::config) mod cluster;
pub(in crate::config) mod host_grant;
pub(in crate::config) mod jwt;
pub(in crate::config) mod models;
pub(in crate::config) mod process;
pub(in crate::config) mod prompts;
pub(in crate::config) mod providers;
pub(in crate::config) mod rules;
pub(in crate::config) mod security;
pub(in crate::config) mod telemetry;
pub(in crate::config) mod tools;
