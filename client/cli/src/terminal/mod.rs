//! Terminal input and output that several commands share: events of runs, questions and answers, text and colours.

pub(crate) mod answer;
pub(crate) mod commands;
pub(crate) mod form;
pub(crate) mod format;
pub(crate) mod input_lines;
pub(crate) mod json;
pub(crate) mod local_context;
pub(crate) mod model_attempt;
pub(crate) mod print;
pub(crate) mod render;
pub(crate) mod rule;
pub(crate) mod signals;
pub(crate) mod style;
pub(crate) mod text;
pub(crate) mod usage;
