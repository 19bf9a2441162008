//! Tests of `RemoteTools` between fake hosts and a fake engine.

mod calls;
mod facts;
mod faulty_hosts;
pub(crate) mod harness;
mod hosts;
