//! The load that 1, 3, 10 and 30 machines carry, on paper and by simulation, and the part that is full first:
//! `cargo run --profile profiling -p agentloop-sim --example capacity`.

use agentloop_sim::capacity::{Ceiling, Costs, Part, Seen, Shape, Spread, simulate};

/// Measured by the example `replica-costs` of the tests, but for `hub`, `flush`, `trip`, `model` and `tool`, which are assumed: see
/// `server/docs/internals/capacity.md`.
const COSTS: Costs = Costs {
    owner: 670e-6,
    owner_sent_on: 730e-6,
    standby: 200e-6,
    hub: 100e-6,
    writes: 4,
    commit: 510e-6,
    write: 44e-6,
    database: 38e-6,
    flush: 500e-6,
    trip: 300e-6,
    log: 10_100.0,
    network: 21_000.0,
    model: 0.5,
    tool: 0.05,
};
const MACHINES: [usize; 4] = [1, 3, 10, 30];
const CORES: [usize; 3] = [2, 8, 16];
/// The load of a simulation, as a part of the lowest ceiling. Utilisations are those of the last.
const LOADS: [f64; 3] = [0.5, 0.8, 0.95];
/// Seconds of each simulation that count.
const SECONDS: f64 = 10.0;
const SEED: u64 = 1;

fn main() {
    println!("one owner, on paper: runs per second that each part carries; this was built before\n");
    paper(&COSTS, Shape::one_owner);
    println!("\none owner, by simulation: p50 and p99 of a run in ms\n");
    simulated(&COSTS, Shape::one_owner);
    println!("\none owner with four write lanes, on paper: this is not built\n");
    paper(&COSTS, |machines, cores| Shape { lanes: 4, ..Shape::one_owner(machines, cores) });
    for (lanes, state) in [(1, "built"), (4, "not built")] {
        println!("\nall machines own shards, write lanes of each {lanes}, on paper: this is {state}\n");
        paper(&COSTS, |machines, cores| Shape::all_own(machines, cores, lanes));
    }
    println!(
        "\nall machines own shards with one write lane each, by simulation, without the cost of the tool hosts: this is built\n"
    );
    simulated(&COSTS, |machines, cores| Shape::all_own(machines, cores, 1));
}

fn paper(costs: &Costs, shape: impl Fn(usize, usize) -> Shape) {
    let names = Part::ALL.map(Part::name).join(" | ");
    println!("| machines | cores of each | {names} | full first | log, MB/s | owner's network, Gbit/s |");
    println!("|---:|---:|---:|---:|---:|---:|---|---:|---:|");
    for machines in MACHINES {
        for cores in CORES {
            let shape = shape(machines, cores);
            let ceilings = shape.ceilings(costs);
            let of = |part| {
                let found = ceilings.iter().find(|ceiling| ceiling.part == part).map(|ceiling| ceiling.runs);
                found.filter(|runs| runs.is_finite()).map_or("none".to_owned(), |runs| format!("{runs:.0}"))
            };
            let parts = Part::ALL.map(of).join(" | ");
            let Ceiling { part, runs } = ceilings[0];
            let log = runs * costs.log / 1e6;
            let network = runs * costs.network * 8.0 / 1e9 / shape.owners as f64;
            println!("| {machines} | {cores} | {parts} | {} | {log:.0} | {network:.2} |", part.name());
        }
    }
}

fn simulated(costs: &Costs, shape: impl Fn(usize, usize) -> Shape) {
    let loads = LOADS.map(|load| format!("at {:.0} %: runs/s, p50, p99", load * 100.0)).join(" | ");
    println!(
        "| machines | cores of each | {loads} | owner's cores | last machine's cores | a lane | database's cores | writes of a commit |"
    );
    println!("|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
    for machines in MACHINES {
        for cores in CORES {
            let shape = shape(machines, cores);
            let lowest = shape.ceilings(costs)[0].runs;
            let all =
                LOADS.map(|load| simulate(costs, shape, Spread::Exponential, lowest * load, SECONDS, SEED));
            let times =
                |seen: &Seen| format!("{:.0}, {:.0}, {:.0}", seen.runs, seen.p50 * 1e3, seen.p99 * 1e3);
            let times = all.each_ref().map(times).join(" | ");
            let [.., seen] = &all;
            let parts = [seen.owner, seen.last, seen.lane, seen.database];
            let parts = parts.map(|part| format!("{:.0} %", part * 100.0)).join(" | ");
            println!("| {machines} | {cores} | {times} | {parts} | {:.0} |", seen.commit_writes);
        }
    }
}
