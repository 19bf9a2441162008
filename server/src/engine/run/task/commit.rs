//! Makes decided events durable, then shows them: to subscribers, executors and observers.

use std::sync::Arc;
use std::time::Duration;

use agentloop_core::id::{EntryNo, RunKey, Seq};
use agentloop_core::run::event::{Outcome, Record};
use agentloop_core::run::machine::Machine;
use agentloop_core::run::state::{Phase, RunState};
use agentloop_core::run::status::RunStatus;
use agentloop_core::tool::Digest;
use tokio::time::Instant;

use crate::engine::history::History;
use crate::engine::run::task::RunTask;
use crate::engine::watch::{ChangedFrom, SessionSignal};
use crate::store::{Append, CreateRun, RunRow, RunSummary, StoreError};

/// A write, by what it means for the run's place in its session.
pub(in crate::engine) enum RunWrite {
    /// The first one of a run that waits in its session's queue.
    Enqueue(CreateRun),
    /// The first one of a run that enters its session with it. The session must still have this last entry.
    Start(CreateRun, EntryNo),
    /// The one with which a run leaves the queue and enters its session. The session must still have this last entry.
    Enter(EntryNo),
    /// Any other one: the run stays where it is.
    Continue,
}

/// Facts about a write that are needed after it.
struct Written {
    began: Instant,
    status: RunStatus,
    has_wake_time: bool,
    has_jobs: bool,
    /// True if the run has ended with it.
    is_over: bool,
}

impl Written {
    fn of(append: &Append, is_over: bool) -> Self {
        Self {
            began: Instant::now(),
            status: append.summary.status,
            has_wake_time: append.summary.wake_at.is_some(),
            has_jobs: !append.jobs.is_empty(),
            is_over,
        }
    }
}

impl RunTask {
    /// Writes the unwritten events, then shows them.
    pub(in crate::engine) async fn flush(&mut self) -> Result<(), StoreError> {
        self.write(RunWrite::Continue).await
    }

    /// As [`Self::flush`], for any write of a run.
    pub(in crate::engine) async fn write(&mut self, write: RunWrite) -> Result<(), StoreError> {
        let (create, enter) = match write {
            RunWrite::Enqueue(create) => (Some(create), None),
            RunWrite::Start(create, last) => (Some(create), Some(last)),
            RunWrite::Enter(last) => (None, Some(last)),
            RunWrite::Continue => (None, None),
        };
        self.unwritten.write_by = None;
        if self.unwritten.records.is_empty() {
            return Ok(());
        }
        let records = std::mem::take(&mut self.unwritten.records);
        let is_new = create.is_some();
        let is_over = matches!(self.machine.state().phase(), Phase::Finished { .. });
        let append = self.append_of(create, enter, &records);
        let written = Written::of(&append, is_over);
        if is_over {
            self.hand_over_history(&records);
        }
        let appended = self.deps.store.append(append).await;
        if is_new {
            // Also after an error: nobody knows if the run was written.
            let change = SessionSignal::Runs;
            self.deps.watchers.sessions.changed(&self.permit.key().tenant, &self.session, change);
        }
        if let Err(error) = appended {
            if is_over {
                self.deps.memory.histories.remove(self.tenant(), &self.session);
            }
            return Err(error);
        }
        if is_new {
            let buffer = self.deps.options.subscriber_buffer;
            self.feed = self.deps.feeds.get_or_create(self.permit.key(), &self.session, buffer);
        }
        self.after_append(written, records);
        Ok(())
    }

    /// The write of these records, which are the run's next ones.
    fn append_of(&mut self, create: Option<CreateRun>, enter: Option<EntryNo>, records: &[Record]) -> Append {
        if let Some(create) = &create {
            self.row.preview.clone_from(&create.preview);
            self.row.created_by.clone_from(&create.created_by);
        }
        let RunKey { tenant, run } = self.permit.key().clone();
        let first = records.first().expect("a write has records");
        Append {
            jobs: self.deps.jobs.wanted(&tenant, self.machine.state(), records),
            tenant,
            run,
            session: self.session.clone(),
            epoch: self.epoch,
            after: Seq(first.seq.0 - 1),
            records: records.to_vec(),
            summary: summary(&self.machine, self.is_waiting()),
            create,
            enter,
        }
    }

    /// Shows records that are durable, and keeps them in the history unless that was handed over.
    fn after_append(&mut self, written: Written, records: Vec<Record>) {
        let Written { began, status, has_wake_time, has_jobs, is_over } = written;
        self.row.has_wake_time = has_wake_time;
        if !std::mem::replace(&mut self.is_past_failure, true) {
            self.deps.failures.of_store.forget(self.permit.key());
        }
        self.tell_watchers(status);
        let took = began.elapsed();
        if has_jobs {
            self.deps.jobs.notify();
        }
        if !is_over {
            self.history.extend(&records);
        }
        self.publish(records.into_iter().map(Arc::new).collect(), took);
    }

    /// Tells those who watch lists of runs that the run's row has changed.
    fn tell_watchers(&mut self, status: RunStatus) {
        let before = self.row.status.replace(status);
        if !self.deps.watchers.runs.is_active() {
            return;
        }
        let state = self.machine.state();
        let row = RunRow {
            run: self.permit.key().run.clone(),
            session: self.session.clone(),
            // No list shows it.
            request_digest: Digest::of(&[]),
            agent: state.spec().agent.clone(),
            model: state.spec().model.clone(),
            labels: state.spec().labels.clone(),
            preview: self.row.preview.clone(),
            created_by: self.row.created_by.clone(),
            created_at: state.started_at(),
            updated_at: state.updated_at(),
            last_seq: state.seq(),
            queue_no: None,
            summary: summary(&self.machine, self.is_waiting()),
        };
        let from = before.map_or(ChangedFrom::Nothing, ChangedFrom::Status);
        self.deps.run_changed(self.tenant(), row, state.waiting_on(), from);
    }

    fn publish(&mut self, records: Vec<Arc<Record>>, took: Duration) {
        self.feed.publish(&records);
        self.notify_executors(&records);
        let RunKey { tenant, run } = self.permit.key();
        for observer in &self.deps.observers {
            observer.appended(records.len(), took);
            for record in &records {
                observer.event(tenant, run, &self.session, record);
            }
        }
        for observer in &mut self.run_observers {
            records.iter().for_each(|record| observer.event(record));
        }
    }

    /// Puts the session's history into the cache for the next run. This comes before the write that frees the session:
    /// a deletion that follows the write must find the history in the cache, to remove it.
    fn hand_over_history(&mut self, records: &[Record]) {
        let empty = History::new(&self.deps.memory.histories.memory().of(self.tenant()));
        let mut history = std::mem::replace(&mut self.history, empty);
        history.extend(records);
        self.deps.memory.histories.put(self.tenant().clone(), self.session.clone(), history);
    }
}

/// The columns of the run's row. Only a run that waits has a time to wake it at.
fn summary(machine: &Machine, is_waiting: bool) -> RunSummary {
    let state: &RunState = machine.state();
    let completed = matches!(state.phase(), Phase::Finished { outcome: Outcome::Completed });
    RunSummary {
        status: state.status().expect("a run that is written has started"),
        wake_at: if is_waiting { machine.deadline() } else { None },
        at_hosts: state.has_calls_in_flight(),
        error: if completed { None } else { state.last_error().cloned() },
        usage: state.usage(),
        iterations: state.iterations(),
        tool_calls: state.tool_calls(),
        calls: state.call_counts(),
    }
}
