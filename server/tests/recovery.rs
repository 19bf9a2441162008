//! Events that happen while a run is taken over.

#[path = "support/held.rs"]
mod held;
#[path = "support/intercepted.rs"]
mod intercepted;

use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use agentloop_core::agent::{LoopLimits, RunSpec, ToolPolicy};
use agentloop_core::cluster::shard::shard_of;
use agentloop_core::delta::Delta;
use agentloop_core::host::frame::CallRef;
use agentloop_core::id::{Attempt, CallId, HostId, RunId, SessionId, TenantId};
use agentloop_core::message::{FinishReason, Message, Role, ToolCall};
use agentloop_core::outcome::Ran;
use agentloop_core::run::effect::{CancelCause, Offer};
use agentloop_core::run::input::{AbortCause, CallFacts, ReadyCall};
use agentloop_core::run::status::RunStatus;
use agentloop_core::time::Millis;
use agentloop_core::tool::{Digest, EffectClass};
use agentloop_server::engine::{Engine, EngineOptions, EngineParts, OnBusy, StartRequest};
use agentloop_server::lifecycle::Tasks;
use agentloop_server::model::{Model, ModelError, ModelRequest, Models, UnknownModel};
use agentloop_server::store::sqlite::SqliteStore;
use agentloop_server::store::{Store, StoreError};
use agentloop_server::tool::{CallOrigin, CallSink as _, CallUpdate, Offered, Seek, Tools};
use futures_util::stream::{self, BoxStream, StreamExt as _};
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tracing::subscriber::DefaultGuard;

use held::HeldReads;
use intercepted::{Intercept, Intercepted};

/// The longest wait. It is generous, because the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(30);

/// Calls the tool `pay` twice in each answer.
struct Payer;

impl Model for Payer {
    fn stream(&self, _request: ModelRequest) -> BoxStream<'static, Result<Delta, ModelError>> {
        let deltas = [
            Delta::ToolCallStart { index: 0, provider_id: None, name: "pay".to_owned() },
            Delta::ToolCallArguments { index: 0, fragment: "{}".to_owned() },
            Delta::ToolCallStart { index: 1, provider_id: None, name: "pay".to_owned() },
            Delta::ToolCallArguments { index: 1, fragment: "{}".to_owned() },
            Delta::Finish { reason: FinishReason::ToolCalls },
        ];
        stream::iter(deltas.map(Ok)).boxed()
    }
}

struct One;

impl Models for One {
    fn resolve(&self, reference: &str) -> Result<(Arc<dyn Model>, String), UnknownModel> {
        Ok((Arc::new(Payer), reference.to_owned()))
    }
}

/// Tells which tenant asks, and never answers. Each tenant's runs say its name.
#[derive(Clone)]
struct Silent {
    asking: mpsc::UnboundedSender<String>,
    /// False while no provider serves it.
    is_configured: Arc<AtomicBool>,
}

/// A prompt that begins like this is answered.
const ANSWERED: &str = "answer ";

impl Model for Silent {
    fn stream(&self, request: ModelRequest) -> BoxStream<'static, Result<Delta, ModelError>> {
        let said = request.messages.last().expect("a prompt").plain_text();
        let is_answered = said.starts_with(ANSWERED);
        // The test may have ended.
        let _unheard = self.asking.send(said);
        if !is_answered {
            return stream::pending().boxed();
        }
        let answer = [Delta::Text { text: "yes".to_owned() }, Delta::Finish { reason: FinishReason::Stop }];
        stream::iter(answer.map(Ok)).boxed()
    }
}

impl Models for Silent {
    fn resolve(&self, reference: &str) -> Result<(Arc<dyn Model>, String), UnknownModel> {
        match self.is_configured.load(Ordering::SeqCst) {
            true => Ok((Arc::new(self.clone()), reference.to_owned())),
            false => Err(UnknownModel { reference: reference.to_owned(), configured: String::new() }),
        }
    }
}

/// Tools with a fixed result when a host is sought: the first for the first call of a message, the second for others.
struct Answers {
    seek: [Seek; 2],
    /// Gets each call for which a host is sought.
    sought: mpsc::UnboundedSender<CallId>,
    /// Gets each call that is offered to a host.
    offered: mpsc::UnboundedSender<CallId>,
}

impl Tools for Answers {
    fn offered(&self, _tenant: &TenantId, _spec: &RunSpec) -> Offered {
        Offered { tools: Arc::from([]), digest: Digest::of(&[]) }
    }

    fn facts(&self, _tenant: &TenantId, _spec: &RunSpec, calls: &[&ToolCall]) -> Vec<CallFacts> {
        let ready = CallFacts::Ready(ReadyCall {
            effect: EffectClass::Unsafe,
            requires_approval: false,
            timeout: Millis::secs(60),
            requires_runtime: false,
            deadline_is_outcome: false,
            title: String::new(),
            terms: None,
        });
        vec![ready; calls.len()]
    }

    fn validate(&self, _tenant: &TenantId, _tool: &str, _arguments: &str) -> Result<(), String> {
        Ok(())
    }

    fn seek(&self, _origin: &CallOrigin, call: &CallId, _tool: &str, _on: Option<&HostId>) -> Seek {
        // Not every test reads this channel.
        let _unheard = self.sought.send(call.clone());
        self.seek[usize::from(call.slot.position > 0)].clone()
    }

    fn is_offer_open(&self, _tenant: &TenantId, _call: &CallId) -> bool {
        true
    }

    fn stop_seeking(&self, _tenant: &TenantId, _call: &CallId) {}

    fn offer(&self, _origin: &CallOrigin, call: &CallId, _offer: Offer) {
        let _unheard = self.offered.send(call.clone());
    }

    fn reclaim(&self, _origin: &CallOrigin, _call: &CallId, _offer: Offer) {}

    fn cancel(&self, _tenant: &TenantId, _call: &CallRef, _cause: CancelCause, _reason: &str) {}

    fn release(&self, _tenant: &TenantId, _run: &RunId) {}
}

/// One server process: an engine with tasks and tools of its own over a shared store.
struct Process {
    engine: Engine,
    tasks: Tasks,
    sought: mpsc::UnboundedReceiver<CallId>,
    offered: mpsc::UnboundedReceiver<CallId>,
}

impl Process {
    fn start(store: &Arc<dyn Store>, seek: [Seek; 2]) -> Self {
        Self::start_with(store, seek, EngineOptions::default())
    }

    fn start_with(store: &Arc<dyn Store>, seek: [Seek; 2], options: EngineOptions) -> Self {
        Self::start_around(store, seek, options, Arc::new(One))
    }

    fn start_around(
        store: &Arc<dyn Store>,
        seek: [Seek; 2],
        options: EngineOptions,
        models: Arc<dyn Models>,
    ) -> Self {
        let (seeking, sought) = mpsc::unbounded_channel();
        let (offering, offered) = mpsc::unbounded_channel();
        let tools = Arc::new(Answers { seek, sought: seeking, offered: offering });
        let tasks = Tasks::new();
        let parts = EngineParts { tasks: tasks.clone(), options, ..EngineParts::default() };
        let engine = parts.start(store.clone(), models, tools);
        Self { engine, tasks, sought, offered }
    }

    /// Starts a run whose two calls wait for hosts. Returns the run and its second call.
    async fn waiting_run(&mut self, name: &str) -> (RunId, CallId) {
        let run = self.engine.start(request(name)).await.expect("started").run;
        (run, self.second_sought().await)
    }

    async fn second_sought(&mut self) -> CallId {
        soon(self.sought.recv()).await.expect("still sought");
        soon(self.sought.recv()).await.expect("still sought")
    }

    async fn stop(self) {
        self.tasks.shut_down(PATIENCE).await;
    }
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it does not take for ever")
}

/// A run that fails when a call has failed.
fn request(run: &str) -> StartRequest {
    let limits = LoopLimits { max_consecutive_failures: Some(1), ..LoopLimits::default() };
    let tool_policy = ToolPolicy { max_parallel: 2, ..ToolPolicy::default() };
    let spec =
        RunSpec { agent: "a".into(), model: "any/one".into(), limits, tool_policy, ..RunSpec::default() };
    StartRequest {
        tenant: TenantId::local(),
        run: Some(RunId::parse(run).expect("an id")),
        session: Some(SessionId::parse("s").expect("an id")),
        create_session: true,
        spec: Arc::new(spec),
        messages: vec![Arc::new(Message::text(Role::User, "pay"))],
        digest: Digest::of(&[run.as_bytes()]),
        on_busy: OnBusy::Enqueue,
        author: agentloop_server::engine::Author::default(),
        traceparent: None,
        imports: false,
    }
}

#[tokio::test]
async fn a_run_whose_end_is_found_when_it_is_taken_over_makes_room_for_the_next() {
    let store: Arc<dyn Store> = Arc::new(SqliteStore::in_memory().await.unwrap());
    let tenant = TenantId::local();
    let mut before = Process::start(&store, [Seek::Queued, Seek::Queued]);
    let (first, _) = before.waiting_run("first").await;
    let second = before.engine.start(request("second")).await.unwrap().run;
    before.stop().await;

    // No host has room any more. Taking over the first run therefore ends it.
    let after = Process::start(&store, [(); 2].map(|()| Seek::Denied("nobody is there".to_owned())));
    for run in [first, second] {
        let view = soon(after.engine.wait(&tenant, &run)).await.unwrap();
        assert_eq!(view.state.status(), Some(RunStatus::Failed), "{run}");
    }
    soon(async {
        while after.engine.live_runs() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    after.stop().await;
}

#[tokio::test]
async fn a_host_that_is_found_while_a_run_is_taken_over_is_offered_the_call() {
    let store: Arc<dyn Store> = Arc::new(SqliteStore::in_memory().await.unwrap());
    let tenant = TenantId::local();
    let mut before = Process::start(&store, [Seek::Queued, Seek::Queued]);
    let (_, call) = before.waiting_run("r").await;
    before.stop().await;

    let host = HostId::parse("h").unwrap();
    let mut after = Process::start(
        &store,
        [Seek::Granted { host: host.clone(), instance: None, terms: None }, Seek::Queued],
    );
    assert_eq!(after.second_sought().await, call);
    // The offer of the first call is decided but not durable yet.
    let digest = agentloop_core::tool::Digest::of(&[b"terms"]);
    let effect = agentloop_core::tool::EffectClass::ReadOnly;
    let terms = Some(Arc::new(agentloop_core::tool::ToolTerms {
        effect,
        requires_approval: false,
        digest,
        output_schema: None,
    }));
    after.engine.report_update(&tenant, &call, CallUpdate::Granted { host, instance: None, terms }).await;
    soon(after.offered.recv()).await.unwrap();
    assert_eq!(soon(after.offered.recv()).await, Some(call));
    after.stop().await;
}

#[tokio::test]
async fn a_call_that_was_not_begun_is_offered_again_if_its_run_is_not_taken_over_yet() {
    let store: Arc<dyn Store> = Arc::new(SqliteStore::in_memory().await.unwrap());
    let tenant = TenantId::local();
    let host = HostId::parse("h").unwrap();
    let seek = || [Seek::Granted { host: host.clone(), instance: None, terms: None }, Seek::Queued];
    let mut before = Process::start(&store, seek());
    before.engine.start(request("r")).await.expect("started");
    let call = soon(before.offered.recv()).await.expect("it is offered");
    before.stop().await;

    let mut after = Process::start(&store, seek());
    assert_eq!(after.engine.live_runs(), 0);
    let message = "refused".to_owned();
    let lost = CallUpdate::Lost { attempt: Attempt(1), message, ran: Ran::No, busy: false };
    assert!(after.engine.report_update(&tenant, &call, lost).await, "the run is told");
    assert_eq!(soon(after.offered.recv()).await, Some(call));
    after.stop().await;
}

#[tokio::test]
async fn a_session_that_is_given_away_does_not_wait_long_for_hosts_that_say_nothing() {
    let store: Arc<dyn Store> = Arc::new(SqliteStore::in_memory().await.unwrap());
    let options = EngineOptions { offers_wait: PATIENCE * 20, ..EngineOptions::default() };
    let granted = Seek::Granted { host: HostId::parse("h").unwrap(), instance: None, terms: None };
    let mut owner = Process::start_with(&store, [granted.clone(), granted], options);
    owner.engine.start(request("r")).await.expect("started");
    soon(owner.offered.recv()).await.expect("it is offered");
    let shard = shard_of(&TenantId::local(), &SessionId::parse("s").unwrap());
    assert!(owner.engine.give_away_shards([shard].into(), PATIENCE).await, "the run has stopped");
    assert_eq!(owner.engine.live_runs(), 0);
}

/// The memory for one run that comes up.
const EACH: usize = 80 * 1024;

/// An engine of a server process whose model is silent, with this much memory. Each tenant leaves some of it to others.
fn silent_process(
    store: &Arc<dyn Store>,
    live_bytes_max: usize,
) -> (Process, mpsc::UnboundedReceiver<String>) {
    let options = EngineOptions { live_bytes_max, tenants_leave_memory: true, ..EngineOptions::default() };
    silent_process_with(store, options)
}

fn silent_process_with(
    store: &Arc<dyn Store>,
    options: EngineOptions,
) -> (Process, mpsc::UnboundedReceiver<String>) {
    let (asking, asked) = mpsc::unbounded_channel();
    let silent = Silent { asking, is_configured: Arc::new(AtomicBool::new(true)) };
    (Process::start_around(store, [Seek::Queued, Seek::Queued], options, Arc::new(silent)), asked)
}

/// Starts a run of this tenant in a session of its own. It says the tenant's name.
async fn start_for(process: &Process, tenant: &str, number: usize) {
    let name = format!("{tenant}-{number}");
    let request = StartRequest {
        tenant: TenantId::parse(tenant).expect("an id"),
        session: Some(SessionId::parse(&*name).expect("an id")),
        messages: vec![Arc::new(Message::text(Role::User, tenant))],
        ..request(&name)
    };
    process.engine.start(request).await.expect("started");
}

#[tokio::test]
async fn runs_of_a_tenant_that_wait_for_memory_keep_no_other_tenant_from_recovering() {
    const NOISY_RUNS: usize = 64;
    let store: Arc<dyn Store> = Arc::new(SqliteStore::in_memory().await.unwrap());
    let (before, mut asked) = silent_process(&store, 1 << 30);
    let start = async |tenant: &str, number: usize| start_for(&before, tenant, number).await;
    for number in 0..NOISY_RUNS {
        start("a-noisy", number).await;
    }
    start("quiet", 0).await;
    for _ in 0..=NOISY_RUNS {
        soon(asked.recv()).await.expect("the model is asked");
    }
    before.stop().await;

    // Enough for few of the runs, and those never end.
    let (after, mut asked) = silent_process(&store, 1 << 20);
    let (mut noisy, mut quiet) = (0, 0);
    // Either tenant may be the first.
    while noisy == 0 || quiet == 0 {
        match soon(asked.recv()).await.expect("the model is asked").as_str() {
            "quiet" => quiet += 1,
            _ => noisy += 1,
        }
    }
    assert!(noisy < NOISY_RUNS / 2, "{noisy} runs of the other tenant have memory");
    let memory = after.engine.memory_use();
    assert!(memory.bytes <= memory.bytes_max, "{memory:?} by {} runs", after.engine.live_runs());
    after.stop().await;
}

/// Holds each write back while it is closed.
struct Gate(watch::Sender<bool>);

impl Intercept for Gate {
    async fn write<T: Send>(
        &self,
        write: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        let mut is_open = self.0.subscribe();
        is_open.wait_for(|is_open| *is_open).await.expect("the gate is there");
        write.await
    }
}

#[tokio::test]
async fn runs_that_wait_for_a_place_to_come_up_hold_no_memory() {
    const TOGETHER: usize = 32;
    let gate = Arc::new(Intercepted::new(Gate(watch::Sender::new(true))).await);
    let store: Arc<dyn Store> = gate.clone();
    let (before, mut asked) = silent_process(&store, 1 << 30);
    for tenant in 0..2 * TOGETHER {
        start_for(&before, &format!("t{tenant}"), 0).await;
        soon(asked.recv()).await.expect("the model is asked");
    }
    before.stop().await;

    gate.intercept.0.send_replace(false);
    // There is memory for some runs more than come up together.
    let (after, mut asked) = silent_process(&store, (TOGETHER + 16) * EACH);
    soon(async {
        while after.engine.live_runs() < TOGETHER {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(after.engine.memory_use().bytes, TOGETHER * EACH);
    gate.intercept.0.send_replace(true);
    soon(asked.recv()).await.expect("the model is asked");
    after.stop().await;
}

/// Starts a run of this name in a session of its own.
async fn start_saying(process: &Process, name: &str, text: String) -> RunId {
    let request = StartRequest {
        session: Some(SessionId::parse(name).expect("an id")),
        messages: vec![Arc::new(Message::text(Role::User, text))],
        ..request(name)
    };
    process.engine.start(request).await.expect("started").run
}

/// A server process whose model has no provider at first, and one run, which is paused for that.
struct Unconfigured {
    process: Process,
    asked: mpsc::UnboundedReceiver<String>,
    is_configured: Arc<AtomicBool>,
    paused: RunId,
}

impl Unconfigured {
    async fn start(store: &Arc<dyn Store>, live_bytes_max: usize) -> Self {
        let (asking, asked) = mpsc::unbounded_channel();
        let is_configured = Arc::new(AtomicBool::new(false));
        let silent = Silent { asking, is_configured: is_configured.clone() };
        let options = EngineOptions { live_bytes_max, ..EngineOptions::default() };
        let process = Process::start_around(store, [Seek::Queued, Seek::Queued], options, Arc::new(silent));
        let paused = process.engine.start(request("paused")).await.expect("started").run;
        let view = soon(process.engine.wait(&TenantId::local(), &paused)).await.expect("it is there");
        assert_eq!(view.state.status(), Some(RunStatus::Paused));
        Self { process, asked, is_configured, paused }
    }

    fn configure(&self) {
        self.is_configured.store(true, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn a_gain_of_shards_waits_for_no_memory_for_runs_that_are_live() {
    const CALLS: usize = 3;
    let store: Arc<dyn Store> = Arc::new(SqliteStore::in_memory().await.unwrap());
    let mut of = Unconfigured::start(&store, CALLS * (EACH + 1024)).await;
    of.configure();
    for number in 0..CALLS {
        start_for(&of.process, "t", number).await;
        soon(of.asked.recv()).await.expect("the model is asked");
    }
    let engine = &of.process.engine;
    soon(Box::pin(engine.resume(&TenantId::local(), &of.paused, "resumed", "a test"))).await.unwrap();
    soon(async {
        while engine.waiting_for_memory() == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(engine.live_runs(), CALLS + 1);

    soon(engine.continue_gained_shards()).await;
    assert_eq!(engine.waiting_for_memory(), 1, "the run that waited still waits");
    of.process.stop().await;
}

/// Else each gain leaves a recovery that waits, with a list of all runs.
#[tokio::test]
async fn runs_that_wait_for_memory_to_come_up_are_waited_for_by_one_recovery() {
    const RUNS: usize = 8;
    let store: Arc<dyn Store> = Arc::new(SqliteStore::in_memory().await.unwrap());
    let (before, mut asked) = silent_process(&store, 1 << 30);
    for number in 0..RUNS {
        let name = format!("r-{number}");
        start_saying(&before, &name, name.clone()).await;
        soon(asked.recv()).await.expect("the model is asked");
    }
    before.stop().await;

    let options = EngineOptions { live_bytes_max: 2 * (EACH + 1024), ..EngineOptions::default() };
    let (after, mut asked) = silent_process_with(&store, options);
    let engine = &after.engine;
    let mut asking = soon(asked.recv()).await.expect("the model is asked");
    for _ in 0..3 {
        soon(engine.continue_gained_shards()).await;
    }
    let live = engine.live_runs();
    assert!(live < RUNS, "the others wait for memory: {live} of {RUNS}");
    // The first recovery still brings all of them up.
    for _ in 1..RUNS {
        let run = RunId::parse(asking).expect("an id");
        soon(Box::pin(engine.abort(&TenantId::local(), &run, AbortCause::Caller, "the test"))).await.unwrap();
        asking = soon(asked.recv()).await.expect("the model is asked");
    }
    after.stop().await;
}

#[tokio::test]
async fn a_gained_run_comes_up_in_the_memory_of_idle_histories() {
    const IDLE_TEXT: usize = 60 * 1024;
    /// The memory for the start of a run with a short prompt.
    const START: usize = EACH + 1024;
    let holds = Arc::new(Intercepted::new(HeldReads::default()).await);
    let store: Arc<dyn Store> = holds.clone();
    // Neither finds a run of the other when it starts.
    let process = async |live_bytes_max: usize| {
        let hold = holds.intercept.hold_next("unfinished");
        let options = EngineOptions { live_bytes_max, ..EngineOptions::default() };
        let process = silent_process_with(&store, options);
        soon(hold.reached()).await;
        hold.release();
        process
    };
    let (gaining, mut asked) = process(512 * 1024).await;
    let (lost, mut asked_of_lost) = process(1 << 30).await;
    start_saying(&lost, "gained", "gained".to_owned()).await;
    soon(asked_of_lost.recv()).await.expect("the model is asked");
    lost.stop().await;

    let engine = &gaining.engine;
    let ended = start_saying(&gaining, "idle", format!("{ANSWERED}{}", "x".repeat(IDLE_TEXT))).await;
    let view = soon(engine.wait(&TenantId::local(), &ended)).await.unwrap();
    assert_eq!(view.state.status(), Some(RunStatus::Completed));
    soon(async {
        while engine.live_runs() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let idle = engine.memory_use().bytes;
    assert!(idle >= IDLE_TEXT, "{idle}");
    soon(asked.recv()).await.expect("the model is asked");
    let free = || engine.memory_use().bytes_max - engine.memory_use().bytes;
    for number in 0.. {
        // A start without enough memory would drop the history.
        if free() < START {
            break;
        }
        start_saying(&gaining, &format!("silent-{number}"), "silent".to_owned()).await;
        soon(asked.recv()).await.expect("the model is asked");
    }
    let free = free();
    assert!(free < EACH && free + idle >= EACH, "{free} are free, {idle} are idle");

    soon(engine.continue_gained_shards()).await;
    assert_eq!(soon(asked.recv()).await.as_deref(), Some("gained"));
    gaining.stop().await;
}

/// Writes that fail once, after paused runs were read.
#[derive(Default)]
struct FailsOnce {
    failure: Mutex<Option<StoreError>>,
    /// Begins to shut down when paused runs have been read.
    stops: Mutex<Option<Tasks>>,
    are_read: AtomicBool,
}

impl Intercept for FailsOnce {
    async fn read<T: Send>(&self, method: &'static str, read: impl Future<Output = T> + Send) -> T {
        let found = read.await;
        if method == "runs" {
            self.are_read.store(true, Ordering::SeqCst);
            if let Some(tasks) = self.stops.lock().take() {
                tasks.soft().cancel();
            }
        }
        found
    }

    async fn write<T: Send>(
        &self,
        write: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        let failure = match self.are_read.load(Ordering::SeqCst) {
            true => self.failure.lock().take(),
            false => None,
        };
        match failure {
            Some(failure) => Err(failure),
            None => write.await,
        }
    }
}

#[tokio::test]
async fn a_paused_run_goes_on_although_the_store_fails_when_it_is_resumed() {
    let fails = Arc::new(Intercepted::new(FailsOnce::default()).await);
    let store: Arc<dyn Store> = fails.clone();
    let mut of = Unconfigured::start(&store, 1 << 30).await;
    of.configure();
    let failure = StoreError::Unavailable { what: "the disk is full".to_owned() };
    *fails.intercept.failure.lock() = Some(failure);
    soon(of.process.engine.continue_gained_shards()).await;
    assert!(fails.intercept.failure.lock().is_none(), "a write has failed");
    soon(of.asked.recv()).await.expect("the model is asked");
    of.process.stop().await;
}

/// Keeps the errors that this thread logs, until the guard is dropped.
fn errors_of_this_thread() -> (Arc<File>, DefaultGuard) {
    let log = Arc::new(tempfile::tempfile().expect("a file"));
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::ERROR)
        .with_ansi(false)
        .with_writer(log.clone())
        .finish();
    (log, tracing::subscriber::set_default(subscriber))
}

fn written(mut log: &File) -> String {
    let mut lines = String::new();
    log.rewind().expect("a file");
    log.read_to_string(&mut lines).expect("a log is text");
    lines
}

#[tokio::test]
async fn a_paused_run_whose_session_is_given_away_before_it_is_resumed_is_no_error() {
    let fails = Arc::new(Intercepted::new(FailsOnce::default()).await);
    let store: Arc<dyn Store> = fails.clone();
    let of = Unconfigured::start(&store, 1 << 30).await;
    of.configure();
    *fails.intercept.failure.lock() = Some(StoreError::Elsewhere);
    let (log, _logged) = errors_of_this_thread();
    soon(of.process.engine.continue_gained_shards()).await;
    assert!(fails.intercept.failure.lock().is_none(), "a write was refused");
    assert_eq!(written(&log), "");
    of.process.stop().await;
}

#[tokio::test]
async fn a_paused_run_that_is_not_resumed_because_the_server_stops_is_no_error() {
    let stops = Arc::new(Intercepted::new(FailsOnce::default()).await);
    let store: Arc<dyn Store> = stops.clone();
    let of = Unconfigured::start(&store, 1 << 30).await;
    of.configure();
    *stops.intercept.stops.lock() = Some(of.process.tasks.clone());
    let (log, _logged) = errors_of_this_thread();
    soon(of.process.engine.continue_gained_shards()).await;
    assert!(stops.intercept.stops.lock().is_none(), "the server stops");
    assert_eq!(written(&log), "");
    of.process.stop().await;
}
