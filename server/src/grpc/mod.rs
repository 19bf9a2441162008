//! The contract, served. Wire types go no further in than this module.

pub mod agent_loop;
pub mod convert;
pub mod sessions;
pub mod status;

mod disconnect;
mod page;
