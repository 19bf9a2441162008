//! Parts that several of these tests have in common.

pub(crate) mod answer;
pub(crate) mod held;
pub(crate) mod intercepted;
pub(crate) mod keeping;
pub(crate) mod one_model;
pub(crate) mod patience;
pub(crate) mod ready_call;
pub(crate) mod start_request;
pub(crate) mod tool_call;
pub(crate) mod until;
