//! The load that 1, 3, 10 and 30 machines carry, on paper and by simulation, and the part that is full first:
//! `cargo run --profile profiling -p agentloop-sim --example capacity`.

use agentloop_sim::capacity::{Ceiling, Costs, Part, Seen, Shape, Spread, simulate};

const COSTS: Costs = Costs::MEASURED;
const MACHINES: [usize; 4] = [1, 3, 10, 30];
const CORES: [usize; 3] = [2, 8, 16];
/// The load of a simulation, as a part of the lowest ceiling. Utilisations are those of the last.
const LOADS: [f64; 3] = [0.5, 0.8, 0.95];
/// Seconds of each simulation that count.
const SECONDS: f64 = 10.0;
const SEED: u64 = 1;

fn main() {
    for (lanes, state) in [(1, "built"), (4, "not built")] {
        println!("\nwrite lanes of each machine: {lanes}, on paper, in runs per second; this is {state}\n");
        paper(lanes);
    }
    println!("\none write lane each, by simulation, without the cost of the tool hosts\n");
    simulated();
}

fn paper(lanes: usize) {
    let names = Part::ALL.map(Part::name).join(" | ");
    println!("| machines | cores of each | {names} | full first | log, MB/s | owner's network, Gbit/s |");
    println!("|---:|---:|---:|---:|---:|---:|---|---:|---:|");
    for machines in MACHINES {
        for cores in CORES {
            let ceilings = Shape::new(machines, cores, lanes).ceilings(&COSTS);
            let of = |part| {
                let found = ceilings.iter().find(|ceiling| ceiling.part == part).map(|ceiling| ceiling.runs);
                found.filter(|runs| runs.is_finite()).map_or(String::new(), |runs| format!("{runs:.0}"))
            };
            let parts = Part::ALL.map(of).join(" | ");
            let Ceiling { part, runs } = ceilings[0];
            let log = runs * COSTS.log / 1e6;
            let network = runs * COSTS.network * 8.0 / 1e9 / machines as f64;
            println!("| {machines} | {cores} | {parts} | {} | {log:.0} | {network:.2} |", part.name());
        }
    }
}

fn simulated() {
    let loads = LOADS.map(|load| format!("at {:.0} %: runs/s, p50, p99 in ms", load * 100.0)).join(" | ");
    println!(
        "| machines | cores of each | {loads} | owners' cores | a lane | database's cores | writes of a commit |"
    );
    println!("|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
    for machines in MACHINES {
        for cores in CORES {
            let shape = Shape::new(machines, cores, 1);
            let lowest = shape.ceilings(&COSTS).into_iter().filter(|of| of.part != Part::HubCores);
            let lowest = lowest.map(|of| of.runs).fold(f64::INFINITY, f64::min);
            let all =
                LOADS.map(|load| simulate(&COSTS, shape, Spread::Exponential, lowest * load, SECONDS, SEED));
            let times =
                |seen: &Seen| format!("{:.0}; {:.0}, {:.0}", seen.runs, seen.p50 * 1e3, seen.p99 * 1e3);
            let times = all.each_ref().map(times).join(" | ");
            let [.., seen] = &all;
            let parts = [seen.owner, seen.lane, seen.database];
            let parts = parts.map(|part| format!("{:.0} %", part * 100.0)).join(" | ");
            println!("| {machines} | {cores} | {times} | {parts} | {:.0} |", seen.commit_writes);
        }
    }
}
