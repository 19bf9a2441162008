//! What this process does in a human's place, as part of a run's task.

use std::sync::Arc;

use agentloop_core::run::event::{Event, Record};
use agentloop_core::run::human::{Decision, Question};
use agentloop_core::run::input::Input;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};

use crate::engine::ports::answer;
use crate::engine::run::task::RunTask;
use crate::extension::RunContext;

/// Work of executors under way.
#[derive(Default)]
pub(in crate::engine) struct Executing {
    work: FuturesUnordered<BoxFuture<'static, Option<Input>>>,
}

impl Executing {
    /// Whether anything is under way.
    pub(in crate::engine) fn is_empty(&self) -> bool {
        self.work.is_empty()
    }

    /// What comes of it; never, where there is nothing.
    pub(in crate::engine) async fn next(&mut self) -> Option<Input> {
        match self.work.next().await {
            Some(input) => input,
            None => std::future::pending().await,
        }
    }
}

impl RunTask {
    /// Sees to what was made durable: questions to answer, an end to tell of.
    pub(in crate::engine) fn executors_see(&mut self, records: &[Arc<Record>]) {
        for record in records {
            match &record.event {
                Event::HumanRequested { question } => self.ask_executor(question.clone()),
                Event::Finished { .. } => self.tell_executor(),
                _ => {}
            }
        }
    }

    /// Asks about what still waits, for a run that is taken up again.
    pub(in crate::engine) fn ask_executor_anew(&mut self) {
        let open: Vec<Question> = self.machine.state().open_questions().cloned().collect();
        for question in open {
            self.ask_executor(question);
        }
    }

    fn ask_executor(&mut self, question: Question) {
        let agent = &self.machine.state().spec.agent;
        let Some(executor) = self.deps.instructions.of(agent, |executors| executors.human.as_ref()) else {
            return;
        };
        let answered = answer(executor.clone(), self.run_context(), question.clone());
        let (tools, tenant) = (self.deps.tools.clone(), self.place.key().tenant.clone());
        let checked = answered.map(move |input| {
            input.filter(|input| match input {
                Input::Decided { decision: Decision::ApproveWithEdits { arguments }, .. } => {
                    tools.validate(&tenant, &question.tool, arguments).is_ok()
                }
                _ => true,
            })
        });
        self.executing.work.push(checked.boxed());
    }

    fn tell_executor(&self) {
        let agent = &self.machine.state().spec.agent;
        if let Some(executor) = self.deps.instructions.of(agent, |executors| executors.finish.as_ref()) {
            let (executor, context) = (executor.clone(), self.run_context());
            drop(self.deps.tasks.spawn_contained("finish", async move { executor.finished(context).await }));
        }
    }

    fn run_context(&self) -> RunContext {
        let state = Arc::new(self.machine.state().clone());
        RunContext { tenant: self.place.key().tenant.clone(), state }
    }
}
