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
        self.write_by = None;
        let Some(first) = self.unwritten.first() else { return Ok(()) };
        let RunKey { tenant, run } = self.permit.key().clone();
        let after = Seq(first.seq.0 - 1);
        let records = std::mem::take(&mut self.unwritten);
        let jobs = self.deps.jobs.wanted(&tenant, self.machine.state(), &records);
        let has_jobs = !jobs.is_empty();
        let summary = summary(&self.machine, self.is_waiting());
        let is_new = create.is_some();
        if let Some(create) = &create {
            self.preview.clone_from(&create.preview);
            self.created_by.clone_from(&create.created_by);
        }
        let (status, has_wake_time) = (summary.status, summary.wake_at.is_some());
        let began = Instant::now();
        let is_over = matches!(self.machine.state().phase(), Phase::Finished { .. });
        if is_over {
            self.hand_over_history(&records);
        }
        let appended = self
            .deps
            .store
            .append(Append {
                tenant,
                run,
                session: self.session.clone(),
                epoch: self.epoch,
                after,
                records: records.clone(),
                summary,
                create,
                enter,
                jobs,
            })
            .await;
        if is_new {
            // Also after an error: nobody knows if the run was written.
            let change = SessionSignal::Runs;
            self.deps.session_watchers.changed(&self.permit.key().tenant, &self.session, change);
        }
        if let Err(error) = appended {
            if is_over {
                self.deps.histories.remove(self.tenant(), &self.session);
            }
            return Err(error);
        }
        self.has_wake_time = has_wake_time;
        self.tell_watchers(status);
        let took = began.elapsed();
        if has_jobs {
            self.deps.jobs.notify();
        }
        if !is_over {
            self.history.extend(&records);
        }
        self.publish(records.into_iter().map(Arc::new).collect(), took);
        Ok(())
    }

    /// Tells those who watch lists of runs that the run's row has changed.
    fn tell_watchers(&mut self, status: RunStatus) {
        let before = self.durable_status.replace(status);
        if !self.deps.run_watchers.is_active() {
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
            preview: self.preview.clone(),
            created_by: self.created_by.clone(),
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
        let empty = History::new(&self.deps.histories.memory().of(self.tenant()));
        let mut history = std::mem::replace(&mut self.history, empty);
        history.extend(records);
        self.deps.histories.put(self.tenant().clone(), self.session.clone(), history);
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
