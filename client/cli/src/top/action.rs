//! The actions to which keys of the screen lead.

use agentloop_client::v1::{HumanRequest, decision::Decision, submit_input_request::Input};

/// Something to do. Its result comes back as a [`TopEvent`](super::state::TopEvent).
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Action {
    None,
    Quit,
    /// Read the run with this id, to show its details.
    Show(String),
    Abort(String),
    /// Decide on a call.
    Decide {
        request: Box<HumanRequest>,
        decision: Decision,
    },
    /// Answer a question that is not about a call.
    Submit {
        request: Box<HumanRequest>,
        input: Input,
    },
}
