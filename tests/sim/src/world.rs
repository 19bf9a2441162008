//! The state that all parts of a simulation share: the stored data, the clock, the running server, and the promises that
//! the server has made to its callers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use agentloop_core::id::{RunId, SessionId, TenantId};
use agentloop_core::time::Timestamp;
use agentloop_server::clock::Clock;
use agentloop_server::engine::error::EngineError;
use agentloop_server::ids::Ids;
use agentloop_server::store::StoreError;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::ledger::Ledger;
use crate::plan::Plan;
use crate::random::Random;
use crate::server::Server;
use crate::store::MemoryStore;
use crate::trace::Trace;

/// The fault of a caller that does not wait for its answer.
pub(crate) const CALLERS_LEFT: &str = "callers left";
/// Start time of simulations, in milliseconds since 1970.
const START: u64 = 1_800_000_000_000;

/// Shared by every actor of one simulation.
pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) trace: Trace,
    pub(crate) clock: SimClock,
    /// The truth, past all faults: only for checks.
    pub(crate) truth: MemoryStore,
    /// The server that is up, if one is.
    server: Mutex<Option<Server>>,
    /// One came up. Waiters are woken in the order in which they came, as they are not by a watch channel.
    came_up: Notify,
    /// Processes of the server so far.
    pub(crate) processes: AtomicU64,
    /// No faults from here on.
    calm: AtomicBool,
    ledger: Mutex<Ledger>,
    promises: Mutex<Promises>,
    problems: Mutex<Vec<String>>,
    faults: Mutex<BTreeMap<&'static str, u64>>,
}

/// Statements of the server that must stay true.
#[derive(Debug, Default)]
pub(crate) struct Promises {
    /// Runs that callers were told of.
    pub(crate) runs: BTreeMap<RunId, SessionId>,
    /// Requests whose messages were handed to a run.
    pub(crate) steered: BTreeSet<RunId>,
    /// Runs that the world made, whether or not anybody was told.
    pub(crate) watched: BTreeSet<RunId>,
    /// Runs of sessions that are being deleted, or were.
    pub(crate) doomed: BTreeSet<RunId>,
    /// Subscribers that have not seen their run's end, by its run and their number.
    pub(crate) watching: BTreeSet<(RunId, u64)>,
}

impl World {
    pub(crate) fn new(plan: Plan, loud: bool) -> Arc<Self> {
        Arc::new(Self {
            plan,
            trace: Trace::new(loud),
            clock: SimClock::default(),
            truth: MemoryStore::default(),
            server: Mutex::default(),
            came_up: Notify::new(),
            processes: AtomicU64::new(0),
            calm: AtomicBool::new(false),
            ledger: Mutex::default(),
            promises: Mutex::default(),
            problems: Mutex::default(),
            faults: Mutex::default(),
        })
    }

    pub(crate) fn random(&self, name: &str) -> Random {
        Random::of(self.plan.seed, name)
    }

    pub(crate) fn is_calm(&self) -> bool {
        self.calm.load(Ordering::Relaxed)
    }

    pub(crate) fn becomes_calm(&self) {
        self.trace.line("world", "no faults from here on");
        self.calm.store(true, Ordering::Relaxed);
    }

    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock()
    }

    pub(crate) fn promises(&self) -> MutexGuard<'_, Promises> {
        self.promises.lock()
    }

    /// Counts a fault that the seed injects.
    pub(crate) fn fault(&self, what: &'static str) {
        *self.faults.lock().entry(what).or_default() += 1;
    }

    /// The number of faults of this kind.
    pub(crate) fn faults_of(&self, what: &'static str) -> u64 {
        self.faults().get(what).copied().unwrap_or(0)
    }

    /// The number of faults of each kind.
    pub(crate) fn faults(&self) -> BTreeMap<&'static str, u64> {
        self.faults.lock().clone()
    }

    /// Records a violation, which fails the simulation.
    pub(crate) fn problem(&self, what: impl Display) {
        let what = what.to_string();
        self.trace.line("PROBLEM", &what);
        self.problems.lock().push(what);
    }

    pub(crate) fn problems(&self) -> Vec<String> {
        self.problems.lock().clone()
    }

    /// True if the run is gone because its session was deleted.
    pub(crate) fn is_gone(&self, run: &RunId) -> bool {
        self.truth.tables().run(&tenant(), run).is_none() && self.promises().doomed.contains(run)
    }

    /// Waits until a server is up, and returns it.
    pub(crate) async fn up(&self) -> Server {
        loop {
            let came_up = self.came_up.notified();
            let found = self.server.lock().clone();
            if let Some(server) = found {
                return server;
            }
            came_up.await;
        }
    }

    /// Sets the server that is up, or that none is.
    pub(crate) fn serves(&self, server: Option<Server>) {
        *self.server.lock() = server;
        self.came_up.notify_waiters();
    }

    /// Calls the server as a client does; `None` if the server stopped during the call, or the caller gave up.
    pub(crate) async fn call<T, F: Future<Output = T>>(
        &self,
        patience: Option<Duration>,
        ask: impl FnOnce(Server) -> F,
    ) -> Option<T> {
        let server = self.up().await;
        let stopped = server.tasks.hard().clone();
        let call = stopped.run_until_cancelled(ask(server));
        match patience {
            Some(patience) => match tokio::time::timeout(patience, call).await {
                Ok(answer) => answer,
                Err(_) => {
                    self.fault(CALLERS_LEFT);
                    None
                }
            },
            None => call.await,
        }
    }
}

/// True for an error that passes, so that the call can be tried again.
pub(crate) fn passes(error: &EngineError) -> bool {
    matches!(
        error,
        EngineError::ShuttingDown
            | EngineError::SubscriberTooSlow
            // Its hosts are not back after a restart.
            | EngineError::UnknownPlanner { .. }
            | EngineError::Store(
                StoreError::Unavailable { .. } | StoreError::SessionMoved | StoreError::Conflict
            )
    )
}

pub(crate) fn tenant() -> TenantId {
    TenantId::local()
}

/// The time of day: virtual time, and what was added to it.
#[derive(Debug, Clone)]
pub(crate) struct SimClock {
    start: Instant,
    moved: Arc<AtomicI64>,
}

impl Default for SimClock {
    fn default() -> Self {
        Self { start: Instant::now(), moved: Arc::default() }
    }
}

impl SimClock {
    /// Someone sets the clock.
    pub(crate) fn jump(&self, milliseconds: i64) {
        self.moved.fetch_add(milliseconds, Ordering::Relaxed);
    }
}

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        let passed = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        Timestamp((START + passed).saturating_add_signed(self.moved.load(Ordering::Relaxed)))
    }
}

/// Ids and chance for the server.
#[derive(Debug)]
pub(crate) struct SimIds(Mutex<Random>);

impl SimIds {
    pub(crate) fn new(random: Random) -> Self {
        Self(Mutex::new(random))
    }
}

impl Ids for SimIds {
    fn run(&self) -> RunId {
        RunId::parse(format!("run-{:016x}", self.seed())).expect("digits are within the alphabet of ids")
    }

    fn session(&self) -> SessionId {
        SessionId::parse(format!("session-{:016x}", self.seed()))
            .expect("digits are within the alphabet of ids")
    }

    fn seed(&self) -> u64 {
        self.0.lock().next()
    }
}
