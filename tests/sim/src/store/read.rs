//! Reads of the store in memory.

use std::collections::BTreeMap;

use agentloop_core::id::{EntryNo, IdError, RequestId, RunId, RunKey, Seq, SessionId, TenantId};
use agentloop_core::run::event::{Event, Record};
use agentloop_core::time::Timestamp;
use agentloop_core::tool::Digest;
use agentloop_server::store::{
    EntryRow, GroupedRun, Interrupted, Job, LastRun, Page, PageRequest, RequestFilter, RequestRow, RuleRow,
    RunFilter, RunRow, SessionFilter, SessionRow, StoreError, UsageQuery, UsageRow,
};

use super::append::ORDINARY_QUEUE_NO;
use super::tables::Tables;

/// Rows of one page at most.
const PAGE_ROWS_MAX: usize = 1_000;

impl Tables {
    pub(crate) fn records(&self, tenant: &TenantId, run: &RunId, after: Seq, limit: u32) -> Vec<Record> {
        let journal = self.run(tenant, run).map_or(&[][..], |run| &run.records);
        journal.iter().filter(|record| record.seq > after).take(limit as usize).cloned().collect()
    }

    pub(super) fn usage(&self, tenant: &TenantId, query: &UsageQuery) -> Vec<UsageRow> {
        let mut rows = BTreeMap::new();
        let deleted = self.deleted.iter().map(|(of, run)| (of, run));
        let all = self.runs.iter().map(|(key, run)| (&key.tenant, run)).chain(deleted);
        for (_, run) in all.filter(|(of, run)| *of == tenant && query.is_about(&run.row)) {
            let group = query.group(&GroupedRun::of(&run.row));
            run.records.iter().for_each(|record| query.add(&mut rows, &group, record));
        }
        rows.into_values().take(query.rows_max + 1).collect()
    }

    pub(super) fn unfinished(&self) -> Vec<RunKey> {
        let runs = self.runs.iter().filter(|(_, run)| {
            let summary = &run.row.summary;
            summary.goes_on() && run.row.queue_no.is_none()
        });
        runs.map(|(key, _)| key.clone()).collect()
    }

    /// A session's queue, in order.
    pub(super) fn queue(
        &self,
        tenant: &TenantId,
        session: &SessionId,
    ) -> impl Iterator<Item = (u64, RunId)> + use<> {
        let waits = |(key, row): (&RunKey, &super::tables::Run)| {
            let place = row.row.queue_no.filter(|_| key.tenant == *tenant && row.row.session == *session)?;
            Some((place, key.run.clone()))
        };
        let mut queue: Vec<(u64, RunId)> = self.runs.iter().filter_map(waits).collect();
        queue.sort();
        queue.into_iter()
    }

    pub(crate) fn next_queued(&self, tenant: &TenantId, session: &SessionId) -> Option<RunId> {
        let is_free = self.session(tenant, session).is_some_and(|session| session.row.live_run.is_none());
        self.first_queued(tenant, session).filter(|_| is_free)
    }

    pub(super) fn queue_heads(&self) -> Vec<RunKey> {
        let heads = self.sessions.keys().filter_map(|(tenant, session)| {
            self.next_queued(tenant, session).map(|run| RunKey::new(tenant.clone(), run))
        });
        heads.collect()
    }

    pub(super) fn interrupted(&self) -> Vec<Interrupted> {
        let found = self.sessions.keys().filter_map(|(tenant, session)| self.interrupted_in(tenant, session));
        found.collect()
    }

    pub(super) fn interrupted_in(&self, tenant: &TenantId, session: &SessionId) -> Option<Interrupted> {
        let run = self.session(tenant, session)?.row.live_run.clone()?;
        let (place, by) = self.queue(tenant, session).next()?;
        (place < ORDINARY_QUEUE_NO).then(|| Interrupted { tenant: tenant.clone(), run, by })
    }

    pub(crate) fn steered(&self, tenant: &TenantId, id: &RunId) -> Option<(RunId, Digest)> {
        let ours = self.runs.iter().filter(|(key, _)| key.tenant == *tenant);
        ours.flat_map(|(key, row)| row.records.iter().map(move |record| (&key.run, record))).find_map(
            |(run, record)| match &record.event {
                Event::MessageHeld { steer: Some(steer), .. } if steer.id == *id => {
                    Some((run.clone(), steer.digest.clone()))
                }
                _ => None,
            },
        )
    }

    pub(super) fn due(&self, now: Timestamp, limit: u32) -> (Vec<RunKey>, Option<Timestamp>) {
        let waiting = self.runs.iter().filter_map(|(key, run)| Some((run.row.summary.wake_at?, key.clone())));
        let mut waiting: Vec<_> = waiting.collect();
        waiting.sort();
        let due = waiting.iter().take_while(|(at, _)| *at <= now).count().min(limit as usize);
        let next = waiting.get(due).map(|(at, _)| *at);
        (waiting.into_iter().take(due).map(|(_, key)| key).collect(), next)
    }

    pub(crate) fn entries(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        after: EntryNo,
        limit: u32,
    ) -> Vec<EntryRow> {
        let all = self.session(tenant, session).map_or(&[][..], |session| &session.entries);
        all.iter().filter(|row| row.entry > after).take(limit as usize).cloned().collect()
    }

    pub(crate) fn request(&self, tenant: &TenantId, request: &RequestId) -> Option<RequestRow> {
        self.requests.get(&(tenant.clone(), request.clone())).cloned()
    }

    pub(super) fn rules(&self, tenant: &TenantId, session: Option<&SessionId>) -> Vec<RuleRow> {
        let ours = self.rules.iter().filter(|((of, _), row)| of == tenant && row.session.as_ref() == session);
        let mut found: Vec<RuleRow> = ours.map(|(_, row)| row.clone()).collect();
        found.sort_by_key(|row| row.at);
        found
    }

    pub(super) fn due_jobs(
        &self,
        now: Timestamp,
        after: Option<&TenantId>,
        limit: u32,
    ) -> (Vec<Job>, Option<Timestamp>) {
        let (due, later): (Vec<&Job>, Vec<&Job>) = self.jobs.values().partition(|job| job.due_at <= now);
        let mut of_tenants: BTreeMap<&TenantId, Vec<&Job>> = BTreeMap::new();
        for job in due {
            of_tenants.entry(&job.id.tenant).or_default().push(job);
        }
        let (behind, before): (Vec<_>, Vec<_>) =
            of_tenants.into_iter().partition(|(tenant, _)| after.is_none_or(|after| *tenant > after));
        let mut found = Vec::new();
        for (_, mut jobs) in behind.into_iter().chain(before).take(limit as usize) {
            jobs.sort_by_cached_key(|job| (job.due_at, job.id.run.clone(), job.id.kind.to_string()));
            found.extend(jobs.into_iter().take(limit as usize).cloned());
        }
        (found, later.iter().map(|job| job.due_at).min())
    }

    pub(super) fn run_page(
        &self,
        tenant: &TenantId,
        filter: &RunFilter,
        page: &PageRequest,
    ) -> Result<Page<RunRow>, StoreError> {
        let begin = begin(page, RunId::parse)?;
        let ours = self.runs.iter().filter(|(key, _)| key.tenant == *tenant).map(|(_, run)| &run.row);
        let mut rows: Vec<RunRow> = ours
            .filter(|row| filter.matches(row))
            .filter(|row| {
                begin
                    .as_ref()
                    .is_none_or(|(at, id)| (row.created_at.0, row.run.as_str()) < (*at, id.as_str()))
            })
            .cloned()
            .collect();
        rows.sort_by(|a, b| (b.created_at, &b.run).cmp(&(a.created_at, &a.run)));
        Ok(cut(rows, page, |row| format!("{}:{}", row.created_at.0, row.run)))
    }

    /// The row of a session, with what its runs say.
    pub(super) fn session_row(&self, tenant: &TenantId, session: &SessionId) -> Option<SessionRow> {
        let found = self.session(tenant, session)?;
        let mut row = found.row.clone();
        let runs = self.runs.iter().filter(|(key, run)| key.tenant == *tenant && run.row.session == *session);
        let mut runs: Vec<&RunRow> = runs.map(|(_, run)| &run.row).collect();
        // Runs of one time are told apart by the order of their creation, which these tables do not keep.
        runs.sort_by_key(|run| run.created_at);
        let live = row.live_run.as_ref().and_then(|live| runs.iter().find(|run| run.run == *live));
        row.last_run = live.or(runs.last()).map(|run| LastRun {
            status: run.summary.status,
            agent: run.agent.clone(),
            model: run.model.clone(),
        });
        if row.preview.is_empty() {
            let first = runs.iter().map(|run| &run.preview).find(|preview| !preview.is_empty());
            row.preview = first.cloned().unwrap_or_default();
        }
        Some(row)
    }

    pub(super) fn session_page(
        &self,
        tenant: &TenantId,
        filter: &SessionFilter,
        page: &PageRequest,
    ) -> Result<Page<SessionRow>, StoreError> {
        let begin = begin(page, SessionId::parse)?;
        let ours = self.sessions.keys().filter(|(of, _)| of == tenant);
        let ours = ours.filter_map(|(_, session)| self.session_row(tenant, session));
        let mut rows: Vec<SessionRow> = ours
            .filter(|row| {
                let place = (row.updated_at.0, row.session.as_str());
                begin.as_ref().is_none_or(|(at, id)| place < (*at, id.as_str()))
            })
            .filter(|row| filter.matches(row))
            .collect();
        rows.sort_by(|a, b| (b.updated_at, &b.session).cmp(&(a.updated_at, &a.session)));
        Ok(cut(rows, page, |row| format!("{}:{}", row.updated_at.0, row.session)))
    }

    pub(super) fn request_page(
        &self,
        tenant: &TenantId,
        filter: &RequestFilter,
        page: &PageRequest,
    ) -> Result<Page<RequestRow>, StoreError> {
        let begin = begin(page, RequestId::parse)?;
        let ours = self.requests.iter().filter(|((of, _), _)| of == tenant).map(|(_, row)| row);
        let mut rows: Vec<RequestRow> = ours
            .filter(|row| row.answer.is_none())
            .filter(|row| self.run(tenant, &row.run).is_some_and(|run| filter.matches(row, &run.row)))
            .filter(|row| {
                let place = (row.question.asked_at.0, row.question.request.as_str());
                begin.as_ref().is_none_or(|(at, id)| place > (*at, id.as_str()))
            })
            .cloned()
            .collect();
        rows.sort_by(|a, b| {
            (a.question.asked_at, &a.question.request).cmp(&(b.question.asked_at, &b.question.request))
        });
        Ok(cut(rows, page, |row| format!("{}:{}", row.question.asked_at.0, row.question.request)))
    }
}

/// Behind which row a page begins; `None` at the beginning of the list.
fn begin<T>(
    page: &PageRequest,
    id: impl Fn(String) -> Result<T, IdError>,
) -> Result<Option<(u64, String)>, StoreError> {
    let Some(token) = &page.after else { return Ok(None) };
    let parsed = token.split_once(':').and_then(|(key, rest)| {
        id(rest.to_owned()).ok()?;
        let key: u64 = key.parse().ok()?;
        (format!("{key}:{rest}") == *token).then(|| (key, rest.to_owned()))
    });
    parsed.map(Some).ok_or(StoreError::BadPageToken)
}

/// The first rows, as many as a page has.
fn cut<T>(mut rows: Vec<T>, page: &PageRequest, token: impl Fn(&T) -> String) -> Page<T> {
    let size = (page.size as usize).clamp(1, PAGE_ROWS_MAX);
    let more = rows.len() > size;
    rows.truncate(size);
    let next = rows.last().filter(|_| more).map(token);
    Page { rows, next }
}
