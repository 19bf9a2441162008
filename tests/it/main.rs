//! Behaviour through the contract.

mod abort;
mod approvals;
mod bad_input;
mod idempotency;
mod run;
mod stream;
mod tidy;
