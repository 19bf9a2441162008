//! Hosts that are sought for calls, here and at another replica.

#![expect(clippy::disallowed_methods, reason = "tests start tasks of their own")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use agentloop_core::agent::RunSpec;
use agentloop_core::host::frame::CallRef;
use agentloop_core::id::{Attempt, CallId, CallSlot, HostId, RunId, TenantId};
use agentloop_core::message::{FinishReason, Role, ToolCall};
use agentloop_core::model::delta::Delta;
use agentloop_core::outcome::Ran;
use agentloop_core::run::effect::{CancelCause, Offer};
use agentloop_core::run::human::{Decision, Person};
use agentloop_core::run::input::{CallFacts, CallOutcome, ReadyCall};
use agentloop_core::run::status::RunStatus;
use agentloop_core::tool::{Digest, EffectClass};
use agentloop_server::engine::{Engine, EngineParts, Resolution};
use agentloop_server::model::{Model, ModelError, ModelRequest};
use agentloop_server::store::sqlite::SqliteStore;
use agentloop_server::tool::{CallOrigin, CallSink, CallUpdate, Offered, ReportedResult, Seek, Tools};
use futures_util::stream::{self, BoxStream, StreamExt as _};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use crate::support::answer::answer;
use crate::support::one_model::one_model;
use crate::support::patience::in_time;
use crate::support::ready_call::ready_call;
use crate::support::start_request::start_request;
use crate::support::until::until;

/// Calls these tools at once, then ends.
struct Caller(&'static [&'static str]);

impl Model for Caller {
    fn stream(&self, request: ModelRequest) -> BoxStream<'static, Result<Delta, ModelError>> {
        let last = request.messages.last().expect("there is a prompt");
        if last.role == Role::Tool {
            return stream::iter(answer("It is done.").map(Ok)).boxed();
        }
        let calls = self.0.iter().zip(0..).flat_map(|(tool, index)| {
            let start = Delta::ToolCallStart { index, provider_id: None, name: (*tool).to_owned() };
            [start, Delta::ToolCallArguments { index, fragment: "{}".to_owned() }]
        });
        let end = Delta::Finish { reason: FinishReason::ToolCalls };
        stream::iter(calls.chain([end]).map(Ok).collect::<Vec<_>>()).boxed()
    }
}

/// Says what comes of the nth seek of a call, from 1.
type Script = Box<dyn Fn(u32, u32) -> Reply + Send + Sync>;

/// The reply to a seek.
enum Reply {
    /// As from hosts of this process.
    Here(Seek),
    /// As from another replica, at once.
    Response(CallUpdate),
    /// The test responds later, with the sender that [`Scripted::responses`] has.
    Later,
}

/// Tools that follow a script. A call whose seek has no result is in a queue until it stops seeking.
struct Scripted {
    script: Script,
    facts: Vec<ReadyCall>,
    engine: OnceLock<Arc<dyn CallSink>>,
    state: Mutex<State>,
    responses: mpsc::UnboundedSender<oneshot::Sender<CallUpdate>>,
}

#[derive(Default)]
struct State {
    /// Number of the seeks of each call that were not of a call in the queue.
    seeks: BTreeMap<CallId, u32>,
    queued: BTreeSet<CallId>,
    /// Calls with room at the host.
    room: BTreeSet<CallId>,
    responses: BTreeMap<CallId, oneshot::Receiver<CallUpdate>>,
}

impl Scripted {
    fn new(
        facts: Vec<ReadyCall>,
        script: Script,
    ) -> (Arc<Self>, mpsc::UnboundedReceiver<oneshot::Sender<CallUpdate>>) {
        let (responses, later) = mpsc::unbounded_channel();
        let (engine, state) = (OnceLock::new(), Mutex::default());
        (Arc::new(Self { script, facts, engine, state, responses }), later)
    }

    fn is_queued(&self, call: &CallId) -> bool {
        self.state.lock().queued.contains(call)
    }

    /// The host has room for a call in the queue.
    async fn grant(&self, call: &CallId) {
        self.state.lock().room.insert(call.clone());
        self.engine().report_update(&TenantId::local(), call, granted()).await;
    }

    fn engine(&self) -> Arc<dyn CallSink> {
        self.engine.get().expect("it runs").clone()
    }
}

impl Tools for Scripted {
    fn offered(&self, _tenant: &TenantId, _spec: &RunSpec) -> Offered {
        Offered { tools: Arc::from([]), digest: Digest::of(&[]) }
    }

    fn facts(&self, _tenant: &TenantId, _spec: &RunSpec, calls: &[&ToolCall]) -> Vec<CallFacts> {
        let facts = calls.iter().zip(&self.facts);
        facts.map(|(_, facts)| CallFacts::Ready(facts.clone())).collect()
    }

    fn validate(&self, _tenant: &TenantId, _tool: &str, _arguments: &str) -> Result<(), String> {
        Ok(())
    }

    fn seek(&self, _origin: &CallOrigin, call: &CallId, _tool: &str, _on: Option<&HostId>) -> Seek {
        let mut state = self.state.lock();
        if state.queued.contains(call) {
            return Seek::Queued;
        }
        let nth = state.seeks.entry(call.clone()).or_default();
        *nth += 1;
        let update = match (self.script)(call.slot.position, *nth) {
            Reply::Here(seek) => {
                match &seek {
                    Seek::Granted { .. } => drop(state.room.insert(call.clone())),
                    Seek::Queued => drop(state.queued.insert(call.clone())),
                    Seek::Denied(_) => {}
                }
                return seek;
            }
            Reply::Response(update) => Some(update),
            Reply::Later => None,
        };
        let (sender, response) = oneshot::channel();
        state.responses.insert(call.clone(), response);
        match update {
            Some(update) => {
                if matches!(update, CallUpdate::Granted { .. }) {
                    state.room.insert(call.clone());
                }
                sender.send(update).expect("it is kept");
            }
            None => {
                state.queued.insert(call.clone());
                self.responses.send(sender).expect("the test takes it");
            }
        }
        Seek::Queued
    }

    fn seek_response(&self, _tenant: &TenantId, call: &CallId) -> Option<oneshot::Receiver<CallUpdate>> {
        self.state.lock().responses.remove(call)
    }

    fn stop_seeking(&self, _tenant: &TenantId, call: &CallId) {
        let mut state = self.state.lock();
        state.queued.remove(call);
        state.room.remove(call);
    }

    fn offer(&self, origin: &CallOrigin, call: &CallId, offer: Offer) {
        let (engine, tenant, call) = (self.engine(), origin.tenant.clone(), call.clone());
        let has_room = self.state.lock().room.remove(&call);
        tokio::spawn(async move {
            if !has_room {
                let message = "the room was given back".to_owned();
                let lost = CallUpdate::Lost { attempt: offer.attempt, message, ran: Ran::No, busy: false };
                engine.report_update(&tenant, &call, lost).await;
                return;
            }
            let (output, images, attachments) = ("done".to_owned(), Vec::new(), Default::default());
            let result = ReportedResult {
                attempt: offer.attempt,
                lease: offer.lease.to_string(),
                host: offer.host,
                outcome: CallOutcome::Succeeded { output, images, attachments },
            };
            engine.finished(&tenant, &call, result).await.expect("the store responds");
        });
    }

    fn reclaim(&self, origin: &CallOrigin, call: &CallId, offer: Offer) {
        self.offer(origin, call, offer);
    }

    fn cancel(&self, _tenant: &TenantId, _call: &CallRef, _cause: CancelCause, _reason: &str) {}

    fn release(&self, _tenant: &TenantId, _run: &RunId) {}
}

fn host() -> HostId {
    HostId::parse("h").expect("an id")
}

fn granted() -> CallUpdate {
    CallUpdate::Granted { host: host(), instance: None, terms: None }
}

fn granted_here() -> Reply {
    Reply::Here(Seek::Granted { host: host(), instance: None, terms: None })
}

fn ready() -> ReadyCall {
    ready_call(EffectClass::ReadOnly)
}

/// The call at this position of the first round.
fn call_at(run: &RunId, position: u32) -> CallId {
    CallId { run: run.clone(), slot: CallSlot { model_call: 1, position } }
}

/// A run that calls these tools.
struct Running {
    engine: Engine,
    store: Arc<SqliteStore>,
    run: RunId,
}

impl Running {
    async fn start(
        calls: &'static [&'static str],
        tools: Arc<Scripted>,
        change: impl FnOnce(&mut RunSpec),
    ) -> Self {
        let store = Arc::new(SqliteStore::in_memory().await.expect("a store"));
        let engine = EngineParts::default().start(store.clone(), one_model(Caller(calls)), tools.clone());
        assert!(tools.engine.set(engine.sink()).is_ok());
        let mut spec = RunSpec { agent: "a".into(), model: "any/caller".into(), ..RunSpec::default() };
        change(&mut spec);
        let started = engine.start(start_request(spec, "Call.")).await.expect("a run");
        Self { engine, store, run: started.run }
    }

    /// Waits for the end of the run, which completes with the results of so many calls, of which so many failed.
    async fn ends(&self, calls: u64, failed: u64) {
        let ended = in_time(self.engine.wait(&TenantId::local(), &self.run)).await.expect("an end").state;
        assert_eq!(ended.status(), Some(RunStatus::Completed), "{:?}", ended.last_error());
        let counts = ended.call_counts();
        assert_eq!((counts.tool_calls, counts.failed_tool_calls), (calls, failed));
    }
}

/// As with hosts here: the model's response and the offer are one commit.
#[tokio::test]
async fn a_host_at_another_replica_costs_no_commit_more() {
    for (script, appends) in
        [(Box::new(|_, _| granted_here()) as Script, 4), (Box::new(|_, _| Reply::Response(granted())), 4)]
    {
        let (tools, _later) = Scripted::new(vec![ready()], script);
        let running = Running::start(&["echo"], tools, |_| {}).await;
        running.ends(1, 0).await;
        assert_eq!(running.store.stats().appends, appends);
    }
}

#[tokio::test]
async fn a_late_response_to_a_seek_comes_as_an_update() {
    let (tools, mut later) = Scripted::new(vec![ready()], Box::new(|_, _| Reply::Later));
    let running = Running::start(&["echo"], tools.clone(), |_| {}).await;
    let mut response = in_time(later.recv()).await.expect("a seek");
    in_time(response.closed()).await;
    response.send(granted()).expect_err("its run does not wait any more");
    tools.grant(&call_at(&running.run, 0)).await;
    running.ends(1, 0).await;
    assert_eq!(running.store.stats().appends, 5, "the offer is a commit of its own");
}

/// The room for calls at a time is one.
#[tokio::test]
async fn a_denial_by_another_replica_lets_the_next_call_seek() {
    let script = |position, _| match position {
        0 => Reply::Response(CallUpdate::Denied { message: "nobody serves it".to_owned() }),
        _ => Reply::Response(granted()),
    };
    let (tools, _later) = Scripted::new(vec![ready(); 3], Box::new(script));
    let running = Running::start(&["a", "b", "c"], tools, |_| {}).await;
    running.ends(3, 1).await;
}

/// The second seeks the host of the first, once that is known.
#[tokio::test]
async fn a_grant_by_another_replica_lets_the_next_call_of_the_runtime_seek() {
    let facts = ReadyCall { requires_runtime: true, ..ready() };
    let (tools, _later) = Scripted::new(vec![facts; 2], Box::new(|_, _| Reply::Response(granted())));
    let running = Running::start(&["a", "b"], tools, |spec| spec.tool_policy.max_parallel = 2).await;
    running.ends(2, 0).await;
}

/// The first call, once it is approved, takes the place of the second. It is denied, so the second seeks again.
#[tokio::test]
async fn a_call_that_stops_seeking_and_seeks_again_at_once_stays_in_the_queue() {
    for denied_by_response in [false, true] {
        let denial = "the queue is full".to_owned();
        let script = move |position, _| match position {
            0 if denied_by_response => Reply::Response(CallUpdate::Denied { message: denial.clone() }),
            0 => Reply::Here(Seek::Denied(denial.clone())),
            _ => Reply::Here(Seek::Queued),
        };
        let facts = vec![ReadyCall { requires_approval: true, ..ready() }, ready()];
        let (tools, _later) = Scripted::new(facts, Box::new(script));
        let running = Running::start(&["a", "b"], tools.clone(), |_| {}).await;
        let [first, second] = [0, 1].map(|position| call_at(&running.run, position));
        until(|| tools.is_queued(&second)).await;
        let by = Person::from("ann".to_owned());
        let approval = Resolution { decision: Decision::Approve, digest: None, by, remember: None };
        let (tenant, question) = (TenantId::local(), first.request(Attempt(0)));
        let decided = Box::pin(running.engine.decide(&tenant, &question, approval));
        in_time(decided).await.expect("it is approved");
        assert!(tools.is_queued(&second));
        tools.grant(&second).await;
        running.ends(2, 1).await;
    }
}
