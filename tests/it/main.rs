//! Behaviour through the contract.
