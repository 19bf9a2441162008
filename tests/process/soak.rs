//! Many sessions at work for a long time, while server and hosts are killed and stopped at random.
//!
//! `tests/soak --minutes 30 --seed 7` builds and starts it. It ends with a table of what happened, or at the first
//! thing that does not hold.

use std::time::{Duration, Instant};

use agentloop_tests::load::brain::Temper;
use agentloop_tests::load::running::{Load, Plan};
use clap::Parser;

#[derive(Parser)]
struct Options {
    /// Duration of the load, without the time that the last runs need to end.
    #[arg(long, default_value_t = 30.0)]
    minutes: f64,
    /// Decides what happens, though not exactly when.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Sessions at work at a time.
    #[arg(long, default_value_t = 64)]
    sessions: u64,
    /// Number of tool hosts.
    #[arg(long, default_value_t = 3)]
    hosts: usize,
    /// Number of replicas over the PostgreSQL database of AGENTLOOP_TEST_POSTGRES; 0: one server with a file of its own.
    #[arg(long, default_value_t = 0)]
    replicas: usize,
    /// The longest time between two faults, in milliseconds.
    #[arg(long, default_value_t = 4_000)]
    calm_ms: u64,
}

#[tokio::main]
async fn main() {
    let options = Options::parse();
    let temper = Temper { fails: 6, thinks_ms: 40 };
    let Options { seed, sessions, hosts, replicas, .. } = options;
    let mut load = Load::start(&Plan { seed, sessions, hosts, temper, replicas }).await;
    let end = Instant::now() + Duration::from_secs_f64(options.minutes * 60.0);
    while Instant::now() < end {
        load.suffer(options.calm_ms).await;
    }
    load.finish().await;
}
