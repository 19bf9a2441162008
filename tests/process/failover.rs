//! The time for which runs stand still when the replica that owns the database is killed, frozen or told to stop.
//!
//! `cargo build --profile profiling -p agentloop-cli -p agentloop-tests --bins --examples`, then
//! `tests/with-postgres target/profiling/examples/failover --way freeze`. See `--help`.

use std::path::PathBuf;
use std::time::Duration;

use agentloop_tests::failover::{Plan, Way, measure};
use agentloop_tests::rolling;
use clap::Parser;

#[derive(Parser)]
struct Options {
    /// Runs that are at work.
    #[arg(long, default_value_t = 200)]
    runs: usize,
    /// Owners that are lost, one after the other.
    #[arg(long, default_value_t = 20)]
    losses: usize,
    /// The loss of each owner: kill, freeze or terminate. Or roll: one replica after the other is terminated.
    #[arg(long, default_value = "kill", value_parser = way)]
    way: Way,
    /// Time that the model takes for an answer, in milliseconds.
    #[arg(long, default_value_t = 2_000)]
    thinks_ms: u64,
    /// The program that replicas run until they are lost, such as an earlier version of `agentloop`.
    #[arg(long)]
    from: Option<PathBuf>,
    /// So many callers that make short runs, one after the other, in place of runs that last: two model calls and a tool call
    /// each. Only with `--way roll`.
    #[arg(long, conflicts_with_all = ["runs", "thinks_ms", "from"])]
    callers: Option<usize>,
}

fn way(text: &str) -> Result<Way, String> {
    match text {
        "kill" => Ok(Way::Kill),
        "freeze" => Ok(Way::Freeze),
        "terminate" => Ok(Way::Terminate),
        "roll" => Ok(Way::Roll),
        _ => Err("expected kill, freeze, terminate or roll".to_owned()),
    }
}

#[tokio::main]
async fn main() {
    let Options { runs, losses, way, thinks_ms, from, callers } = Options::parse();
    if let Some(callers) = callers {
        assert_eq!(way, Way::Roll, "short runs are measured with --way roll");
        println!("{:#?}", rolling::measure(callers, losses).await);
        return;
    }
    let plan = Plan { runs, losses, way, thinks: Duration::from_millis(thinks_ms), from };
    println!("{:#?}", measure(&plan).await);
}
