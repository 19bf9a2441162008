//! Sessions are created, forked, noted on and deleted.

use agentloop_core::id::{EntryNo, RunId, RunKey, SessionId, TenantId};
use agentloop_core::time::Timestamp;
use agentloop_core::todo::TodoItem;
use agentloop_server::store::{
    IdleSession, NewFork, NewSession, PROJECT_LABEL, SessionNotes, SessionRow, SessionUpdate, StoreError,
    USER_LABEL,
};

use super::tables::{Run, Session, Tables};

impl Session {
    /// Shows the title that a caller gave, else the one that a model made.
    fn show_title(&mut self) {
        let shown = if self.given_title.is_empty() { &self.made_title } else { &self.given_title };
        self.row.title.clone_from(shown);
    }
}

impl Tables {
    pub(super) fn create_session(&mut self, new: &NewSession) -> Result<SessionRow, StoreError> {
        let NewSession { tenant, session, title, labels, created_at, created_by } = new;
        let place = self.sessions.entry((tenant.clone(), session.clone()));
        let found = place.or_insert_with(|| {
            let mut new = Session::new(session.clone(), *created_at);
            new.given_title.clone_from(title);
            new.row.title.clone_from(title);
            new.row.labels = labels.clone();
            new.row.created_by.clone_from(created_by);
            new.created_as = (title.clone(), labels.clone());
            new
        });
        let (created_title, created_labels) = &found.created_as;
        let same = created_title == title && created_labels == labels && found.row.forked_from.is_none();
        if !same {
            return Err(StoreError::SessionExists);
        }
        self.session_row(tenant, session).ok_or(StoreError::NoSession)
    }

    pub(super) fn get_or_create_session(&mut self, new: &NewSession) -> Result<SessionRow, StoreError> {
        let NewSession { tenant, labels, created_by, .. } = new;
        let is_of_user = |row: &&SessionRow| {
            (created_by.is_none() || row.created_by == *created_by)
                && [USER_LABEL, PROJECT_LABEL].iter().all(|key| row.labels.get(*key) == labels.get(*key))
        };
        let ours = self.sessions.iter().filter(|((of, _), _)| of == tenant).map(|(_, found)| &found.row);
        match ours.filter(is_of_user).max_by_key(|row| (row.updated_at, row.session.clone())) {
            Some(row) => {
                let session = row.session.clone();
                self.session_row(tenant, &session).ok_or(StoreError::NoSession)
            }
            None => self.create_session(new),
        }
    }

    pub(super) fn update_session(
        &mut self,
        tenant: &TenantId,
        session: &SessionId,
        update: &SessionUpdate,
    ) -> Result<SessionRow, StoreError> {
        let found = self.sessions.get_mut(&(tenant.clone(), session.clone())).ok_or(StoreError::NoSession)?;
        found.row.labels = update.labels(&found.row.labels)?;
        if let Some(title) = &update.title {
            found.given_title.clone_from(title);
        }
        found.show_title();
        self.session_row(tenant, session).ok_or(StoreError::NoSession)
    }

    pub(super) fn fork(&mut self, new: NewFork) -> Result<SessionRow, StoreError> {
        let NewFork { tenant, source, at, session, created_at, created_by, source_of } = new;
        if let Some(found) = self.session(&tenant, &session) {
            let same = found.row.forked_from.as_ref().is_some_and(|(from, shared)| {
                *from == source && (at == found.forked_asked || (at == *shared && at != EntryNo(0)))
            });
            let row = self.session_row(&tenant, &session).filter(|_| same);
            return row.ok_or(StoreError::SessionExists);
        }
        let from = self.session(&tenant, &source).ok_or(StoreError::NoSession)?;
        if source_of.is_some() && source_of != from.row.created_by {
            return Err(StoreError::NoSession);
        }
        let last = from.row.last_entry;
        if at > last {
            return Err(StoreError::EntryAhead { last });
        }
        let shared = if at == EntryNo(0) { last } else { at };
        let mut fork = Session::new(session.clone(), created_at);
        fork.given_title.clone_from(&from.given_title);
        fork.made_title.clone_from(&from.made_title);
        fork.row.title.clone_from(&from.row.title);
        fork.row.labels.clone_from(&from.row.labels);
        fork.row.preview = self.session_row(&tenant, &source).map(|row| row.preview).unwrap_or_default();
        fork.row.last_entry = shared;
        fork.row.created_by = created_by;
        fork.row.forked_from = Some((source, shared));
        fork.forked_asked = at;
        if from.row.summary_upto <= shared {
            fork.row.summary.clone_from(&from.row.summary);
            fork.row.summary_upto = from.row.summary_upto;
        }
        fork.todos = from.todos.range(..=shared).map(|(entry, items)| (*entry, items.clone())).collect();
        fork.entries = from.entries.iter().filter(|row| row.entry <= shared).cloned().collect();
        let row = fork.row.clone();
        self.sessions.insert((tenant, session), fork);
        Ok(row)
    }

    pub(super) fn set_notes(&mut self, tenant: &TenantId, session: &SessionId, notes: SessionNotes) -> bool {
        let Some(found) = self.sessions.get_mut(&(tenant.clone(), session.clone())) else { return false };
        if let Some(title) = notes.title.filter(|_| found.row.title.is_empty()) {
            found.made_title = title;
            found.show_title();
        }
        if let Some((summary, upto)) = notes.summary.filter(|(_, upto)| *upto > found.row.summary_upto) {
            (found.row.summary, found.row.summary_upto) = (summary, upto);
        }
        true
    }

    pub(super) fn tenants(&self) -> Vec<TenantId> {
        let mut tenants: Vec<TenantId> = self.sessions.keys().map(|(tenant, _)| tenant.clone()).collect();
        tenants.dedup();
        tenants
    }

    pub(super) fn session_count(&self, tenant: &TenantId, by: Option<&str>) -> u64 {
        let of_tenant = self.sessions.iter().filter(|((of, _), _)| of == tenant);
        of_tenant.filter(|(_, session)| by.is_none() || session.row.created_by.as_deref() == by).count()
            as u64
    }

    /// Bytes of journals, in their stored form.
    pub(super) fn stored_bytes(&self, tenant: &TenantId, by: Option<&str>) -> Result<u64, StoreError> {
        let ours = self.runs.iter().filter(|(key, run)| {
            key.tenant == *tenant && (by.is_none() || run.row.created_by.as_deref() == by)
        });
        let corrupt = |error: serde_json::Error| StoreError::Corrupt { what: error.to_string() };
        ours.flat_map(|(_, run)| &run.records)
            .map(|record| serde_json::to_string(record).map(|text| text.len() as u64).map_err(corrupt))
            .sum()
    }

    pub(super) fn idle_sessions(
        &self,
        tenant: &TenantId,
        before: Timestamp,
        after: Option<&IdleSession>,
        limit: u32,
    ) -> Vec<IdleSession> {
        let after = after.map(|after| (after.updated_at, &after.session));
        let ours = self.sessions.iter().filter(|((of, _), _)| of == tenant).map(|(_, session)| &session.row);
        let mut idle: Vec<IdleSession> = ours
            .filter(|row| row.live_run.is_none() && row.updated_at < before)
            .filter(|row| after.is_none_or(|after| (row.updated_at, &row.session) > after))
            .map(|row| IdleSession { updated_at: row.updated_at, session: row.session.clone() })
            .collect();
        idle.sort_by(|a, b| (a.updated_at, &a.session).cmp(&(b.updated_at, &b.session)));
        idle.truncate(limit as usize);
        idle
    }

    pub(super) fn todos(&self, tenant: &TenantId, session: &SessionId) -> Vec<TodoItem> {
        let last = self.session(tenant, session).and_then(|session| session.todos.last_key_value());
        last.map(|(_, items)| items.clone()).unwrap_or_default()
    }

    pub(super) fn delete_session(
        &mut self,
        tenant: &TenantId,
        session: &SessionId,
    ) -> Result<bool, StoreError> {
        let Some(found) = self.session(tenant, session) else { return Ok(false) };
        if let Some(run) = found.row.live_run.clone().or_else(|| self.first_queued(tenant, session)) {
            return Err(StoreError::SessionBusy { run });
        }
        self.sessions.remove(&(tenant.clone(), session.clone()));
        let is_of = |key: &RunKey, run: &mut Run| key.tenant == *tenant && run.row.session == *session;
        let deleted = self.runs.extract_if(.., is_of).map(|(key, run)| (key.tenant, run));
        self.deleted.extend(deleted);
        self.requests.retain(|(of, _), row| of != tenant || row.session != *session);
        self.rules.retain(|(of, _), row| of != tenant || row.session.as_ref() != Some(session));
        self.jobs.retain(|id, job| id.tenant != *tenant || job.session != *session);
        Ok(true)
    }

    /// The first in a session's queue, whether or not it may enter.
    pub(super) fn first_queued(&self, tenant: &TenantId, session: &SessionId) -> Option<RunId> {
        self.queue(tenant, session).next().map(|(_, run)| run)
    }
}
