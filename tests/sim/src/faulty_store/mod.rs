//! The way to the store that one server process has: slow at times, failing at times, and shut when the process dies.
//!
//! A write is on its way once it was asked for, whether or not anybody still waits for the answer, as in a store with a
//! writing task of its own.

mod ports;

use std::sync::Arc;
use std::time::Duration;

use agentloop_server::lifecycle::Tasks;
use agentloop_server::store::{Append, JournalStore as _, StoreError};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::Instant;

use crate::plan::PlantedBug;
use crate::random::Random;
use crate::store::MemoryStore;
use crate::world::World;

/// Reads that run at a time, like a store's read connections.
const READERS: usize = 2;

/// One process's way to the store. Clones are the same way.
#[derive(Clone)]
pub(crate) struct FaultyStore(Arc<Inner>);

struct Inner {
    world: Arc<World>,
    store: MemoryStore,
    tasks: Tasks,
    /// Connections for reading: who has one must be able to go on, whatever everybody else waits for.
    readers: Semaphore,
    state: Mutex<State>,
}

struct State {
    random: Random,
    /// End of an outage, during which every operation fails.
    away_until: Option<Instant>,
}

/// The delays and faults of one operation.
#[derive(Debug, Clone, Copy, Default)]
struct OperationFaults {
    before: Duration,
    after: Duration,
    fails: bool,
    crash_before: bool,
    crash_after: bool,
    loses_answer: bool,
    /// The operation is reported as done and is not done.
    lies: bool,
}

impl FaultyStore {
    pub(crate) fn new(world: Arc<World>, store: MemoryStore, tasks: Tasks) -> Self {
        let random = world.random(&format!("gate {}", store.epoch().0));
        let (readers, state) = (Semaphore::new(READERS), Mutex::new(State { random, away_until: None }));
        Self(Arc::new(Inner { world, store, tasks, readers, state }))
    }

    fn draw_faults(&self, writes: bool) -> OperationFaults {
        let plan = &self.0.world.plan.store;
        let mut state = self.0.state.lock();
        let is_planted = self.0.world.plan.bug == Some(PlantedBug::StoreAcknowledgesWithoutStoring);
        let lies = writes && is_planted && state.random.chance(20);
        if self.0.world.is_calm() {
            return OperationFaults { lies, ..OperationFaults::default() };
        }
        let State { random, away_until } = &mut *state;
        if random.chance(plan.outage) {
            let length = Duration::from_millis(random.between(500, 40_000));
            self.0.world.fault("store outages");
            self.0.world.trace.line("store", &format!("is away for {length:?}"));
            *away_until = Some(Instant::now() + length);
        }
        let away = away_until.is_some_and(|until| until > Instant::now());
        let mut wait =
            || Duration::from_millis(if random.chance(plan.slow) { random.between(1, 3_000) } else { 0 });
        let (before, after) = (wait(), wait());
        OperationFaults {
            before,
            after,
            fails: random.chance(plan.fails) || away,
            crash_before: writes && random.chance(plan.crash_before),
            crash_after: writes && random.chance(plan.crash_after),
            loses_answer: writes && random.chance(plan.loses_answer),
            lies,
        }
    }

    /// The process ends where it is: nobody hears of what it was about to do.
    async fn crash<T>(&self, when: &str) -> T {
        self.0.world.fault("server kills at a write");
        self.0.world.trace.line("server", &format!("is killed {when}"));
        self.0.tasks.hard().cancel();
        std::future::pending().await
    }

    async fn read<T>(&self, read: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        let faults = self.draw_faults(false);
        let _connection = self.0.readers.acquire().await.expect("it is never closed");
        pause(faults.before).await;
        if faults.fails {
            self.0.world.fault("store failures");
            return Err(unavailable());
        }
        let result = read.await;
        pause(faults.after).await;
        result
    }

    /// Carries out a write on a task of its own.
    async fn write<T: Send + 'static>(
        &self,
        what: String,
        write: impl AsyncWrite<T>,
    ) -> Result<T, StoreError> {
        let faults = self.draw_faults(true);
        let (reply, answer) = oneshot::channel();
        let store = self.clone();
        drop(self.0.tasks.spawn("writer", async move {
            // The caller may have stopped waiting.
            let _gone = reply.send(store.written(what, write, faults).await);
        }));
        match answer.await {
            Ok(result) => result,
            // The process is gone.
            Err(_) => std::future::pending().await,
        }
    }

    async fn written<T>(
        &self,
        what: String,
        write: impl AsyncWrite<T>,
        faults: OperationFaults,
    ) -> Result<T, StoreError> {
        pause(faults.before).await;
        if faults.crash_before {
            return self.crash(&format!("before {what}")).await;
        }
        if faults.fails {
            self.0.world.fault("store failures");
            return Err(unavailable());
        }
        if faults.lies
            && let Some(done) = write.pretend()
        {
            return Ok(done);
        }
        let result = write.run(self.0.store.clone()).await;
        match &result {
            Ok(_) => self.0.world.trace.line("store", &what),
            Err(error) => self.0.world.trace.line("store", &format!("{what}: {error}")),
        }
        if faults.crash_after {
            return self.crash(&format!("after {what}")).await;
        }
        pause(faults.after).await;
        if faults.loses_answer {
            self.0.world.fault("store answers lost");
            return Err(unavailable());
        }
        result
    }
}

/// A write, to be carried out later.
trait AsyncWrite<T>: Send + 'static {
    fn run(self, store: MemoryStore) -> impl Future<Output = Result<T, StoreError>> + Send;

    /// The answer without the deed, where there is one.
    fn pretend(&self) -> Option<T> {
        None
    }
}

impl<T, F, G> AsyncWrite<T> for F
where
    F: FnOnce(MemoryStore) -> G + Send + 'static,
    G: Future<Output = Result<T, StoreError>> + Send,
{
    fn run(self, store: MemoryStore) -> impl Future<Output = Result<T, StoreError>> + Send {
        self(store)
    }
}

struct AppendWrite(Append);

impl AsyncWrite<()> for AppendWrite {
    async fn run(self, store: MemoryStore) -> Result<(), StoreError> {
        store.append(self.0).await
    }

    fn pretend(&self) -> Option<()> {
        Some(())
    }
}

async fn pause(length: Duration) {
    if !length.is_zero() {
        tokio::time::sleep(length).await;
    }
}

fn unavailable() -> StoreError {
    StoreError::Unavailable { what: "as the seed has it".to_owned() }
}
