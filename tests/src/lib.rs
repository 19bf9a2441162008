//! Harness for tests through the contract.
