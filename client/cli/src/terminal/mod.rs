//! What several commands print and read: runs as they happen, questions and their answers, text and colours.

pub(crate) mod answer;
pub(crate) mod follow;
pub(crate) mod interrupt;
pub(crate) mod json;
pub(crate) mod lines;
pub(crate) mod names;
pub(crate) mod print;
pub(crate) mod render;
pub(crate) mod rule;
pub(crate) mod style;
pub(crate) mod surroundings;
pub(crate) mod text;
pub(crate) mod usage;
