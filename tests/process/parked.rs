//! Runs that wait for a human cost next to nothing, and no time at a start.

use std::time::Duration;

use agentloop_tests::parked;
use agentloop_tests::process::times;

#[tokio::test]
async fn many_parked_runs_are_cheap() {
    let cost = parked::measure(4_000 * times()).await;
    println!("{cost:#?}");
    // So few of them are told from the noise of the allocator only roughly.
    assert!(cost.resident_bytes < 2_048.0, "{cost:?}");
    assert!(cost.disk_bytes < 32_768.0, "{cost:?}");
    assert!(cost.restart < Duration::from_secs(5), "{cost:?}");
}
