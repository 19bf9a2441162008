//! Runs that wait for a human cost next to nothing, and no time at a start.

use std::time::Duration;

use agentloop_tests::parked;
use agentloop_tests::process::times;

#[tokio::test]
async fn many_parked_runs_are_cheap() {
    let cost = parked::measure(2_000 * times()).await;
    println!("{cost:#?}");
    // With so few of them, what grows is mostly the database's caches, which have a bound; a run that kept its task and
    // its history would still be seen.
    assert!(cost.resident_bytes < 8_192.0, "{cost:?}");
    assert!(cost.disk_bytes < 32_768.0, "{cost:?}");
    assert!(cost.restart < Duration::from_secs(5), "{cost:?}");
}
