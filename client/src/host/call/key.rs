//! The name of one attempt of a call.

/// A call id and an attempt number, counted from 1. Each attempt is tracked apart from the others.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CallKey {
    pub(crate) call_id: String,
    pub(crate) attempt: u32,
}

impl CallKey {
    pub(crate) fn new(call_id: &str, attempt: u32) -> Self {
        CallKey { call_id: call_id.to_owned(), attempt }
    }
}
