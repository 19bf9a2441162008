//! The run's state machine, driven as its driver drives it.

mod pairs;
mod support;
