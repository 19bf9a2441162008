//! The simulations with fixed budgets of seeds, and the stores and figures that they rest on.

mod capacity;
mod cluster;
mod seeds;
mod store;
