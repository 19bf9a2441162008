//! The tables of the store in memory, and its smaller writes.

use std::collections::BTreeMap;

use agentloop_core::id::{EntryNo, Epoch, HostId, RequestId, RuleId, RunId, RunKey, SessionId, TenantId};
use agentloop_core::run::event::Record;
use agentloop_core::time::Timestamp;
use agentloop_core::todo::TodoItem;
use agentloop_server::store::{
    Claimed, EntryRow, HostClaim, Job, JobId, RequestRow, RuleRow, RunRow, SessionRow, StoreError, ToolRow,
};

/// Everything, of every tenant.
#[derive(Debug, Default)]
pub struct Tables {
    pub(crate) runs: BTreeMap<RunKey, Run>,
    pub(crate) sessions: BTreeMap<(TenantId, SessionId), Session>,
    pub(super) requests: BTreeMap<(TenantId, RequestId), RequestRow>,
    pub(super) rules: BTreeMap<(TenantId, RuleId), RuleRow>,
    pub(crate) jobs: BTreeMap<JobId, Job>,
    tools: BTreeMap<(TenantId, String), ToolRow>,
    hosts: BTreeMap<(TenantId, HostId), (String, Timestamp)>,
    /// Runs of deleted sessions, whose usage stays.
    pub(super) deleted: Vec<(TenantId, Run)>,
}

/// A run and its journal.
#[derive(Debug)]
pub(crate) struct Run {
    pub(super) epoch: Epoch,
    pub(crate) row: RunRow,
    pub(crate) records: Vec<Record>,
}

/// A session and what was said in it.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) row: SessionRow,
    /// The title that a caller gave it; the row may have a made one.
    pub(super) given_title: String,
    /// The title that a model made.
    pub(super) made_title: String,
    /// Title and labels that it was created with.
    pub(super) created_as: (String, BTreeMap<String, String>),
    /// The entry that a fork asked for; 0 meant all.
    pub(super) forked_asked: EntryNo,
    pub(super) last_queue_no: u64,
    pub(super) entries: Vec<EntryRow>,
    /// Each to-do list, by the entry that is its call's result.
    pub(super) todos: BTreeMap<EntryNo, Vec<TodoItem>>,
}

impl Session {
    pub(super) fn new(session: SessionId, created_at: Timestamp) -> Self {
        let row = SessionRow {
            session,
            title: String::new(),
            labels: BTreeMap::new(),
            created_at,
            updated_at: created_at,
            last_entry: EntryNo(0),
            live_run: None,
            forked_from: None,
            summary: String::new(),
            summary_upto: EntryNo(0),
            created_by: None,
            preview: String::new(),
            last_run: None,
        };
        Self {
            row,
            given_title: String::new(),
            made_title: String::new(),
            created_as: (String::new(), BTreeMap::new()),
            forked_asked: EntryNo(0),
            last_queue_no: 0,
            entries: Vec::new(),
            todos: BTreeMap::new(),
        }
    }
}

impl Tables {
    pub(crate) fn run(&self, tenant: &TenantId, run: &RunId) -> Option<&Run> {
        self.runs.get(&RunKey::new(tenant.clone(), run.clone()))
    }

    pub(crate) fn session(&self, tenant: &TenantId, session: &SessionId) -> Option<&Session> {
        self.sessions.get(&(tenant.clone(), session.clone()))
    }

    /// The rows that exist for a session, as text.
    pub(crate) fn left_of(&self, tenant: &TenantId, session: &SessionId) -> Vec<String> {
        let mut left = Vec::new();
        left.extend(self.session(tenant, session).map(|_| "the session".to_owned()));
        let is_of = |of: &SessionId| of == session;
        left.extend(
            self.runs.values().filter(|run| is_of(&run.row.session)).map(|run| run.row.run.to_string()),
        );
        left.extend(
            self.requests
                .values()
                .filter(|row| is_of(&row.session))
                .map(|row| row.question.request.to_string()),
        );
        left.extend(self.jobs.values().filter(|job| is_of(&job.session)).map(|job| job.id.to_string()));
        left
    }

    /// Raises the run's epoch above that of whoever had it. The journal goes through its stored form, so that what a
    /// restart reads is what a file would give it.
    pub(super) fn claim(
        &mut self,
        tenant: &TenantId,
        run: &RunId,
        least: Epoch,
    ) -> Result<Option<Claimed>, StoreError> {
        let Some(run) = self.runs.get_mut(&RunKey::new(tenant.clone(), run.clone())) else { return Ok(None) };
        run.epoch = Epoch(run.epoch.0 + 1).max(least);
        let corrupt = |error: serde_json::Error| StoreError::Corrupt { what: error.to_string() };
        let text = serde_json::to_string(&run.records).map_err(corrupt)?;
        let records = serde_json::from_str(&text).map_err(corrupt)?;
        Ok(Some(Claimed { epoch: run.epoch, row: run.row.clone(), records }))
    }

    pub(super) fn delete_rule(&mut self, tenant: &TenantId, rule: &RuleId) -> bool {
        self.rules.remove(&(tenant.clone(), rule.clone())).is_some()
    }

    pub(super) fn retry_job(&mut self, job: &JobId, due_at: Timestamp, error: &str) {
        if let Some(job) = self.jobs.get_mut(job) {
            job.attempts += 1;
            job.due_at = due_at;
            job.error = Some(error.to_owned());
        }
    }

    pub(super) fn finish_job(&mut self, job: &JobId) {
        self.jobs.remove(job);
    }

    pub(super) fn save_tools(&mut self, tenant: &TenantId, tools: &[ToolRow]) {
        for tool in tools {
            self.tools.insert((tenant.clone(), tool.declaration.name.clone()), tool.clone());
        }
    }

    pub(super) fn claim_host(&mut self, claim: &HostClaim) -> bool {
        let key = (claim.tenant.clone(), claim.host.clone());
        let (principal, seen) = self.hosts.entry(key).or_insert_with(|| (claim.principal.clone(), claim.at));
        let is_granted = *principal == claim.principal || *seen < claim.free_before;
        if is_granted {
            principal.clone_from(&claim.principal);
            *seen = claim.at.max(*seen);
        }
        is_granted
    }

    pub(super) fn see_hosts(&mut self, hosts: &[(TenantId, HostId)], at: Timestamp, free_before: Timestamp) {
        for host in hosts {
            if let Some((_, seen)) = self.hosts.get_mut(host) {
                *seen = at.max(*seen);
            }
        }
        self.hosts.retain(|_, (_, seen)| *seen >= free_before);
    }

    pub(super) fn forget_tool(&mut self, tenant: &TenantId, name: &str) -> bool {
        self.tools.remove(&(tenant.clone(), name.to_owned())).is_some()
    }

    pub(super) fn tools(&self) -> Vec<(TenantId, ToolRow)> {
        self.tools.iter().map(|((tenant, _), tool)| (tenant.clone(), tool.clone())).collect()
    }
}
