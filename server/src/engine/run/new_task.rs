//! Makes the task of a run, of a new one with its first write.

use std::sync::Arc;

use agentloop_core::id::{Epoch, RunKey, SessionId};
use agentloop_core::run::effect::Effect;
use agentloop_core::run::event::Record;
use agentloop_core::run::input::Input;
use agentloop_core::run::machine::Machine;

use crate::auth::UsePermit;
use crate::engine::Engine;
use crate::engine::feed::Feed;
use crate::engine::history::History;
use crate::engine::memory::RUN_BYTES;
use crate::engine::ports::Observer;
use crate::engine::run::table::{Mailbox, StartPermit};
use crate::engine::run::task::{RowColumns, RunTask, RunWrite, RunningWork, TaskMemory, Unwritten};
use crate::store::{RunRow, StoreError};

/// The parts of a task that differ from run to run.
pub(in crate::engine) struct NewTask<'a> {
    pub(in crate::engine) permit: StartPermit,
    pub(in crate::engine) machine: Machine,
    pub(in crate::engine) epoch: Epoch,
    pub(in crate::engine) session: SessionId,
    pub(in crate::engine) history: History,
    /// The run's events so far. Observers get them.
    pub(in crate::engine) past: &'a [Record],
}

/// A run that was just created.
pub(in crate::engine) struct NewRun {
    pub(in crate::engine) task: RunTask,
    /// Not in the table of live runs yet.
    pub(in crate::engine) mailbox: Mailbox,
    /// The effects that its first input leads to.
    pub(in crate::engine) effects: Vec<Effect>,
}

impl RunTask {
    /// Takes over columns of the run's row, of a run that was claimed.
    pub(in crate::engine) fn take_columns(&mut self, row: &RunRow, use_permit: Option<UsePermit>) {
        self.row.preview.clone_from(&row.preview);
        self.row.created_by.clone_from(&row.created_by);
        self.row.has_wake_time = row.summary.wake_at.is_some();
        self.use_permit = use_permit;
    }
}

impl Engine {
    /// Makes a task that is not started yet.
    pub(in crate::engine) fn new_task(&self, new: NewTask<'_>) -> (RunTask, Mailbox) {
        let NewTask { permit, machine, epoch, session, history, past } = new;
        let deps = self.deps();
        let RunKey { tenant, run } = permit.key();
        let follow = |observer: &Arc<dyn Observer>| observer.follow(tenant, run, &session, past);
        let run_observers = deps.observers.iter().filter_map(follow).collect();
        let buffer = deps.options.subscriber_buffer;
        // Until a new run is written, its id may be that of another one, whose subscribers follow the feed of that id.
        let feed = match past.is_empty() {
            true => Feed::apart(&session, buffer),
            false => deps.feeds.get_or_create(permit.key(), &session, buffer),
        };
        let (mailbox, receiver) = Mailbox::new();
        let base_charge =
            deps.ledger_of(tenant).charge_standing(RUN_BYTES + machine.state().spec().system_prompt.len());
        let task = RunTask {
            feed,
            deps: deps.clone(),
            wake_signal: self.wake_signal().clone(),
            permit,
            machine,
            epoch,
            session,
            row: RowColumns { status: past.last().map(|record| record.status), ..RowColumns::default() },
            history,
            unwritten: Unwritten::default(),
            mailbox: receiver,
            running: RunningWork::default(),
            memory: TaskMemory::new(base_charge),
            step_callers: Vec::new(),
            is_past_failure: false,
            use_permit: None,
            run_observers,
            given_away: None,
        };
        (task, mailbox)
    }

    /// Creates a run whose first input this is. It is written when this returns, and its task is not started.
    ///
    /// # Errors
    /// The store's.
    pub(in crate::engine) async fn write_new_run(
        &self,
        permit: StartPermit,
        session: &SessionId,
        history: History,
        input: Input,
        write: RunWrite,
    ) -> Result<NewRun, StoreError> {
        let deps = self.deps();
        let mut machine = Machine::new(permit.key().run.clone());
        let transition =
            machine.handle(input, deps.clock.now()).expect("a new run takes its start or its import");
        let (epoch, session) = (deps.store.epoch(), session.clone());
        let (mut task, mailbox) =
            self.new_task(NewTask { permit, machine, epoch, session, history, past: &[] });
        task.unwritten.records = transition.records;
        task.write(write).await?;
        Ok(NewRun { task, mailbox, effects: transition.effects })
    }
}
