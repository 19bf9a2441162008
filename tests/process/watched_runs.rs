//! The cost of watchers of a long list: `cargo run -p agentloop-tests --example watched -- 10000 3`, after `cargo build -p
//! agentloop-cli -p agentloop-tests --bins --examples`. The numbers are those of the runs and of the rounds; a round takes half
//! a minute and 3,000 runs.

#[tokio::main]
async fn main() {
    let mut numbers = std::env::args().skip(1).map(|number| number.parse().expect("a number"));
    let (runs, rounds) = (numbers.next().unwrap_or(10_000), numbers.next().unwrap_or(3));
    let cost = agentloop_tests::watched::measure(runs, rounds).await;
    println!("{cost:#?}");
}
