//! Executors of this process that answer questions in a human's place, and the one that is told of a run's end.

use std::sync::Arc;

use agentloop_core::run::event::{Event, Record};
use agentloop_core::run::human::{Decision, Question};
use agentloop_core::run::input::Input;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};

use crate::engine::ports::decision_input;
use crate::engine::run::task::RunTask;
use crate::extension::RunContext;

/// Questions of this run that executors are working on.
#[derive(Default)]
pub(in crate::engine) struct PendingAnswers {
    work: FuturesUnordered<BoxFuture<'static, Option<Input>>>,
}

impl PendingAnswers {
    pub(in crate::engine) fn is_empty(&self) -> bool {
        self.work.is_empty()
    }

    /// Waits for the next executor to finish: the decision, or `None` if it leaves the question to a human. Never
    /// returns while nothing is pending.
    pub(in crate::engine) async fn next(&mut self) -> Option<Input> {
        match self.work.next().await {
            Some(input) => input,
            None => std::future::pending().await,
        }
    }
}

impl RunTask {
    /// Tells executors of new durable events: questions to answer, and the end of the run.
    pub(in crate::engine) fn notify_executors(&mut self, records: &[Arc<Record>]) {
        for record in records {
            match &record.event {
                Event::HumanRequested { question, .. } => self.ask_human_executor(question.clone()),
                Event::Finished { .. } => self.notify_finish_executor(),
                _ => {}
            }
        }
    }

    /// Calls the executor again for every open question, because the run was taken over.
    pub(in crate::engine) fn ask_open_questions(&mut self) {
        let open: Vec<Question> = self.machine.state().open_questions().cloned().collect();
        for question in open {
            self.ask_human_executor(question);
        }
    }

    fn ask_human_executor(&mut self, question: Question) {
        let agent = &self.machine.state().spec().agent;
        let Some(executor) = self.deps.executors.of(agent, |executors| executors.human.as_ref()) else {
            return;
        };
        let answered = decision_input(executor.clone(), self.run_context(), question.clone());
        let (tools, tenant) = (self.deps.tools.clone(), self.permit.key().tenant.clone());
        // Edited arguments that do not follow the tool's schema count as no answer.
        let checked = answered.map(move |input| {
            input.filter(|input| match input {
                Input::Decided { decision: Decision::ApproveWithEdits { arguments }, .. } => {
                    tools.validate(&tenant, &question.tool, arguments).is_ok()
                }
                _ => true,
            })
        });
        self.running.answers.work.push(checked.boxed());
    }

    fn notify_finish_executor(&self) {
        let agent = &self.machine.state().spec().agent;
        if let Some(executor) = self.deps.executors.of(agent, |executors| executors.finish.as_ref()) {
            let (executor, context) = (executor.clone(), self.run_context());
            drop(self.deps.tasks.spawn_contained("finish", async move { executor.finished(context).await }));
        }
    }

    fn run_context(&self) -> RunContext {
        let state = Arc::new(self.machine.state().clone());
        RunContext { tenant: self.permit.key().tenant.clone(), state }
    }
}
