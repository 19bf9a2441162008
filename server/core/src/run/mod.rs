//! What a run is: its status, its journal, what happens to it and what it asks for.

pub mod ask_human;
pub mod effect;
pub mod event;
pub mod human;
pub mod input;
pub mod machine;
pub mod plan;
pub mod refusal;
pub mod replay;
pub mod state;
pub mod status;
pub mod steps;
mod transition;
pub mod view;
