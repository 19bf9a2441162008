//! Tools that run in this process, put around those that run elsewhere.
//!
//! The process stands in for a host: a call that an executor takes is granted at once, and its result comes up as a
//! host's does. So everything that is decided about calls before and after holds for these as well. A call that a
//! restart cut is lost, and its tool's effect class says what follows.

use std::collections::{BTreeMap, HashMap};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use agentloop_core::agent::RunSpec;
use agentloop_core::ask::InputAnswer;
use agentloop_core::id::{CallId, HostId, RunId, RuntimeId, SessionId, TenantId};
use agentloop_core::message::ToolCall;
use agentloop_core::outcome::Ran;
use agentloop_core::run::effect::Offer;
use agentloop_core::run::input::{CallFacts, CallOutcome};
use agentloop_core::time::{Millis, Timestamp};
use async_trait::async_trait;
use futures_util::FutureExt as _;
use futures_util::future::AbortHandle;

use crate::lifecycle::Tasks;
use crate::tool::{CallAnswer, CallNews, CallOwner, CallSink, Offered, Seek, Tools};

/// The host that the journal names for calls that run here.
const IN_PROCESS: &str = "in-process";

/// The host that stands for this process.
pub(in crate::tool) fn in_process() -> HostId {
    HostId::parse(IN_PROCESS).expect("it is made of letters and a dash")
}

/// Runs tool calls in this process. Whether a call may run is decided as ever; hosts are not asked.
#[async_trait]
pub trait ToolExecutor: Send + Sync + 'static {
    /// Whether it runs the calls of this tool; hosts run the others. Only asked of an executor that was not given for
    /// one tool.
    fn takes(&self, tool: &str) -> bool {
        let _any = tool;
        true
    }

    /// Runs a call. Dropped where the call is given up: when the run ends first, or the call's time is up.
    async fn run(&self, call: ToolExecution) -> CallOutcome;
}

/// A tool call to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolExecution {
    /// Whose it is.
    pub tenant: TenantId,
    /// The session.
    pub session: SessionId,
    /// The call.
    pub call: CallId,
    /// Which try, from 1.
    pub attempt: u32,
    /// The tool.
    pub tool: String,
    /// JSON text.
    pub arguments: String,
    /// The same for every try.
    pub idempotency_key: String,
    /// Given up after this.
    pub deadline: Timestamp,
}

/// Who runs which calls here. An agent's executor comes before that of all agents, and that before the tool's own.
#[derive(Clone, Default)]
pub(crate) struct ToolExecutors {
    pub(crate) agents: BTreeMap<String, Arc<dyn ToolExecutor>>,
    pub(crate) all: Option<Arc<dyn ToolExecutor>>,
    pub(crate) tools: BTreeMap<String, Arc<dyn ToolExecutor>>,
}

impl ToolExecutors {
    fn of(&self, agent: &str, tool: &str) -> Option<&Arc<dyn ToolExecutor>> {
        let taking = |executor: &&Arc<dyn ToolExecutor>| executor.takes(tool);
        let agents = self.agents.get(agent).filter(taking);
        agents.or_else(|| self.all.as_ref().filter(taking)).or_else(|| self.tools.get(tool))
    }
}

/// Tools of which some run here.
pub(crate) struct InProcess {
    elsewhere: Arc<dyn Tools>,
    executors: ToolExecutors,
    tasks: Tasks,
    sink: OnceLock<Arc<dyn CallSink>>,
    running: Arc<Mutex<Running>>,
}

/// Tries under way, by call.
type Running = HashMap<(TenantId, CallId), (u32, AbortHandle)>;

impl InProcess {
    /// Around these tools.
    pub(crate) fn around(elsewhere: Arc<dyn Tools>, executors: ToolExecutors, tasks: Tasks) -> Arc<Self> {
        let (sink, running) = (OnceLock::new(), Arc::default());
        Arc::new(Self { elsewhere, executors, tasks, sink, running })
    }

    /// Where results go: the engine, which is made after the tools that it needs.
    pub(crate) fn report_to(&self, sink: Arc<dyn CallSink>) {
        let set = self.sink.set(sink);
        assert!(set.is_ok(), "there is one engine");
    }

    fn sink(&self) -> Arc<dyn CallSink> {
        self.sink.get().expect("the engine asks for calls after it was made").clone()
    }

    /// Runs a try, and reports what came of it.
    fn run(&self, executor: Arc<dyn ToolExecutor>, execution: ToolExecution, offer: Offer) {
        let (tenant, call, attempt) = (execution.tenant.clone(), execution.call.clone(), execution.attempt);
        let (sink, running) = (self.sink(), self.running.clone());
        let key = (tenant.clone(), call.clone());
        let (abort, registration) = AbortHandle::new_pair();
        lock(&self.running).insert(key.clone(), (attempt, abort));
        let work = async move {
            // A fault of the embedder's is one call's, and not the run's.
            let outcome = AssertUnwindSafe(executor.run(execution)).catch_unwind().await;
            let outcome = outcome.unwrap_or_else(|_| fault());
            let Offer { lease, host, .. } = offer;
            let answer = CallAnswer { attempt, lease: lease.to_string(), host, outcome };
            // Where the store cannot say now, the run is taken up anew, and so is the call.
            let _verdict = sink.finished(&tenant, &call, answer).await;
            let mut running = lock(&running);
            if running.get(&key).is_some_and(|(last, _)| *last == attempt) {
                running.remove(&key);
            }
        };
        let work = futures_util::future::Abortable::new(work, registration);
        drop(self.tasks.spawn_contained("tool", work));
    }

    /// A try that was under way in the process before this one.
    fn lose(&self, tenant: &TenantId, call: &CallId, attempt: u32) {
        let (sink, tenant, call) = (self.sink(), tenant.clone(), call.clone());
        let message = "the server stopped during the call".to_owned();
        let lost = CallNews::Lost { attempt, message, ran: Ran::Maybe };
        drop(self.tasks.spawn_contained("tool", async move { sink.news(&tenant, &call, lost).await }));
    }
}

impl Tools for InProcess {
    fn offered(&self, tenant: &TenantId, spec: &RunSpec) -> Offered {
        self.elsewhere.offered(tenant, spec)
    }

    fn facts(&self, tenant: &TenantId, spec: &RunSpec, calls: &[&ToolCall]) -> Vec<CallFacts> {
        self.elsewhere.facts(tenant, spec, calls)
    }

    fn validate(&self, tenant: &TenantId, tool: &str, arguments: &str) -> Result<(), String> {
        self.elsewhere.validate(tenant, tool, arguments)
    }

    fn seek(&self, owner: &CallOwner, call: &CallId, tool: &str) -> Seek {
        match self.executors.of(&owner.agent, tool) {
            Some(_) => Seek::Granted(in_process()),
            None => self.elsewhere.seek(owner, call, tool),
        }
    }

    fn seek_on(&self, owner: &CallOwner, call: &CallId, tool: &str, host: &HostId) -> Seek {
        match self.executors.of(&owner.agent, tool) {
            Some(_) => Seek::Granted(in_process()),
            None => self.elsewhere.seek_on(owner, call, tool, host),
        }
    }

    fn close_runtime(&self, tenant: &TenantId, host: &HostId, runtime: &RuntimeId) {
        self.elsewhere.close_runtime(tenant, host, runtime);
    }

    fn stop_seeking(&self, tenant: &TenantId, call: &CallId) {
        self.elsewhere.stop_seeking(tenant, call);
    }

    fn offer(&self, owner: &CallOwner, call: &CallId, offer: Offer) {
        if offer.host != in_process() {
            return self.elsewhere.offer(owner, call, offer);
        }
        let Some(executor) = self.executors.of(&owner.agent, &offer.tool) else {
            return self.lose(&owner.tenant, call, offer.attempt);
        };
        let execution = ToolExecution {
            tenant: owner.tenant.clone(),
            session: owner.session.clone(),
            call: call.clone(),
            attempt: offer.attempt,
            tool: offer.tool.clone(),
            arguments: offer.arguments.clone(),
            idempotency_key: offer.idempotency_key.clone(),
            deadline: offer.deadline,
        };
        self.run(executor.clone(), execution, offer);
    }

    fn reclaim(&self, owner: &CallOwner, call: &CallId, offer: Offer) {
        if offer.host == in_process() {
            self.lose(&owner.tenant, call, offer.attempt);
        } else {
            self.elsewhere.reclaim(owner, call, offer);
        }
    }

    fn cancel(&self, tenant: &TenantId, call: &CallId, attempt: u32, reason: &str) {
        let key = (tenant.clone(), call.clone());
        let mut running = lock(&self.running);
        match running.get(&key).map(|(last, _)| *last == attempt) {
            Some(true) => running.remove(&key).into_iter().for_each(|(_, work)| work.abort()),
            Some(false) => {}
            None => self.elsewhere.cancel(tenant, call, attempt, reason),
        }
    }

    fn answer_input(&self, tenant: &TenantId, call: &CallId, attempt: u32, input: &str, answer: InputAnswer) {
        self.elsewhere.answer_input(tenant, call, attempt, input, answer);
    }

    fn release(&self, tenant: &TenantId, run: &RunId) {
        lock(&self.running).retain(|(of, call), (_, work)| {
            let released = of == tenant && call.run == *run;
            if released {
                work.abort();
            }
            !released
        });
        self.elsewhere.release(tenant, run);
    }
}

fn fault() -> CallOutcome {
    CallOutcome::Failed {
        message: "a fault in the tool".to_owned(),
        retryable: false,
        delay: Millis(0),
        ran: Ran::Maybe,
    }
}

fn lock(running: &Mutex<Running>) -> MutexGuard<'_, Running> {
    // What is in it is whole between any two steps.
    running.lock().unwrap_or_else(PoisonError::into_inner)
}
