//! The wait of a quiet tenant beside a noisy one, at the writer's queue and through a whole server: `cargo build --profile
//! profiling -p agentloop-cli -p agentloop-tests --bins --examples`, then `target/profiling/examples/fairness`, or
//! `tests/with-postgres target/profiling/examples/fairness`.

use agentloop_tests::fairness::{Wait, measure, writes};

#[tokio::main]
async fn main() {
    writes::measure().await;
    for wait in Wait::ALL {
        println!("{wait:?}:\n{}", Box::pin(measure(wait)).await);
    }
}
