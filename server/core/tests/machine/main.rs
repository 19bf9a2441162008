//! The run's state machine, driven as its driver drives it.

mod abort;
mod approvals;
mod compaction;
mod doubt;
mod explore;
mod hosts;
mod inputs;
mod late;
mod limits;
mod model;
mod pairs;
mod parallel;
mod policy;
mod queue;
mod remember;
mod restart;
mod search;
mod steer;
mod support;
mod view;
