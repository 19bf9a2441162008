//! Many sessions at work for a long time, while server and hosts are killed and stopped at random.
//!
//! `tests/soak --minutes 30 --seed 7` builds and starts it. It ends with a table of what happened, or at the first
//! thing that does not hold.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use agentloop_tests::load::brain::Temper;
use agentloop_tests::load::replicas::ReplicaPlan;
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
    /// A program of `agentloop` of an earlier commit with the same stored format. All replicas begin with it, and one that is
    /// told to stop goes on with the other version each time.
    #[arg(long, requires = "replicas")]
    from: Option<PathBuf>,
    /// Gives the replicas a database of their own with a synchronous standby, which takes its place when it is lost.
    #[arg(long, requires = "replicas")]
    fails_over: bool,
    /// The clock of the second replica is ahead by so many seconds, and that of the third one behind by as many. It needs a C
    /// compiler (cc).
    #[arg(long, default_value_t = 0, requires = "replicas")]
    skew_seconds: i64,
    /// The longest time between two faults, in milliseconds.
    #[arg(long, default_value_t = 4_000)]
    calm_ms: u64,
}

#[tokio::main]
async fn main() {
    let options = Options::parse();
    let temper = Temper { fails: 6, thinks_ms: 40 };
    let Options { seed, sessions, hosts, replicas: count, from, fails_over, skew_seconds, .. } = options;
    let replicas = (count > 0).then_some(ReplicaPlan { count, from, fails_over, skew_seconds });
    let mut load = Load::start(&Plan { seed, sessions, hosts, temper, replicas }).await;
    let end = Instant::now() + Duration::from_secs_f64(options.minutes * 60.0);
    while Instant::now() < end {
        load.suffer(options.calm_ms).await;
    }
    load.finish().await;
}
