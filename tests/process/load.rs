//! Processes that are killed and stopped at random while many sessions are at work.

use std::time::{Duration, Instant};

use agentloop_tests::load::brain::Temper;
use agentloop_tests::load::running::{Load, Plan};
use agentloop_tests::load::site::Fault;
use agentloop_tests::process::times;

use crate::support::eventually;

const TEMPER: Temper = Temper { fails: 6, thinks_ms: 40 };

const EVENTS: &str = "events seen by subscribers";
/// Faults for each seed.
const FAULTS: u64 = 8;

async fn survives(seed: u64) {
    let plan = Plan { seed, sessions: 24, hosts: 2, temper: TEMPER, replicas: None };
    let mut load = Load::start(&plan).await;
    for _ in 0..FAULTS * times() {
        load.suffer(800).await;
    }
    let counts = load.finish().await;
    assert!(counts.of(EVENTS) > 500, "there was a load");
}

#[tokio::test]
async fn at_random() {
    survives(1).await;
}

#[tokio::test]
async fn at_random_again() {
    survives(2).await;
}

/// Stops well in the middle of much, within its grace time of ten seconds, as often as it is asked to.
#[tokio::test]
async fn told_to_stop_under_load() {
    let mut load =
        Load::start(&Plan { seed: 3, sessions: 16, hosts: 2, temper: TEMPER, replicas: None }).await;
    for _ in 0..3 {
        let seen = load.counts.of(EVENTS);
        eventually("work", || async { (load.counts.of(EVENTS) > seen + 100).then_some(()) }).await;
        let begin = Instant::now();
        load.site.suffer(Fault::Terminate).await;
        assert!(begin.elapsed() < Duration::from_secs(15), "it stops and starts in {:?}", begin.elapsed());
        load.check_workers();
    }
    load.finish().await;
}
