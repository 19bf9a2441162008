//! Events that happen while a run is taken over.

mod memory;
mod process;
mod resumption;
mod silent;
mod takeover;
