//! The simulation of capacity against known results of queueing theory and division, and its costs against those measured.

use agentloop_sim::capacity::{Ceiling, Costs, Part, Seen, Shape, Spread, simulate};

/// Costs of zero. Each test sets those that it is about.
const FREE: Costs = Costs {
    owner: 0.0,
    owner_sent_on: 0.0,
    sends_on: 0.0,
    hub: 0.0,
    writes: 0,
    commit: 0.0,
    write: 0.0,
    reads: 0,
    read: 0.0,
    rest: 0.0,
    flush: 0.0,
    trip: 0.0,
    log: 0.0,
    network: 0.0,
    model: 0.0,
    tool: 0.0,
};
/// Like those of a real run, in round numbers.
const COSTS: Costs = Costs {
    owner: 0.000_8,
    owner_sent_on: 0.000_9,
    sends_on: 0.000_2,
    writes: 4,
    commit: 0.000_2,
    write: 0.000_05,
    reads: 2,
    read: 0.000_05,
    rest: 0.000_02,
    flush: 0.000_5,
    trip: 0.000_2,
    model: 0.5,
    tool: 0.05,
    ..FREE
};
const SECONDS: f64 = 200.0;

#[track_caller]
fn near(what: &str, seen: f64, known: f64, within: f64) {
    let off = (seen - known).abs() / known;
    assert!(off <= within, "{what} is {seen}, and {known} in theory: {:.1} % apart", off * 100.0);
}

/// Runs that are nothing but one piece of the owner's time.
fn pieces(cores: usize, spread: Spread, busy: f64) -> Seen {
    let costs = Costs { owner: 0.001, ..FREE };
    let rate = busy * cores as f64 / costs.owner;
    simulate(&costs, Shape::new(1, cores, 1), spread, rate, SECONDS, 7)
}

#[test]
fn one_core_with_random_pieces_waits_as_an_m_m_1_queue() {
    for busy in [0.5, 0.7, 0.8] {
        let seen = pieces(1, Spread::Exponential, busy);
        let mean = 0.001 / (1.0 - busy);
        near("the utilisation", seen.owner, busy, 0.02);
        near("the mean", seen.mean, mean, 0.05);
        near("the median", seen.p50, mean * 2.0_f64.ln(), 0.05);
        near("p99", seen.p99, mean * 100.0_f64.ln(), 0.1);
    }
}

#[test]
fn one_core_with_equal_pieces_waits_as_an_m_d_1_queue() {
    for busy in [0.5, 0.7, 0.8] {
        let seen = pieces(1, Spread::Equal, busy);
        near("the mean", seen.mean, 0.001 * (1.0 + busy / 2.0 / (1.0 - busy)), 0.03);
    }
}

#[test]
fn several_cores_wait_as_an_m_m_c_queue() {
    for (cores, busy) in [(2, 0.8), (8, 0.8), (16, 0.9)] {
        let seen = pieces(cores, Spread::Exponential, busy);
        let waits = erlang_c(cores, busy);
        near("the mean", seen.mean, 0.001 + waits * 0.001 / cores as f64 / (1.0 - busy), 0.05);
    }
}

/// The part of arrivals that find all cores busy.
fn erlang_c(cores: usize, busy: f64) -> f64 {
    let offered = busy * cores as f64;
    // The part of arrivals that would be turned away if none could wait.
    let blocked =
        (1..=cores).fold(1.0, |blocked, core| offered * blocked / (core as f64 + offered * blocked));
    blocked / (1.0 - busy * (1.0 - blocked))
}

#[test]
fn a_lane_that_commits_one_write_at_a_time_is_an_m_d_1_queue() {
    let costs = Costs { writes: 1, commit: 0.000_4, write: 0.000_1, flush: 0.000_3, trip: 0.000_2, ..FREE };
    let shape = Shape { commit_writes: 1, ..Shape::new(1, 1, 1) };
    let busy = 0.8;
    let seen = simulate(&costs, shape, Spread::Equal, busy / 0.001, SECONDS, 7);
    near("the mean", seen.mean, 0.001 * (1.0 + busy / 2.0 / (1.0 - busy)), 0.03);
    near("the utilisation", seen.lane, busy, 0.02);
}

#[test]
fn reads_share_the_database_with_all_else_as_an_m_d_1_queue_and_each_is_a_trip() {
    let costs = Costs { reads: 1, read: 0.001, trip: 0.01, ..FREE };
    let busy = 0.8;
    let seen = simulate(&costs, Shape::new(1, 1, 1), Spread::Equal, busy / 0.001, SECONDS, 7);
    near("the mean", seen.mean, 0.01 + 0.001 * (1.0 + busy / 2.0 / (1.0 - busy)), 0.03);
    near("the utilisation", seen.database, busy, 0.02);

    let costs = Costs { reads: 3, rest: 0.000_2, ..costs };
    let seen = simulate(&costs, Shape::new(1, 16, 1), Spread::Equal, 100.0, SECONDS, 7);
    near("the mean of three", seen.mean, 0.033, 0.03);
    near("the database", seen.database, 100.0 * 0.003_2 / 16.0, 0.02);
}

#[test]
fn the_number_of_live_runs_is_their_rate_times_their_time() {
    let seen = simulate(&COSTS, Shape::new(3, 8, 1), Spread::Exponential, 2_000.0, 20.0, 7);
    // Two answers of the model and one of the tool.
    near("live runs", seen.live, seen.runs * (seen.mean + 1.05), 0.02);
}

#[test]
fn the_part_with_the_lowest_ceiling_is_full_first() {
    let slow_disk = Costs { flush: 0.02, ..COSTS };
    let slow_other = Costs { sends_on: 0.02, ..COSTS };
    let slow_reads = Costs { read: 0.002, ..COSTS };
    let slow_rest = Costs { rest: 0.004, ..COSTS };
    for (first, costs, shape) in [
        (Part::OwnerCores, COSTS, Shape::new(1, 2, 1)),
        (Part::OwnerCores, slow_other, Shape::new(3, 2, 1)),
        (Part::WriteLanes, slow_disk, Shape::new(1, 16, 1)),
        (Part::DatabaseCores, COSTS, Shape::new(10, 2, 1)),
        (Part::DatabaseCores, slow_reads, Shape::new(3, 2, 1)),
        (Part::DatabaseCores, slow_rest, Shape::new(3, 2, 1)),
    ] {
        let Ceiling { part, runs } = shape.ceilings(&costs)[0];
        assert_eq!(part, first, "{shape:?}");
        let below = simulate(&costs, shape, Spread::Equal, runs * 0.95, 10.0, 7);
        near("runs", below.runs, runs * 0.95, 0.02);
        let above = simulate(&costs, shape, Spread::Equal, runs * 1.1, 10.0, 7);
        assert!(above.runs < runs * 1.08, "{shape:?}: {} of {}", above.runs, runs * 1.1);
        let busy = match part {
            Part::OwnerCores => above.owner,
            Part::WriteLanes => above.lane,
            Part::DatabaseCores => above.database,
            Part::HubCores => unreachable!("the cost of tool hosts is not simulated"),
        };
        near(part.name(), busy, 1.0, 0.01);
    }
}

#[test]
fn below_the_lowest_ceiling_all_runs_end_and_parts_are_as_busy_as_on_paper() {
    let shape = Shape::new(3, 8, 1);
    let ceiling =
        |part| shape.ceilings(&COSTS).into_iter().find(|of| of.part == part).expect("all are there").runs;
    let rate = shape.ceilings(&COSTS)[0].runs * 0.7;
    let seen = simulate(&COSTS, shape, Spread::Exponential, rate, 20.0, 7);
    near("runs", seen.runs, rate, 0.02);
    near("the owners", seen.owner, rate / ceiling(Part::OwnerCores), 0.03);
    // Commits are smaller than the largest, so they cost the database more and fill the lane earlier.
    assert!(seen.database >= rate / ceiling(Part::DatabaseCores), "{seen:?}");
    assert!(seen.lane >= rate / ceiling(Part::WriteLanes) && seen.lane < 1.0, "{seen:?}");
    let of_a_run = COSTS.database(COSTS.writes as f64 / seen.commit_writes);
    near("the database", seen.database, rate * of_a_run / 8.0, 0.02);
}

#[test]
fn lanes_share_a_flush_and_wait_for_the_one_before() {
    let costs = Costs { writes: 1, flush: 0.01, ..FREE };
    for (machines, runs) in [(1, 100.0), (2, 100.0), (6, 300.0)] {
        let shape = Shape { commit_writes: 1, ..Shape::new(machines, 1, 1) };
        let seen = simulate(&costs, shape, Spread::Equal, 1_000.0, 20.0, 7);
        near("runs", seen.runs, runs, 0.01);
        near("its ceiling", shape.ceilings(&costs)[0].runs, runs, 0.01);
    }
}

#[test]
fn the_same_seed_is_the_same_simulation() {
    let seen = |seed| simulate(&COSTS, Shape::new(3, 2, 1), Spread::Exponential, 1_000.0, 5.0, seed);
    assert_eq!(seen(1), seen(1));
    assert_ne!(seen(1), seen(2));
}

/// The means of three series with 1, 4, 16, 64 and 256 callers, for a run: commits of one of two replicas, and processor time in ms.
/// The first time is that of its writing connection, the second that of the whole database. See
/// `server/docs/internals/capacity.md`.
const MEASURED_DATABASE: [[f64; 3]; 5] = [
    [1.959, 1.120, 2.427],
    [1.227, 0.717, 1.530],
    [0.423, 0.345, 0.787],
    [0.134, 0.188, 0.464],
    [0.043, 0.131, 0.354],
];

#[test]
fn the_database_costs_about_as_much_as_was_measured() {
    let costs = Costs::MEASURED;
    for [commits, writing, whole] in MEASURED_DATABASE {
        // A replica owns half of the runs, and the other one commits as often.
        let of_half = costs.commit * commits + costs.write * costs.writes as f64 / 2.0;
        near("the writing connection", of_half * 1e3, writing, 0.06);
        near("the database", costs.database(2.0 * commits) * 1e3, whole, 0.06);
    }
}
