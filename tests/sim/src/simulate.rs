//! One seed from its first line to its last.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Once};
use std::time::Duration;

use agentloop_core::id::RunId;
use agentloop_server::clock::Clock as _;
use agentloop_server::store::ToolStore as _;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::approvers;
use crate::callers;
use crate::check;
use crate::host::{self, Host};
use crate::operator;
use crate::plan::{Only, Plan, PlantedBug};
use crate::server_process;
use crate::session_forks;
use crate::world::{World, tenant};

/// Time that runs have to end after the last fault. Backoff after an outage of the store grows to minutes, and a clock
/// that was set back must catch up.
const END_WITHIN: Duration = Duration::from_secs(2 * 3_600);

/// Options for running a seed.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// True prints every line of the trace.
    pub trace: bool,
    /// A fault that is built in on purpose.
    pub bug: Option<PlantedBug>,
    /// The only kind of fault to inject; `None` for those of the seed.
    pub only: Option<Only>,
}

/// The result of a seed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The violations found; empty if there are none.
    pub problems: Vec<String>,
    /// Digest of the whole trace. Equal histories have equal digests.
    pub digest: u64,
    /// Lines of the trace.
    pub lines: u64,
    /// The last of them.
    pub tail: Vec<String>,
    /// Runs in the store.
    pub runs: usize,
    /// Events in the store.
    pub events: usize,
    /// Processes of the server.
    pub processes: u64,
    /// The number of faults of each kind.
    pub faults: BTreeMap<&'static str, u64>,
}

thread_local! {
    /// Panics of the simulation on this thread; `None` where there is none.
    static PANICS: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

/// Runs the simulation of a seed.
#[must_use]
pub fn simulate(seed: u64, options: Options) -> Outcome {
    listen_for_panics();
    PANICS.set(Some(Vec::new()));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without I/O can be made");
    let world = runtime.block_on(async {
        let world = World::new(Plan::draw(seed, options.bug, options.only), options.trace);
        let lived = futures_util::FutureExt::catch_unwind(AssertUnwindSafe(live(world.clone()))).await;
        drop(lived);
        world
    });
    let panics = PANICS.take().unwrap_or_default();
    drop(runtime);
    panics.iter().for_each(|panic| world.problem(format_args!("a panic: {panic}")));
    let (digest, lines) = world.trace.digest();
    let tables = world.truth.tables();
    Outcome {
        problems: world.problems(),
        digest,
        lines,
        tail: world.trace.tail(),
        runs: tables.runs.len(),
        events: tables.runs.values().map(|run| run.records.len()).sum(),
        processes: world.processes.load(std::sync::atomic::Ordering::Relaxed),
        faults: world.faults(),
    }
}

/// The engine contains panics; here each is a problem.
fn listen_for_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let otherwise = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let heard = PANICS.with_borrow_mut(|panics| {
                panics.iter_mut().for_each(|panics| panics.push(info.to_string()));
                panics.is_some()
            });
            if !heard {
                otherwise(info);
            }
        }));
    });
}

async fn live(world: Arc<World>) {
    world.trace.line("world", &format!("{:?}", world.plan));
    let (of, rows) = host::remembered(world.clock.now());
    world.truth.save_tools(&of, &rows).await.expect("the truth does not fail");
    let over = CancellationToken::new();
    let server = tokio::spawn(server_process::keep_running(world.clone(), over.clone()));
    let mut background = JoinSet::new();
    for number in 1..=world.plan.hosts {
        background.spawn(Host::new(world.clone(), number).run());
    }
    background.spawn(approvers::answer_questions(world.clone()));
    background.spawn(operator::operate(world.clone()));
    background.spawn(operator::move_clock(world.clone()));
    let mut callers = JoinSet::new();
    for session in 0..world.plan.sessions {
        callers.spawn(callers::converse(world.clone(), session));
    }
    if world.plan.curates {
        callers.spawn(session_forks::fork_and_delete(world.clone()));
    }
    // Faults last as long as callers come, and a while longer; then everything must come to its end.
    let busy = async {
        let _enough = tokio::time::timeout(Duration::from_secs(600), callers.join_next_all()).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
    };
    tokio::select! { biased;
        () = busy => {}
        () = has_problem(&world) => {}
    }
    world.becomes_calm();
    let ends = async {
        let over = async {
            callers.join_next_all().await;
            all_over(&world).await;
        };
        // One problem is enough.
        tokio::select! { biased;
            () = over => {}
            () = has_problem(&world) => {}
        }
    };
    if tokio::time::timeout(END_WITHIN, ends).await.is_err() {
        for run in unfinished(&world) {
            world.problem(format_args!("{run} does not end"));
        }
    } else if world.problems().is_empty() {
        let mut pings = JoinSet::new();
        for session in callers::sessions(&world) {
            pings.spawn(callers::ping(world.clone(), session));
        }
        if tokio::time::timeout(END_WITHIN, pings.join_next_all()).await.is_err() {
            world.problem("a session does not answer its next message");
        }
    }
    // Jobs that follow runs are done, and subscribers come to the end of what they watch.
    let _left_undone = tokio::time::timeout(END_WITHIN, all_done(&world)).await;
    tokio::time::sleep(Duration::from_secs(1_800)).await;
    background.shutdown().await;
    over.cancel();
    let _ended = server.await;
    check::everything(&world);
}

async fn all_over(world: &World) {
    while !unfinished(world).is_empty() {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

async fn all_done(world: &World) {
    while !world.truth.tables().jobs.is_empty() {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

async fn has_problem(world: &World) {
    while world.problems().is_empty() {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Runs of callers that are not over.
fn unfinished(world: &World) -> Vec<RunId> {
    let tables = world.truth.tables();
    let stored = tables.runs.iter().filter(|(_, run)| !run.row.summary.status.is_terminal());
    let lost =
        world.promises().runs.keys().filter(|run| tables.run(&tenant(), run).is_none()).cloned().collect();
    let found: Vec<RunId> = lost;
    stored.map(|(key, _)| key.run.clone()).chain(found).collect()
}

/// Waits for all of a set.
trait JoinAll {
    async fn join_next_all(&mut self);
}

impl JoinAll for JoinSet<()> {
    async fn join_next_all(&mut self) {
        while self.join_next().await.is_some() {}
    }
}
