//! What a call costs that a replica sends on to the owner: `cargo build --profile profiling -p agentloop-cli -p agentloop-tests
//! --bins --examples`, then `tests/with-postgres target/profiling/examples/forwarded`.

#[tokio::main]
async fn main() {
    println!("{:#?}", agentloop_tests::forwarded::measure().await);
}
