//! Routines that several inputs share. They import each other in one direction only, in the order of this list.

mod warning;

pub(super) mod calls;
pub(super) mod compaction;
pub(super) mod extension;
pub(super) mod limit;
pub(super) mod waiting;

pub(super) mod policy;
pub(super) mod question;

pub(super) mod doubt;

pub(super) mod finish;

pub(super) mod answer;
pub(super) mod model_call;

pub(super) mod plan;
