//! Behaviour through the contract.

mod abort;
mod approvals;
mod background;
mod bad_input;
mod busy_session;
mod context;
mod forks;
mod idempotency;
mod lost_host;
mod overload;
mod policy;
mod recordings;
mod run;
mod runs;
mod search;
mod service;
mod sessions;
mod stream;
mod tidy;
mod tools;
