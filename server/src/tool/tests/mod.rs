//! Hosts and the engine, both fake, around the real thing between them.

pub(crate) mod bench;
mod calls;
mod facts;
mod hosts;
mod liars;
