//! What watchers of a long list cost: `cargo run -p agentloop-tests --example watched -- 10000`, after `cargo build -p
//! agentloop-cli -p agentloop-tests --bins --examples`.

#[tokio::main]
async fn main() {
    let runs = std::env::args().nth(1).and_then(|runs| runs.parse().ok()).unwrap_or(10_000);
    let cost = agentloop_tests::watched::measure(runs).await;
    println!("{cost:#?}");
}
