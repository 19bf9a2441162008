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
mod need_input;
mod pairs;
mod parallel;
mod planner;
mod policy;
mod prepare;
mod queue;
mod remember;
mod replays;
mod restart;
mod runtimes;
mod search;
mod steer;
mod steps;
mod support;
mod view;
