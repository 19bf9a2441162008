//! The first input of a new run, and the columns of its row.

use std::collections::BTreeMap;

use agentloop_core::id::{EntryNo, RunId, SessionId};
use agentloop_core::message::preview;
use agentloop_core::run::input::{NotOffered, Start};

use crate::engine::session::request::{OnBusy, StartRequest};
use crate::store::CreateRun;

/// Unknown tool names that one line of the log has.
const UNKNOWN_TOOLS_LOGGED_MAX: usize = 20;

/// The first input of a new run.
pub(in crate::engine) struct FirstInput<'a> {
    pub(in crate::engine) run: RunId,
    pub(in crate::engine) session: &'a SessionId,
    /// The last entry of the session. `None` if the run is queued.
    pub(in crate::engine) last_entry: Option<EntryNo>,
    pub(in crate::engine) seed: u64,
    pub(in crate::engine) request: &'a StartRequest,
    pub(in crate::engine) not_offered: NotOffered,
}

impl FirstInput<'_> {
    /// The content of the input.
    pub(in crate::engine) fn start(self) -> Start {
        let Self { run, session, last_entry, seed, request, not_offered } = self;
        Start {
            run,
            session: session.clone(),
            last_entry: last_entry.unwrap_or(EntryNo(0)),
            spec: request.spec.clone(),
            seed,
            messages: request.messages.clone(),
            queued: last_entry.is_none(),
            traceparent: request.traceparent,
            caller_groups: request.author.groups.clone(),
            not_offered,
        }
    }
}

/// The columns of a new run's row. `is_blind` is of its [view](crate::store::StartView).
pub(in crate::engine) fn create_run(request: &StartRequest, is_blind: bool) -> CreateRun {
    let labels: BTreeMap<String, String> = request.spec.labels.clone();
    CreateRun {
        request_digest: request.digest.clone(),
        create_session: request.create_session || request.session.is_none(),
        made_ids: request.run.is_none() && request.session.is_none(),
        is_blind,
        agent: request.spec.agent.clone(),
        model: request.spec.model.clone(),
        labels,
        preview: preview(request.messages.iter().map(|message| &**message)),
        created_by: request.author.name.clone(),
        interrupts: request.on_busy == OnBusy::Interrupt,
    }
}

/// Logs the tools that a new run wants and that nobody has declared: the names are probably misspelt. Call this once the run is
/// written.
pub(in crate::engine) fn log_unknown_tools(run: &RunId, request: &StartRequest, unknown: &[String]) {
    if unknown.is_empty() {
        return;
    }
    let shown: Vec<&str> = unknown.iter().map(String::as_str).take(UNKNOWN_TOOLS_LOGGED_MAX).collect();
    tracing::warn!(
        run.id = %run, agent = request.spec.agent, tools = ?shown, count = unknown.len(),
        "allowed_tools or tool_order names tools that no host has declared; check their spelling, or connect their host"
    );
}
