//! Replicas over one database: a fixed budget of seeds, and proof that what is checked can fail.

use std::collections::BTreeMap;
use std::ops::Range;

use agentloop_sim::cluster::{ClusterOptions, PlantedClusterBug, simulate_cluster};

/// Things that happen in every range of seeds, and their least number.
const HAPPENS: [(&str, u64); 8] = [
    ("events", 1_000),
    ("owners fenced", 10),
    ("shards released", 10),
    ("shards kept", 10),
    ("commits found after a lost response", 10),
    ("connections terminated", 10),
    ("stale frames dropped", 10),
    ("grants given back", 10),
];

/// Things that happen where the database goes back.
const HAPPENS_GOING_BACK: [(&str, u64); 5] = [
    ("events", 1_000),
    ("times that the database went back", 100),
    ("claims that were lost", 10),
    ("claims that were lost before a commit", 10),
    ("replicas whose commits were lost", 10),
];

#[track_caller]
fn hold(seeds: Range<u64>, options: ClusterOptions, happens: &[(&str, u64)]) {
    let flag = if options.goes_back { " --goes-back" } else { "" };
    let (mut counts, mut takeovers) = (BTreeMap::<&str, u64>::new(), 0);
    for seed in seeds.clone() {
        let outcome = simulate_cluster(seed, options);
        assert!(
            outcome.problems.is_empty(),
            "seed {seed} fails (cargo run -p agentloop-sim -- --cluster{flag} --seed {seed} --trace): {:#?}\n{}",
            outcome.problems,
            outcome.tail.join("\n")
        );
        outcome.counts.iter().for_each(|(what, times)| *counts.entry(what).or_default() += times);
        takeovers += outcome.takeovers.len();
    }
    // A fault that no seed meets any more would prove nothing.
    for (what, least) in happens {
        assert!(counts.get(what).is_some_and(|times| times > least), "more than {least} {what}: {counts:?}");
    }
    assert!(takeovers > 10, "shards get new owners after failures: {takeovers}");
    println!("seeds {seeds:?}: {counts:?}, {takeovers} takeovers");
}

#[test]
fn one_owner_at_a_time_whatever_breaks() {
    hold(0..60, ClusterOptions::default(), &HAPPENS);
}

#[test]
fn more_of_the_same_beside_it() {
    hold(60..120, ClusterOptions::default(), &HAPPENS);
}

#[test]
fn one_owner_at_a_time_although_the_database_goes_back() {
    let options = ClusterOptions { goes_back: true, ..ClusterOptions::default() };
    hold(0..60, options, &HAPPENS_GOING_BACK);
}

#[test]
fn the_same_seed_is_the_same_history() {
    for seed in [1, 2, 7] {
        let [one, two] = [seed, seed].map(|seed| simulate_cluster(seed, ClusterOptions::default()));
        assert!(one.lines > 10, "seed {seed} does something: {} lines", one.lines);
        assert_eq!((one.digest, one.lines, one.counts), (two.digest, two.lines, two.counts), "seed {seed}");
    }
}

/// Within these seeds, a fault that is built in is found, and for the right reason.
#[track_caller]
fn finds(bug: PlantedClusterBug, symptom: &str) {
    finds_with(ClusterOptions { bug: Some(bug), ..Default::default() }, symptom);
}

#[track_caller]
fn finds_with(options: ClusterOptions, symptom: &str) {
    let bug = options.bug;
    let found = (0..240).find_map(|seed| {
        let outcome = simulate_cluster(seed, options);
        outcome.problems.into_iter().find(|problem| problem.contains(symptom)).map(|problem| (seed, problem))
    });
    assert!(found.is_some(), "{bug:?} is not found");
    println!("{bug:?}: {found:?}");
}

#[test]
fn a_fence_that_is_ignored_is_found() {
    finds(PlantedClusterBug::FenceIgnored, "a stale write lands");
}

#[test]
fn a_lease_that_is_not_checked_is_found() {
    finds(PlantedClusterBug::LeaseNotChecked, "after its lease");
}

#[test]
fn beats_of_a_server_that_stands_still_are_found() {
    finds(PlantedClusterBug::BeatWithoutPulse, "nobody serves shard");
}

#[test]
fn room_that_is_not_given_back_is_found() {
    finds(PlantedClusterBug::GrantNotGivenBack, "keeps room");
}

#[test]
fn a_route_that_is_never_refreshed_is_found() {
    finds(PlantedClusterBug::RouteNeverRefreshed, "waits at place");
}

#[test]
fn a_claim_that_is_not_fenced_is_found() {
    finds(PlantedClusterBug::ClaimNotFenced, "is fenced and claims shards");
}

#[test]
fn a_ghost_of_a_broken_connection_is_found() {
    finds(PlantedClusterBug::ConnectionNotChecked, "conflicts with itself");
}

#[test]
fn a_receiver_that_takes_old_frames_is_found() {
    finds(PlantedClusterBug::TermsNotChecked, "after term");
}

#[test]
fn beats_of_a_replica_that_is_marked_are_found() {
    finds(PlantedClusterBug::BeatIgnoresMark, "after its lease");
}

#[test]
fn shards_that_are_freed_before_the_lane_are_found() {
    finds(PlantedClusterBug::FreedBeforeTheLane, "a stale write lands");
}

#[test]
fn claims_that_do_not_look_again_are_found() {
    finds(PlantedClusterBug::ClaimFromSnapshot, "a stale write lands");
}

#[test]
fn kept_shards_that_nobody_serves_are_found() {
    finds(PlantedClusterBug::KeptShedAtOnce, "not served in between");
}

#[test]
fn owners_of_claims_that_are_lost_are_found() {
    let bug = Some(PlantedClusterBug::LostClaimsUnseen);
    finds_with(ClusterOptions { bug, goes_back: true, ..Default::default() }, "has two living owners");
}

#[test]
fn commits_of_claims_that_are_lost_are_found() {
    let bug = Some(PlantedClusterBug::ClaimsNotLookedFor);
    finds_with(ClusterOptions { bug, goes_back: true, ..Default::default() }, "a stale write lands");
}

#[test]
fn releases_that_overtake_commits_are_found() {
    finds(PlantedClusterBug::ReleaseOutsideLane, "a stale write lands");
}

#[test]
fn commits_that_are_sent_again_without_a_look_are_found() {
    finds(PlantedClusterBug::ResentWithoutLookUp, "conflicts with itself");
}

#[test]
fn a_transaction_that_holds_a_lane_for_good_is_found() {
    finds(PlantedClusterBug::HeldLaneNotEnded, "nobody serves shard");
}

#[test]
fn a_fence_that_nobody_completes_is_found() {
    finds(PlantedClusterBug::FenceLeftToBeginner, "nobody serves shard");
}

#[test]
fn shards_that_a_fenced_owner_keeps_are_found() {
    finds(PlantedClusterBug::FencedKeepShards, "nobody serves shard");
}

#[test]
fn needless_takeovers_when_the_database_comes_back_are_found() {
    finds(PlantedClusterBug::NoQuietAfterGap, "after the database came back");
}

#[test]
fn room_that_a_fenced_owner_keeps_is_found() {
    finds(PlantedClusterBug::FencedKeepRoom, "keeps room");
}
