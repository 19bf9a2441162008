//! Behaviour through the contract.

mod abort;
mod approvals;
mod bad_input;
mod extensions;
mod forks;
mod idempotency;
mod lost_host;
mod overload;
mod recordings;
mod run;
mod runs;
mod runtimes;
mod service;
mod sessions;
mod step;
mod stream;
mod tidy;
mod tools;
