//! Parks very many runs and says what they cost: `cargo run --profile profiling -p agentloop-tests --example parked --
//! 100000`, after `cargo build --profile profiling -p agentloop-cli -p agentloop-tests --bins --examples`. With replicas:
//! `tests/with-postgres target/profiling/examples/parked 100000 --replicas 3`.

use clap::Parser;

#[derive(Parser)]
struct Options {
    /// Number of runs that are parked for an approval.
    #[arg(default_value_t = 100_000)]
    runs: u64,
    /// Number of replicas over the PostgreSQL database of `AGENTLOOP_TEST_POSTGRES`; 0: one server with a file of its own.
    #[arg(long, default_value_t = 0)]
    replicas: usize,
}

#[tokio::main]
async fn main() {
    match Options::parse() {
        Options { runs, replicas: 0 } => println!("{:#?}", agentloop_tests::parked::measure(runs).await),
        Options { runs, replicas } => {
            println!("{:#?}", agentloop_tests::parked_replicas::measure(runs, replicas).await);
        }
    }
}
