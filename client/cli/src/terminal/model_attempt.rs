//! The name of an attempt of a model call.

/// A model call of a run, and an attempt of it, both counted from 1. The default names none.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ModelAttempt {
    pub(crate) model_call: u32,
    pub(crate) attempt: u32,
}
