//! One run: its journal of events, the state that is folded from it, and the machine that decides.

pub mod ask_human;
mod built_in;
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
pub mod update_todos;
pub mod view;
