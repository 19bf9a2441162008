//! Behaviour through the contract.

mod abort;
mod approvals;
mod ask_human;
mod bad_input;
mod forks;
mod idempotency;
mod lost_host;
mod overload;
mod policy;
mod remember;
mod run;
mod runs;
mod service;
mod sessions;
mod stream;
mod tidy;
mod tools;
