//! The cost of a call that a replica sends on to the owner: `cargo build --profile profiling -p agentloop-cli -p agentloop-tests
//! --bins --examples`, then `tests/with-postgres target/profiling/examples/forwarded 32`, with the number of callers. A second number
//! is that of the rounds of runs at one replica and at three, 5 without it.

#[tokio::main]
async fn main() {
    let number = |at| std::env::args().nth(at).and_then(|number| number.parse().ok());
    let (callers, rounds) = (number(1).unwrap_or(32), number(2).unwrap_or(5));
    println!("{:#?}", agentloop_tests::forwarded::measure(callers, rounds).await);
}
