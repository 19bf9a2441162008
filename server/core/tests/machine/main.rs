//! The run's state machine, driven as its driver drives it.

mod abort;
mod approvals;
mod explore;
mod limits;
mod model;
mod pairs;
mod search;
mod support;
