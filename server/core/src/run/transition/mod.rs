//! What each input leads to: one file per kind of stimulus.

pub(crate) mod compact;
pub(crate) mod deadline;
pub(crate) mod finish;
pub(crate) mod human;
pub(crate) mod model;
pub(crate) mod need_input;
pub(crate) mod plan;
pub(crate) mod policy;
pub(crate) mod prepare;
pub(crate) mod queue;
pub(crate) mod start;
pub(crate) mod steer;
pub(crate) mod tool;
