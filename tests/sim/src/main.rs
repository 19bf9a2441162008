//! Runs seeds: `agentloop-sim --seeds 1000`, or one with its trace: `agentloop-sim --seed 42 --trace`.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use agentloop_sim::cluster::{ClusterOptions, simulate_cluster};
use agentloop_sim::{Options, Outcome, simulate};
use clap::Parser;

/// The server's engine under injected faults. A seed is a whole history: what is asked of the server, and what goes
/// wrong. Each failing seed is named; running it again with --trace shows how it came about.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// Number of seeds to run
    #[arg(long, default_value_t = 100, conflicts_with = "seed")]
    seeds: u64,
    /// The first of them
    #[arg(long, default_value_t = 0, conflicts_with = "seed")]
    from: u64,
    /// One seed alone
    #[arg(long)]
    seed: Option<u64>,
    /// Print every line of the history
    #[arg(long)]
    trace: bool,
    /// Go on after a seed that fails
    #[arg(long)]
    keep_going: bool,
    /// Simulate replicas over one database instead of one server
    #[arg(long)]
    cluster: bool,
    /// With --cluster: an asynchronous standby takes the place of the primary again and again
    #[arg(long, requires = "cluster")]
    goes_back: bool,
    /// Number of seeds that run at the same time, each on its own thread; one per processor by default
    #[arg(long, conflicts_with_all = ["seed", "cluster"])]
    jobs: Option<NonZeroUsize>,
}

/// Interval of progress reports.
const PROGRESS_EVERY: Duration = Duration::from_secs(30);

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let seeds = match arguments.seed {
        Some(seed) => seed..seed + 1,
        None => arguments.from..arguments.from.saturating_add(arguments.seeds),
    };
    if arguments.cluster {
        let options = ClusterOptions {
            trace: arguments.trace,
            goes_back: arguments.goes_back,
            ..ClusterOptions::default()
        };
        return clusters(seeds, options, arguments.keep_going);
    }
    let (began, mut total) = (Instant::now(), Total::default());
    let asked = seeds.end - seeds.start;
    let jobs =
        arguments.jobs.or_else(|| std::thread::available_parallelism().ok()).map_or(1, NonZeroUsize::get);
    let (mut spoke, enough) = (began, AtomicBool::new(false));
    each(
        seeds,
        jobs,
        &enough,
        Options { trace: arguments.trace, ..Options::default() },
        |seed, took, outcome| {
            total.add(seed, took, &outcome);
            if !outcome.problems.is_empty() {
                report(seed, &outcome, arguments.trace);
                total.failed += 1;
                enough.fetch_or(!arguments.keep_going, Ordering::Relaxed);
            }
            if spoke.elapsed() >= PROGRESS_EVERY {
                spoke = Instant::now();
                eprintln!(
                    "{} of {asked} seeds, {} failed, {:.0} s",
                    total.seeds,
                    total.failed,
                    began.elapsed().as_secs_f64()
                );
            }
        },
    );
    let Total { seeds, failed, runs, events, processes, faults, slowest } = total;
    let injected: u64 = faults.values().sum();
    let kinds: Vec<String> = faults.iter().map(|(what, times)| format!("{times} {what}")).collect();
    println!(
        "{seeds} seeds, {failed} failed: {runs} runs with {events} events, over {processes} starts of the server, {injected} faults ({}), in {:.1} s; the slowest was seed {} with {:.1} s",
        kinds.join(", "),
        began.elapsed().as_secs_f64(),
        slowest.1,
        slowest.0.as_secs_f64()
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs the seeds of the simulation of replicas, one after the other.
fn clusters(seeds: Range<u64>, options: ClusterOptions, keep_going: bool) -> ExitCode {
    let (began, mut counts, mut takeovers) = (Instant::now(), BTreeMap::<_, u64>::new(), Vec::<u64>::new());
    let (mut ran, mut failed) = (0, 0);
    for seed in seeds {
        let outcome = simulate_cluster(seed, options);
        outcome.counts.iter().for_each(|(what, times)| *counts.entry(*what).or_default() += times);
        takeovers.extend(&outcome.takeovers);
        ran += 1;
        if !outcome.problems.is_empty() {
            failed += 1;
            println!("seed {seed} fails: {:#?}\n{}", outcome.problems, outcome.tail.join("\n"));
            if !keep_going {
                break;
            }
        }
    }
    takeovers.sort_unstable();
    let at = |percent: usize| takeovers.get(takeovers.len() * percent / 100).or(takeovers.last());
    let counts: Vec<String> = counts.iter().map(|(what, times)| format!("{times} {what}")).collect();
    println!(
        "{ran} seeds, {failed} failed, in {:.1} s: {}",
        began.elapsed().as_secs_f64(),
        counts.join(", ")
    );
    println!(
        "{} takeovers; milliseconds from the owner's failure to the next event: p50 {:?}, p99 {:?}, most {:?}",
        takeovers.len(),
        at(50),
        at(99),
        takeovers.last()
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs all seeds, in their order, `jobs` at a time, until there are enough; each outcome is handed over as it comes.
fn each(
    seeds: Range<u64>,
    jobs: usize,
    enough: &AtomicBool,
    options: Options,
    mut outcome: impl FnMut(u64, Duration, Outcome),
) {
    let (next, end) = (&AtomicU64::new(seeds.start), seeds.end);
    let (done, outcomes) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            let done = done.clone();
            scope.spawn(move || {
                while !enough.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        break;
                    }
                    let began = Instant::now();
                    let what = simulate(seed, options);
                    done.send((seed, began.elapsed(), what))
                        .expect("outcomes are taken until all threads are done");
                }
            });
        }
        drop(done);
        outcomes.iter().for_each(|(seed, took, what)| outcome(seed, took, what));
    });
}

#[derive(Default)]
struct Total {
    seeds: u64,
    failed: u64,
    runs: usize,
    events: usize,
    processes: u64,
    faults: BTreeMap<&'static str, u64>,
    slowest: (Duration, u64),
}

impl Total {
    fn add(&mut self, seed: u64, took: Duration, outcome: &Outcome) {
        self.seeds += 1;
        self.slowest = self.slowest.max((took, seed));
        self.runs += outcome.runs;
        self.events += outcome.events;
        self.processes += outcome.processes;
        for (what, times) in &outcome.faults {
            *self.faults.entry(what).or_default() += times;
        }
    }
}

fn report(seed: u64, outcome: &Outcome, traced: bool) {
    println!("seed {seed} fails:");
    for problem in &outcome.problems {
        println!("  {problem}");
    }
    if !traced {
        println!("its last lines:");
        for line in &outcome.tail {
            println!("  {line}");
        }
        println!("all of it: cargo run -p agentloop-sim -- --seed {seed} --trace");
    }
}
