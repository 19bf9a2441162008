//! The agent loop, pure.

pub mod id;
pub mod limits;
pub mod time;

pub mod agent;
pub mod ask;
pub mod delta;
pub mod entry;
pub mod error;
pub mod extension;
pub mod message;
pub mod model;
pub mod model_traits;
pub mod outcome;
pub mod policy;
pub mod title;
pub mod tool;
pub mod trace;

pub mod context;
pub mod retry;

pub mod run;

pub mod host;
