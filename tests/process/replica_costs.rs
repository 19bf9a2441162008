//! The cost of a run at each process of several replicas: `cargo build --profile profiling -p agentloop-cli -p agentloop-bench
//! -p agentloop-tests --bins --examples`, then `tests/with-postgres target/profiling/examples/replica-costs`.

#[tokio::main]
async fn main() {
    agentloop_tests::replica_costs::measure(|what, spent| println!("{what}: {spent}")).await;
}
