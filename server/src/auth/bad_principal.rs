//! A principal that is described wrongly.

/// The description of a principal is wrong. The message says what, for the operator.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadPrincipal(pub String);
