//! Runs seeds: `agentloop-sim --seeds 1000`, or one with its trace: `agentloop-sim --seed 42 --trace`.

use std::process::ExitCode;
use std::time::Instant;

use agentloop_sim::{Options, Outcome, simulate};
use clap::Parser;

/// The server's engine under injected faults. A seed is a whole history: what is asked of the server, and what goes
/// wrong. Each failing seed is named; running it again with --trace shows how it came about.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// How many seeds to run
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
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let seeds = match arguments.seed {
        Some(seed) => seed..seed + 1,
        None => arguments.from..arguments.from.saturating_add(arguments.seeds),
    };
    let (began, mut total) = (Instant::now(), Total::default());
    for seed in seeds {
        let outcome = simulate(seed, Options { trace: arguments.trace, ..Options::default() });
        total.add(&outcome);
        if !outcome.problems.is_empty() {
            report(seed, &outcome, arguments.trace);
            total.failed += 1;
            if !arguments.keep_going {
                break;
            }
        }
    }
    let Total { seeds, failed, runs, events, processes } = total;
    println!(
        "{seeds} seeds, {failed} failed: {runs} runs with {events} events, over {processes} starts of the server, in {:.1} s",
        began.elapsed().as_secs_f64()
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[derive(Default)]
struct Total {
    seeds: u64,
    failed: u64,
    runs: usize,
    events: usize,
    processes: u64,
}

impl Total {
    fn add(&mut self, outcome: &Outcome) {
        self.seeds += 1;
        self.runs += outcome.runs;
        self.events += outcome.events;
        self.processes += outcome.processes;
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
