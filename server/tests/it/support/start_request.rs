//! Requests that start runs.

use std::sync::Arc;

use agentloop_core::agent::RunSpec;
use agentloop_core::id::{RunId, TenantId};
use agentloop_core::message::{Message, Role};
use agentloop_core::tool::Digest;
use agentloop_server::engine::{Author, OnBusy, StartRequest};

/// The start of a run in a new session. The engine makes the ids of both.
pub(crate) fn start_request(spec: RunSpec, prompt: &str) -> StartRequest {
    StartRequest {
        tenant: TenantId::local(),
        run: None,
        session: None,
        create_session: false,
        spec: Arc::new(spec),
        messages: vec![Arc::new(Message::text(Role::User, prompt))],
        digest: Digest::of(&[prompt.as_bytes()]),
        author: Author::default(),
        on_busy: OnBusy::Reject,
        traceparent: None,
        imports: false,
    }
}

/// As [`start_request`], with an id of the caller's for the run.
pub(crate) fn named_request(run: &str) -> StartRequest {
    let spec = RunSpec { agent: "a".into(), model: "any/one".into(), ..RunSpec::default() };
    StartRequest { run: Some(RunId::parse(run).expect("an id")), ..start_request(spec, "speak") }
}
