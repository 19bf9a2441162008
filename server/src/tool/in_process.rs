//! Runs tool calls with executors inside this process, and passes all other calls on to the tool hosts.
//!
//! The process acts as one more host: a call that an executor takes is granted at once, and its result is reported
//! like a host's. So all rules on calls (approvals, limits, retries) hold here too. A call that a restart interrupts
//! is lost; its tool's effect class decides what follows.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};

use agentloop_core::agent::RunSpec;
use agentloop_core::cluster::shard::{ShardNo, shard_of};
use agentloop_core::host::frame::CallRef;
use agentloop_core::id::{Attempt, CallId, CallKey, HostId, RunId, RuntimeId, SessionId, TenantId};
use agentloop_core::message::ToolCall;
use agentloop_core::outcome::Ran;
use agentloop_core::question::InputAnswer;
use agentloop_core::run::effect::{CancelCause, Offer};
use agentloop_core::run::input::{CallFacts, CallOutcome, NotOffered};
use agentloop_core::time::{Millis, Timestamp};
use agentloop_core::tool::Digest;
use async_trait::async_trait;
use futures_util::FutureExt as _;
use futures_util::future::{AbortHandle, Abortable};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot;

use crate::cluster::busy_shards::{BusyShard, BusyShards};
use crate::lifecycle::Tasks;
use crate::tool::catalogue::schema::or_empty_object;
use crate::tool::{BadOutput, CallOrigin, CallSink, CallUpdate, Offered, ReportedResult, Seek, Tools};

/// The host id in the journal for calls that run in this process.
pub(in crate::tool) const IN_PROCESS: &str = "in-process";

/// The host id that stands for this process.
pub(in crate::tool) fn in_process() -> HostId {
    HostId::parse(IN_PROCESS).expect("letters and a dash are valid in an id")
}

/// Runs tool calls in this process instead of on a tool host. It gets only calls that are allowed to run.
#[async_trait]
pub trait ToolExecutor: Send + Sync + 'static {
    /// True if it runs the calls of this tool; hosts run the others. An executor that was registered for one tool is
    /// not asked.
    fn takes(&self, tool: &str) -> bool {
        let _any = tool;
        true
    }

    /// Runs a call. The future is dropped when the run ends or the call's deadline passes.
    async fn run(&self, call: ToolExecution) -> CallOutcome;
}

/// A tool call to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolExecution {
    /// The tenant that the run belongs to.
    pub tenant: TenantId,
    /// The session that the run belongs to.
    pub session: SessionId,
    /// The call's id, the same for every attempt.
    pub call: CallId,
    /// The attempt to execute. Its number tells a repeat.
    pub attempt: Attempt,
    /// The tool, by the name that it is declared with.
    pub tool: String,
    /// A JSON object as text. It follows the tool's schema.
    pub arguments: String,
    /// A key for downstream services to detect a repeat. It is the same for every attempt.
    pub idempotency_key: String,
    /// The time at which the call is given up and this future dropped.
    pub deadline: Timestamp,
}

/// The executors of this process. Precedence: the agent's, then the one for all agents, then the tool's.
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

/// Tools of which some run in this process.
pub(crate) struct InProcess {
    hosted: Arc<dyn Tools>,
    executors: ToolExecutors,
    tasks: Tasks,
    sink: OnceLock<Arc<dyn CallSink>>,
    /// The shards of calls in [`OwnCalls`]. A replica that is above its share gives away other ones first.
    busy_shards: BusyShards,
    calls: Arc<Mutex<OwnCalls>>,
}

#[derive(Default)]
struct OwnCalls {
    /// Calls that were granted this process, until their attempt runs.
    granted: HashMap<CallKey, BusyShard>,
    /// Calls that wait for their shard to come back, which was to be given away.
    waiting: HashMap<CallKey, AbortHandle>,
    /// Attempts that run now, by call.
    running: HashMap<CallKey, RunningAttempt>,
}

impl OwnCalls {
    fn stop_waiting(&mut self, key: &CallKey) {
        self.waiting.remove(key).into_iter().for_each(|waiting| waiting.abort());
    }
}

struct RunningAttempt {
    /// The attempt that runs here.
    attempt: Attempt,
    abort: AbortHandle,
    _shard: Option<BusyShard>,
}

impl InProcess {
    /// Adds the executors to the tools of hosts.
    pub(crate) fn around(
        hosted: Arc<dyn Tools>,
        executors: ToolExecutors,
        busy_shards: BusyShards,
        tasks: Tasks,
    ) -> Arc<Self> {
        let (sink, calls) = (OnceLock::new(), Arc::default());
        Arc::new(Self { hosted, executors, tasks, sink, busy_shards, calls })
    }

    /// Sets the receiver of results. Separate from the constructor because the engine is made after its tools.
    pub(crate) fn report_to(&self, sink: Arc<dyn CallSink>) {
        let set = self.sink.set(sink);
        assert!(set.is_ok(), "there is one engine");
    }

    fn sink(&self) -> Arc<dyn CallSink> {
        self.sink.get().expect("the engine calls `report_to` before it places calls").clone()
    }

    /// Runs one attempt on a task of its own, and reports its result. Arguments that do not follow the tool's schema any more are
    /// rejected: the call may be of an earlier process, whose tool had another one.
    fn run(&self, executor: Arc<dyn ToolExecutor>, execution: ToolExecution, offer: Offer) {
        let (tenant, call, attempt) = (execution.tenant.clone(), execution.call.clone(), execution.attempt);
        let (sink, calls) = (self.sink(), self.calls.clone());
        let key = CallKey::new(tenant.clone(), call.clone());
        let (abort, registration) = AbortHandle::new_pair();
        let mut all = lock(&self.calls);
        let _shard = all.granted.remove(&key);
        all.running.insert(key.clone(), RunningAttempt { attempt, abort, _shard });
        drop(all);
        let fits = self.hosted.validate(&tenant, &execution.tool, &execution.arguments);
        let work = async move {
            let outcome = match fits {
                // A panic in the embedder's code fails this call, not the run.
                Ok(()) => AssertUnwindSafe(executor.run(execution)).catch_unwind().await,
                Err(message) => Ok(CallOutcome::Rejected { message }),
            };
            let outcome = outcome.unwrap_or_else(|_| panicked());
            let Offer { lease, host, .. } = offer;
            let result = ReportedResult { attempt, lease: lease.to_string(), host, outcome };
            // If the store does not respond, the run is recovered later, and the call with it.
            let _verdict = sink.finished(&tenant, &call, result).await;
            let running = &mut lock(&calls).running;
            if running.get(&key).is_some_and(|last| last.attempt == attempt) {
                running.remove(&key);
            }
        };
        let work = Abortable::new(work, registration);
        drop(self.tasks.spawn_contained("tool", work));
    }

    /// Grants this process to a call, and keeps the shard of its session here.
    fn grant(&self, origin: &CallOrigin, call: &CallId) -> Seek {
        let key = CallKey::new(origin.tenant.clone(), call.clone());
        let shard = shard_of(&origin.tenant, &origin.session);
        let mut calls = lock(&self.calls);
        if let Entry::Vacant(vacant) = calls.granted.entry(key.clone()) {
            match self.busy_shards.begin(shard) {
                Some(work) => drop(vacant.insert(work)),
                // The run is about to stop, and its next owner seeks again. A call that was granted here would be lost.
                None => {
                    self.grant_once_gained(&mut calls, key, shard);
                    return Seek::Queued;
                }
            }
        }
        calls.stop_waiting(&key);
        Seek::Granted { host: in_process(), instance: None, terms: None }
    }

    /// Grants this process to a call if its shard stays here after all. Then its run goes on, and does not seek again.
    fn grant_once_gained(&self, calls: &mut OwnCalls, key: CallKey, shard: ShardNo) {
        if calls.waiting.contains_key(&key) {
            return;
        }
        let (abort, registration) = AbortHandle::new_pair();
        calls.waiting.insert(key.clone(), abort);
        let (busy_shards, calls, sink) = (self.busy_shards.clone(), self.calls.clone(), self.sink());
        let granting = async move {
            let work = busy_shards.begin_once_gained(shard).await;
            {
                let mut calls = lock(&calls);
                if calls.waiting.remove(&key).is_none() {
                    return;
                }
                calls.granted.insert(key.clone(), work);
            }
            let granted = CallUpdate::Granted { host: in_process(), instance: None, terms: None };
            sink.report_update(&key.tenant, &key.call, granted).await;
        };
        drop(self.tasks.spawn_contained("tool", Abortable::new(granting, registration)));
    }

    /// Reports an attempt as lost that ran in an earlier process.
    fn lose(&self, tenant: &TenantId, call: &CallId, attempt: Attempt) {
        let (sink, tenant, call) = (self.sink(), tenant.clone(), call.clone());
        let message = "the tool ran in the server's process".to_owned();
        let lost = CallUpdate::Lost { attempt, message, ran: Ran::Maybe, busy: false };
        drop(
            self.tasks.spawn_contained("tool", async move { sink.report_update(&tenant, &call, lost).await }),
        );
    }
}

impl Tools for InProcess {
    fn offered(&self, tenant: &TenantId, spec: &RunSpec) -> Offered {
        self.hosted.offered(tenant, spec)
    }

    fn not_offered(&self, tenant: &TenantId, spec: &RunSpec) -> NotOffered {
        self.hosted.not_offered(tenant, spec)
    }

    fn facts(&self, tenant: &TenantId, spec: &RunSpec, calls: &[&ToolCall]) -> Vec<CallFacts> {
        self.hosted.facts(tenant, spec, calls)
    }

    fn validate(&self, tenant: &TenantId, tool: &str, arguments: &str) -> Result<(), String> {
        self.hosted.validate(tenant, tool, arguments)
    }

    fn check_output(
        &self,
        tenant: &TenantId,
        tool: &str,
        declared: Option<&Digest>,
        structured: &str,
    ) -> Result<(), BadOutput> {
        self.hosted.check_output(tenant, tool, declared, structured)
    }

    fn seek(&self, origin: &CallOrigin, call: &CallId, tool: &str, on: Option<&HostId>) -> Seek {
        match self.executors.of(&origin.agent, tool) {
            Some(_) => self.grant(origin, call),
            None => self.hosted.seek(origin, call, tool, on),
        }
    }

    fn seek_response(&self, tenant: &TenantId, call: &CallId) -> Option<oneshot::Receiver<CallUpdate>> {
        self.hosted.seek_response(tenant, call)
    }

    fn is_offer_open(&self, tenant: &TenantId, call: &CallId) -> bool {
        let key = CallKey::new(tenant.clone(), call.clone());
        let running = lock(&self.calls).running.contains_key(&key);
        !running && self.hosted.is_offer_open(tenant, call)
    }

    fn close_runtime(&self, tenant: &TenantId, host: &HostId, runtime: &RuntimeId) {
        self.hosted.close_runtime(tenant, host, runtime);
    }

    fn stop_seeking(&self, tenant: &TenantId, call: &CallId) {
        let key = CallKey::new(tenant.clone(), call.clone());
        let mut calls = lock(&self.calls);
        calls.stop_waiting(&key);
        calls.granted.remove(&key);
        drop(calls);
        self.hosted.stop_seeking(tenant, call);
    }

    fn offer(&self, origin: &CallOrigin, call: &CallId, offer: Offer) {
        if offer.host != in_process() {
            return self.hosted.offer(origin, call, offer);
        }
        let Some(executor) = self.executors.of(&origin.agent, &offer.tool) else {
            return self.lose(&origin.tenant, call, offer.attempt);
        };
        let execution = ToolExecution {
            tenant: origin.tenant.clone(),
            session: origin.session.clone(),
            call: call.clone(),
            attempt: offer.attempt,
            tool: offer.tool.clone(),
            arguments: or_empty_object(&offer.arguments).to_owned(),
            idempotency_key: offer.idempotency_key.clone(),
            deadline: offer.deadline,
        };
        self.run(executor.clone(), execution, offer);
    }

    fn reclaim(&self, origin: &CallOrigin, call: &CallId, offer: Offer) {
        if offer.host == in_process() {
            self.lose(&origin.tenant, call, offer.attempt);
        } else {
            self.hosted.reclaim(origin, call, offer);
        }
    }

    fn cancel(&self, tenant: &TenantId, call: &CallRef, cause: CancelCause, reason: &str) {
        let key = CallKey::new(tenant.clone(), call.call.clone());
        let running = &mut lock(&self.calls).running;
        match running.get(&key).map(|last| last.attempt == call.attempt) {
            Some(true) => running.remove(&key).into_iter().for_each(|last| last.abort.abort()),
            Some(false) => {}
            None => self.hosted.cancel(tenant, call, cause, reason),
        }
    }

    fn answer_input(&self, tenant: &TenantId, call: &CallRef, input: &str, answer: InputAnswer) {
        self.hosted.answer_input(tenant, call, input, answer);
    }

    fn ack_resume_state(&self, tenant: &TenantId, call: &CallRef, resume_no: u64) {
        self.hosted.ack_resume_state(tenant, call, resume_no);
    }

    fn release_call(&self, tenant: &TenantId, call: &CallRef) {
        self.hosted.release_call(tenant, call);
    }

    fn release(&self, tenant: &TenantId, run: &RunId) {
        let is_released = |key: &CallKey| key.tenant == *tenant && key.call.run == *run;
        let mut calls = lock(&self.calls);
        calls.granted.retain(|key, _| !is_released(key));
        calls.waiting.extract_if(|key, _| is_released(key)).for_each(|(_, waiting)| waiting.abort());
        calls.running.retain(|key, running| {
            if is_released(key) {
                running.abort.abort();
            }
            !is_released(key)
        });
        drop(calls);
        self.hosted.release(tenant, run);
    }
}

/// The outcome of a call whose executor panicked.
fn panicked() -> CallOutcome {
    CallOutcome::Failed {
        message: "the tool failed with an internal error".to_owned(),
        retryable: false,
        delay: Millis(0),
        ran: Ran::Maybe,
    }
}

fn lock(calls: &Mutex<OwnCalls>) -> MutexGuard<'_, OwnCalls> {
    // No operation leaves the maps half changed, so they are still good after a panic.
    calls.lock()
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;
    use crate::tool::tests::harness::{FakeEngine, NOW, call_id, declaration, offer, origin};
    use crate::tool::{OwnTools, RemoteTools, RemoteToolsOptions};

    /// Tells the arguments that it was given.
    struct Recorder(mpsc::UnboundedSender<String>);

    #[async_trait]
    impl ToolExecutor for Recorder {
        async fn run(&self, call: ToolExecution) -> CallOutcome {
            self.0.send(call.arguments).unwrap();
            panicked()
        }
    }

    #[tokio::test]
    async fn an_executor_gets_an_object_where_the_model_wrote_nothing() {
        let own = OwnTools::check(vec![declaration("now")]).unwrap();
        let hosted = RemoteTools::with_own(RemoteToolsOptions::default(), NOW, own, Vec::new());
        let (sender, mut given) = mpsc::unbounded_channel();
        let executors = ToolExecutors { all: Some(Arc::new(Recorder(sender))), ..ToolExecutors::default() };
        let tools = InProcess::around(hosted, executors, BusyShards::default(), Tasks::new());
        tools.report_to(Arc::new(FakeEngine::default()));
        let blank = Offer { arguments: " ".to_owned(), ..offer("r/1.0", 1, &in_process(), "now") };
        tools.offer(&origin(), &call_id("r/1.0"), blank);
        assert_eq!(given.recv().await.as_deref(), Some("{}"));
    }

    #[tokio::test]
    async fn the_shard_of_a_call_is_busy_from_its_grant_to_its_end() {
        let (shard, call, shards) =
            (shard_of(&origin().tenant, &origin().session), call_id("r/1.0"), BusyShards::default());
        let hosted = RemoteTools::new(RemoteToolsOptions::default(), NOW, Vec::new());
        let (sender, _given) = mpsc::unbounded_channel();
        let executors = ToolExecutors { all: Some(Arc::new(Recorder(sender))), ..ToolExecutors::default() };
        let tools = InProcess::around(hosted, executors, shards.clone(), Tasks::new());
        let engine = Arc::new(FakeEngine::default());
        tools.report_to(engine.clone());
        let is_busy = || {
            let mut found = false;
            drop(shards.leave(|busy| {
                found = busy.contains(&shard);
                Vec::new()
            }));
            found
        };
        let seek = || tools.seek(&origin(), &call, "now", None);
        assert!(matches!(seek(), Seek::Granted { .. }) && is_busy());
        assert!(matches!(seek(), Seek::Granted { .. }), "it has the room already");
        tools.stop_seeking(&origin().tenant, &call);
        assert!(!is_busy());
        assert!(matches!(seek(), Seek::Granted { .. }) && is_busy());
        tools.release(&origin().tenant, &call.run);
        assert!(!is_busy());
        drop(shards.leave(|_| vec![shard]));
        assert_eq!(seek(), Seek::Queued, "its next owner runs it");
        shards.gain(shard);
        assert!(matches!(seek(), Seek::Granted { .. }) && is_busy());
        tools.release(&origin().tenant, &call.run);

        drop(shards.leave(|_| vec![shard]));
        assert_eq!([seek(), seek()], [Seek::Queued, Seek::Queued]);
        shards.gain(shard);
        let granted = engine.update("r/1.0", |update| matches!(update, CallUpdate::Granted { .. })).await;
        assert_eq!(granted, CallUpdate::Granted { host: in_process(), instance: None, terms: None });
        assert!(is_busy(), "the shard was kept, and the run seeks no more");
        tools.release(&origin().tenant, &call.run);

        for give_up in [
            |tools: &InProcess, call: &CallId| tools.stop_seeking(&origin().tenant, call),
            |tools: &InProcess, call: &CallId| tools.release(&origin().tenant, &call.run),
        ] {
            drop(shards.leave(|_| vec![shard]));
            assert_eq!(seek(), Seek::Queued);
            give_up(&tools, &call);
            shards.gain(shard);
            // A later call of the same shard hears of the gain.
            drop(shards.begin_once_gained(shard).await);
            assert!(!is_busy() && lock(&tools.calls).waiting.is_empty());
        }
        assert_eq!(engine.all().len(), 1);
    }
}
