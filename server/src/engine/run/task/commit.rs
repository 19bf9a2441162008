//! What was decided made durable, then shown.

use std::sync::Arc;

use agentloop_core::id::{EntryNo, RunKey, Seq};
use agentloop_core::run::event::{Outcome, Record};
use agentloop_core::run::machine::Machine;
use agentloop_core::run::state::{Phase, State};
use tokio::time::Instant;

use crate::engine::run::task::RunTask;
use crate::store::{Append, CreateRun, RunSummary, StoreError};

impl RunTask {
    /// Makes durable what was decided, then shows it.
    pub(in crate::engine) async fn flush(&mut self) -> Result<(), StoreError> {
        self.write(None, None).await
    }

    /// As [`Self::flush`], with what the store needs to know of a new run, and of one that enters its session.
    pub(in crate::engine) async fn write(
        &mut self,
        create: Option<CreateRun>,
        enter: Option<EntryNo>,
    ) -> Result<(), StoreError> {
        self.write_by = None;
        let Some(first) = self.unwritten.first() else { return Ok(()) };
        let RunKey { tenant, run } = self.place.key().clone();
        let after = Seq(first.seq.0 - 1);
        let records = std::mem::take(&mut self.unwritten);
        let jobs = self.deps.jobs.wanted(&tenant, self.machine.state(), &records);
        let has_jobs = !jobs.is_empty();
        let summary = summary(&self.machine, self.parks());
        let wakes = summary.wake_at.is_some();
        let began = Instant::now();
        let is_over = matches!(self.machine.state().phase, Phase::Finished { .. });
        if is_over {
            self.leave_history(&records);
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
        if let Err(error) = appended {
            if is_over {
                self.deps.histories.forget(self.tenant(), &self.session);
            }
            return Err(error);
        }
        self.wakes = wakes;
        let took = began.elapsed();
        if has_jobs {
            self.deps.jobs.changed();
        }
        if !is_over {
            self.history.extend(&records);
        }
        let records: Vec<Arc<Record>> = records.into_iter().map(Arc::new).collect();
        self.feed.publish(&records);
        self.executors_see(&records);
        let RunKey { tenant, run } = self.place.key();
        for observer in &self.deps.observers {
            observer.appended(records.len(), took);
            for record in &records {
                observer.event(tenant, run, &self.session, record);
            }
        }
        for follower in &mut self.followers {
            records.iter().for_each(|record| follower.event(record));
        }
        Ok(())
    }

    /// Leaves the session's history to its next run, before the write that frees the session: whoever deletes it then
    /// finds what there is to forget.
    fn leave_history(&mut self, records: &[Record]) {
        let mut history = std::mem::take(&mut self.history);
        history.extend(records);
        self.deps.histories.keep(self.tenant().clone(), self.session.clone(), history);
    }
}

/// What the run's row says.
fn summary(machine: &Machine, parks: bool) -> RunSummary {
    let state: &State = machine.state();
    let completed = matches!(state.phase, Phase::Finished { outcome: Outcome::Completed });
    RunSummary {
        status: state.status().expect("a run that is written has started"),
        wake_at: if parks { machine.deadline() } else { None },
        at_hosts: state.is_at_hosts(),
        error: if completed { None } else { state.last_error.clone() },
        usage: state.usage,
        iterations: state.iterations,
        tool_calls: state.tool_calls,
    }
}
