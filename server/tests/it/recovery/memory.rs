//! The memory of runs that come up when they are taken over.

use std::sync::Arc;

use agentloop_core::id::{RunId, SessionId, TenantId};
use agentloop_core::message::{Message, Role};
use agentloop_core::run::input::AbortCause;
use agentloop_core::run::status::RunStatus;
use agentloop_server::engine::{EngineOptions, StartRequest};
use agentloop_server::store::sqlite::SqliteStore;
use agentloop_server::store::{Store, StoreError};
use tokio::sync::watch;

use crate::recovery::process::{Process, request};
use crate::recovery::silent::{ANSWERED, Unconfigured, silent_process, silent_process_with};
use crate::support::held::HeldReads;
use crate::support::intercepted::{Intercept, Intercepted};
use crate::support::patience::in_time;
use crate::support::until::until;

/// The memory for one run that comes up.
const EACH: usize = 80 * 1024;

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
        in_time(asked.recv()).await.expect("the model is asked");
    }
    before.stop().await;

    // Enough for few of the runs, and those never end.
    let (after, mut asked) = silent_process(&store, 1 << 20);
    let (mut noisy, mut quiet) = (0, 0);
    // Either tenant may be the first.
    while noisy == 0 || quiet == 0 {
        match in_time(asked.recv()).await.expect("the model is asked").as_str() {
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
        in_time(asked.recv()).await.expect("the model is asked");
    }
    before.stop().await;

    gate.intercept.0.send_replace(false);
    // There is memory for some runs more than come up together.
    let (after, mut asked) = silent_process(&store, (TOGETHER + 16) * EACH);
    until(|| after.engine.live_runs() >= TOGETHER).await;
    assert_eq!(after.engine.memory_use().bytes, TOGETHER * EACH);
    gate.intercept.0.send_replace(true);
    in_time(asked.recv()).await.expect("the model is asked");
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

#[tokio::test]
async fn a_gain_of_shards_waits_for_no_memory_for_runs_that_are_live() {
    const CALLS: usize = 3;
    let store: Arc<dyn Store> = Arc::new(SqliteStore::in_memory().await.unwrap());
    let mut of = Unconfigured::start(&store, CALLS * (EACH + 1024)).await;
    of.configure();
    for number in 0..CALLS {
        start_for(&of.process, "t", number).await;
        in_time(of.asked.recv()).await.expect("the model is asked");
    }
    let engine = &of.process.engine;
    in_time(Box::pin(engine.resume(&TenantId::local(), &of.paused, "resumed", "a test"))).await.unwrap();
    until(|| engine.waiting_for_memory() > 0).await;
    assert_eq!(engine.live_runs(), CALLS + 1);

    in_time(engine.continue_gained_shards()).await;
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
        in_time(asked.recv()).await.expect("the model is asked");
    }
    before.stop().await;

    let options = EngineOptions { live_bytes_max: 2 * (EACH + 1024), ..EngineOptions::default() };
    let (after, mut asked) = silent_process_with(&store, options);
    let engine = &after.engine;
    let mut asking = in_time(asked.recv()).await.expect("the model is asked");
    for _ in 0..3 {
        in_time(engine.continue_gained_shards()).await;
    }
    let live = engine.live_runs();
    assert!(live < RUNS, "the others wait for memory: {live} of {RUNS}");
    // The first recovery still brings all of them up.
    for _ in 1..RUNS {
        let run = RunId::parse(asking).expect("an id");
        in_time(Box::pin(engine.abort(&TenantId::local(), &run, AbortCause::Caller, "the test")))
            .await
            .unwrap();
        asking = in_time(asked.recv()).await.expect("the model is asked");
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
        in_time(hold.reached()).await;
        hold.release();
        process
    };
    let (gaining, mut asked) = process(512 * 1024).await;
    let (lost, mut asked_of_lost) = process(1 << 30).await;
    start_saying(&lost, "gained", "gained".to_owned()).await;
    in_time(asked_of_lost.recv()).await.expect("the model is asked");
    lost.stop().await;

    let engine = &gaining.engine;
    let ended = start_saying(&gaining, "idle", format!("{ANSWERED}{}", "x".repeat(IDLE_TEXT))).await;
    let view = in_time(engine.wait(&TenantId::local(), &ended)).await.unwrap();
    assert_eq!(view.state.status(), Some(RunStatus::Completed));
    until(|| engine.live_runs() == 0).await;
    let idle = engine.memory_use().bytes;
    assert!(idle >= IDLE_TEXT, "{idle}");
    in_time(asked.recv()).await.expect("the model is asked");
    let free = || engine.memory_use().bytes_max - engine.memory_use().bytes;
    for number in 0.. {
        // A start without enough memory would drop the history.
        if free() < START {
            break;
        }
        start_saying(&gaining, &format!("silent-{number}"), "silent".to_owned()).await;
        in_time(asked.recv()).await.expect("the model is asked");
    }
    let free = free();
    assert!(free < EACH && free + idle >= EACH, "{free} are free, {idle} are idle");

    in_time(engine.continue_gained_shards()).await;
    assert_eq!(in_time(asked.recv()).await.as_deref(), Some("gained"));
    gaining.stop().await;
}
