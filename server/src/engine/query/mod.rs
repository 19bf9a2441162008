//! Calls about one run: its origin, its view, its events, its steps, its replay, and decisions of humans.

pub(in crate::engine) mod decide;
pub(in crate::engine) mod origin;
pub(in crate::engine) mod replay;
pub(in crate::engine) mod step;
pub(in crate::engine) mod subscribe;
pub(in crate::engine) mod view;
