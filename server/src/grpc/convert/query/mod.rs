//! Requests that look things up: the filters of lists, the usage of runs, and the audit log.

pub mod audit;
pub mod filter;
pub mod usage;
