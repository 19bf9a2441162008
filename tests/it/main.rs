//! Behaviour through the contract.

mod run;
