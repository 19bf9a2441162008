//! Behaviour through the contract.

mod abort;
mod approvals;
mod ask_human;
mod background;
mod bad_input;
mod busy_session;
mod context;
mod forks;
mod idempotency;
mod lost_host;
mod overload;
mod planner;
mod policy;
mod recordings;
mod remember;
mod replay;
mod run;
mod runs;
mod search;
mod service;
mod sessions;
mod step;
mod stream;
mod tidy;
mod tools;
