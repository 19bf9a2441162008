//! What was decided made durable, then shown.

use std::sync::Arc;

use agentloop_core::id::{EntryNo, Seq};
use agentloop_core::run::event::{Outcome, Record};
use agentloop_core::run::machine::Machine;
use agentloop_core::run::state::{Phase, State};

use crate::engine::run_task::RunTask;
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
        let (tenant, run) = self.place.key().clone();
        let after = Seq(first.seq.0 - 1);
        let records = std::mem::take(&mut self.unwritten);
        let jobs = self.deps.jobs.wanted(&tenant, self.machine.state(), &records);
        let has_jobs = !jobs.is_empty();
        let summary = summary(&self.machine, self.parks());
        let wakes = summary.wake_at.is_some();
        self.deps
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
            .await?;
        self.wakes = wakes;
        if has_jobs {
            self.deps.jobs.added();
        }
        self.history.extend(&records);
        let records: Vec<Arc<Record>> = records.into_iter().map(Arc::new).collect();
        self.feed.publish(&self.session, &records);
        self.executors_see(&records);
        let (tenant, run) = self.place.key();
        for observer in &self.deps.observers {
            for record in &records {
                observer.event(tenant, run, &self.session, record);
            }
        }
        Ok(())
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
