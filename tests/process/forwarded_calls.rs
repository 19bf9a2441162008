//! The cost of a call that a replica sends on to the owner: `cargo build --profile profiling -p agentloop-cli -p agentloop-tests
//! --bins --examples`, then `tests/with-postgres target/profiling/examples/forwarded 32`, with the number of callers.

#[tokio::main]
async fn main() {
    let callers = std::env::args().nth(1).and_then(|callers| callers.parse().ok()).unwrap_or(32);
    println!("{:#?}", agentloop_tests::forwarded::measure(callers).await);
}
