//! The run's state machine, driven as its driver drives it.

mod abort;
mod explore;
mod pairs;
mod support;
