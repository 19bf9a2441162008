//! Parks very many runs and says what they cost: `cargo run --profile profiling -p agentloop-tests --example parked --
//! 100000`, after `cargo build --profile profiling -p agentloop-cli -p agentloop-tests --bins --examples`.

#[tokio::main]
async fn main() {
    let runs = std::env::args().nth(1).and_then(|runs| runs.parse().ok()).unwrap_or(100_000);
    let cost = agentloop_tests::parked::measure(runs).await;
    println!("{cost:#?}");
}
