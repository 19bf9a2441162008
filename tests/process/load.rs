//! Processes that are killed and stopped at random while many sessions are at work.

use agentloop_tests::load::brain::Temper;
use agentloop_tests::load::world::{Load, Plan};
use agentloop_tests::process::times;

const TEMPER: Temper = Temper { fails: 6, thinks_ms: 40 };

/// Faults for each seed.
const FAULTS: u64 = 8;

async fn survives(seed: u64) {
    let plan = Plan { seed, sessions: 24, hosts: 2, temper: TEMPER };
    let mut load = Load::start(&plan).await;
    for _ in 0..FAULTS * times() {
        load.suffer(800).await;
    }
    let counts = load.finish().await;
    assert!(counts.of("events seen by subscribers") > 500, "there was a load");
}

#[tokio::test]
async fn at_random() {
    survives(1).await;
}

#[tokio::test]
async fn at_random_again() {
    survives(2).await;
}
