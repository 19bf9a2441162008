//! Behaviour through the contract.

mod abort;
mod approvals;
mod background;
mod bad_input;
mod context;
mod extensions;
mod forks;
mod idempotency;
mod lost_host;
mod overload;
mod planner;
mod policy;
mod recordings;
mod replay;
mod run;
mod runs;
mod runtimes;
mod service;
mod sessions;
mod step;
mod stream;
mod tidy;
mod tools;
