//! Events that start, pause, resume and end a run.

use std::sync::Arc;

use crate::agent::RunSpec;
use crate::id::{EntryNo, SessionId};
use crate::policy::PolicyRule;
use crate::run::event::Outcome;
use crate::run::state::{Phase, RunState};
use crate::run::status::RunError;
use crate::trace::TraceParent;

/// The fields of [`crate::run::event::Event::Started`].
pub(super) struct StartedFields<'a> {
    pub(super) session: &'a SessionId,
    pub(super) last_entry: EntryNo,
    pub(super) spec: &'a Arc<RunSpec>,
    pub(super) seed: u64,
    pub(super) traceparent: Option<TraceParent>,
    pub(super) caller_groups: &'a [String],
    pub(super) hidden_seed: bool,
    pub(super) queued: bool,
}

impl RunState {
    pub(super) fn started(&mut self, start: StartedFields<'_>) {
        assert_eq!(self.phase, Phase::New, "a run starts once");
        self.identity.session = Some(start.session.clone());
        self.identity.seed = start.seed;
        self.identity.traceparent = start.traceparent;
        self.identity.caller_groups = start.caller_groups.into();
        self.identity.hidden_seed = start.hidden_seed;
        self.spec = start.spec.clone();
        self.position.entry = start.last_entry;
        self.times.started = self.now();
        self.times.entered = self.now();
        self.phase = if start.queued { Phase::Queued } else { Phase::Preparing };
    }

    pub(super) fn session_entered(&mut self, last_entry: EntryNo, rules: &[PolicyRule]) {
        assert_eq!(self.phase, Phase::Queued, "only a queued run enters later");
        self.position.entry = last_entry;
        if !rules.is_empty() {
            Arc::make_mut(&mut self.spec).tool_policy.rules.extend_from_slice(rules);
        }
        self.times.entered = self.now();
        self.phase = Phase::Preparing;
    }

    pub(super) fn paused(&mut self, error: &RunError) {
        let Phase::ModelRunning(call) = self.phase else { panic!("only a model call can pause a run") };
        self.last_error = Some(error.clone());
        self.phase = Phase::Paused { call, since: self.now() };
    }

    /// The model call that follows leaves the phase.
    pub(super) fn resumed(&mut self, request: &str) {
        self.carried_out.resumed.insert(request.to_owned());
    }

    pub(super) fn finished(&mut self, outcome: Outcome, error: Option<&RunError>) {
        self.remember_settled_calls();
        self.last_error = error.cloned();
        self.phase = Phase::Finished { outcome };
    }
}
