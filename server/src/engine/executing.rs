//! What this process does in a host's or a human's place, as part of a run's task.

use std::collections::HashMap;
use std::sync::Arc;

use agentloop_core::id::{CallId, CallSlot};
use agentloop_core::outcome::Ran;
use agentloop_core::run::effect::Offer;
use agentloop_core::run::event::{Event, Record};
use agentloop_core::run::human::{Decision, Question};
use agentloop_core::run::input::Input;
use futures_util::FutureExt as _;
use futures_util::future::{AbortHandle, Abortable, BoxFuture};
use futures_util::stream::{FuturesUnordered, StreamExt as _};

use crate::engine::executor::{ToolExecution, ToolExecutor, answer, execute, in_process};
use crate::engine::run_task::RunTask;
use crate::extension::RunContext;

/// Work of executors under way.
#[derive(Default)]
pub(super) struct Executing {
    work: FuturesUnordered<BoxFuture<'static, Option<Input>>>,
    calls: HashMap<CallSlot, AbortHandle>,
}

impl Executing {
    /// Whether anything is under way.
    pub(super) fn is_empty(&self) -> bool {
        self.work.is_empty()
    }

    /// What comes of it; never, where there is nothing.
    pub(super) async fn next(&mut self) -> Option<Input> {
        match self.work.next().await {
            Some(input) => input,
            None => std::future::pending().await,
        }
    }

    fn call(&mut self, slot: CallSlot, work: impl Future<Output = Option<Input>> + Send + 'static) {
        let (handle, registration) = AbortHandle::new_pair();
        self.calls.insert(slot, handle);
        let work = Abortable::new(work, registration);
        self.work.push(work.map(|done| done.ok().flatten()).boxed());
    }
}

impl RunTask {
    /// The executor of this tool's calls, if it is not left to hosts.
    pub(super) fn tool_executor(&self, tool: &str) -> Option<Arc<dyn ToolExecutor>> {
        let agent = &self.machine.state().spec.agent;
        let executor = self.deps.instructions.of(agent, |executors| executors.tools.as_ref())?;
        executor.takes(tool).then(|| executor.clone())
    }

    /// Runs a call here, if this process is its host; `false`: it is a host's.
    pub(super) fn executes(&mut self, offer: &Offer) -> bool {
        if offer.host != in_process() {
            return false;
        }
        let Offer { slot, attempt, .. } = *offer;
        let Some(executor) = self.tool_executor(&offer.tool) else {
            self.lose(slot, attempt);
            return true;
        };
        let execution = ToolExecution {
            tenant: self.place.key().0.clone(),
            session: self.session.clone(),
            call: CallId { run: self.place.key().1.clone(), slot },
            attempt,
            tool: offer.tool.clone(),
            arguments: offer.arguments.clone(),
            idempotency_key: offer.idempotency_key.clone(),
            deadline: offer.deadline,
        };
        self.executing.call(slot, execute(executor, execution, offer.clone()));
        true
    }

    /// Gives a call up that was under way in the process before this one; `false`: it is a host's.
    pub(super) fn abandons(&mut self, offer: &Offer) -> bool {
        let ours = offer.host == in_process();
        if ours {
            self.lose(offer.slot, offer.attempt);
        }
        ours
    }

    fn lose(&mut self, slot: CallSlot, attempt: u32) {
        let message = "the server stopped during the call".to_owned();
        let lost = Input::CallLost { slot, attempt, message, ran: Ran::Maybe };
        self.executing.call(slot, std::future::ready(Some(lost)));
    }

    /// Stops a call that runs here; a host's is stopped elsewhere.
    pub(super) fn stop_executing(&mut self, slot: CallSlot) {
        if let Some(handle) = self.executing.calls.remove(&slot) {
            handle.abort();
        }
    }

    /// Sees to what was made durable: questions to answer, an end to tell of.
    pub(super) fn executors_see(&mut self, records: &[Arc<Record>]) {
        for record in records {
            match &record.event {
                Event::HumanRequested { question } => self.ask_executor(question.clone()),
                Event::Finished { .. } => self.tell_executor(),
                _ => {}
            }
        }
    }

    /// Asks about what still waits, for a run that is taken up again.
    pub(super) fn ask_executor_anew(&mut self) {
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
        let (tools, tenant) = (self.deps.tools.clone(), self.place.key().0.clone());
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
        RunContext { tenant: self.place.key().0.clone(), state }
    }
}
