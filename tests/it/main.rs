//! Behaviour through the contract.

mod bad_input;
mod idempotency;
mod run;
mod stream;
