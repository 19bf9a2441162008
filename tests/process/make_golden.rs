//! Makes the golden database of a new version of the schema: `cargo run -p agentloop-tests --example make-golden`.

#[tokio::main]
async fn main() {
    agentloop_tests::golden::make().await;
}
