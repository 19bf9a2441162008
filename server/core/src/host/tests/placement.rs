//! Placement of calls on hosts, and the queues of tools.

use std::cmp::Reverse;

use super::bench::{Bench, call};
use crate::host::{FleetInput, FleetOptions};
use crate::time::Millis;

#[test]
fn room_is_kept_for_the_call_that_sought_it() {
    let mut bench = Bench::new();
    assert_eq!(bench.join(1, "h", 1, &["t"]), ["c1 joined [ok]", "served t"]);
    assert_eq!(bench.seek("a/1.0", "t"), ["a/1.0: granted h"]);
    assert_eq!(bench.seek("b/1.0", "t"), [""; 0]);
    assert_eq!(bench.seek("a/1.0", "t"), ["a/1.0: granted h"], "seeking twice is seeking once");
    assert_eq!(bench.offer("a/1.0", "h", "t"), ["c1 <- call a/1.0#1"]);
}

#[test]
fn room_that_is_given_up_goes_to_the_next() {
    let mut bench = Bench::new();
    bench.join(1, "h", 1, &["t"]);
    bench.seek("a/1.0", "t");
    bench.seek("b/1.0", "t");
    assert_eq!(bench.input(FleetInput::StopSeeking { call: call("a/1.0") }), ["b/1.0: granted h"]);
    assert_eq!(bench.input(FleetInput::StopSeeking { call: call("a/1.0") }), [""; 0]);
}

#[test]
fn each_call_uses_a_credit_of_its_stream_however_it_ends() {
    let mut bench = Bench::new();
    bench.join(1, "h", 1, &["t"]);
    bench.running(1, "h", "a/1.0", "t");
    bench.seek("b/1.0", "t");
    assert_eq!(bench.answer(1, "a/1.0"), ["answer a/1.0#1 succeeded by h for c1"]);
    assert_eq!(bench.handled("a/1.0"), [""; 0]);
    assert_eq!(bench.credit(1, 1), [""; 0], "repeating it is harmless");
    assert_eq!(bench.credit(1, 0), [""; 0], "less takes nothing back");
    assert_eq!(bench.credit(1, 2), ["b/1.0: granted h"]);
    assert_eq!(bench.credit(1, 3), [""; 0]);
}

#[test]
fn the_least_loaded_host_wins() {
    let mut bench = Bench::new();
    bench.join(1, "big", 9, &["t"]);
    bench.join(2, "small", 1, &["t"]);
    assert_eq!(bench.seek("a/1.0", "t"), ["a/1.0: granted big"], "of equals, the one with most room");
    assert_eq!(bench.seek("a/1.1", "t"), ["a/1.1: granted small"]);
    assert_eq!(bench.seek("a/1.2", "t"), ["a/1.2: granted big"], "small has no room left");
}

#[test]
fn among_many_hosts_it_is_the_same() {
    let mut bench = Bench::new();
    // The calls, the room and the name of each.
    let mut hosts: Vec<(usize, Reverse<u64>, String)> =
        (0..40).map(|at| (0, Reverse(1 + at % 5), format!("h{at:02}"))).collect();
    for (at, (_, Reverse(room), host)) in (1..).zip(&hosts) {
        bench.join(at, host, *room, &["t"]);
    }
    bench.join(99, "another", 99, &["u"]);
    for index in 0..120 {
        hosts.retain(|(_, Reverse(room), _)| *room > 0);
        let best = hosts.iter_mut().min().expect("there is room for so many");
        let id = format!("a/1.{index}");
        assert_eq!(bench.seek(&id, "t"), [format!("{id}: granted {}", best.2)]);
        (best.0, best.1) = (best.0 + 1, Reverse(best.1.0 - 1));
    }
    assert_eq!(bench.seek("a/2.0", "t"), [""; 0], "every room is taken");
}

#[test]
fn only_hosts_of_the_tool_count() {
    let mut bench = Bench::new();
    bench.join(1, "a", 9, &["t"]);
    bench.join(2, "b", 9, &["u"]);
    for index in 0..3 {
        let id = format!("a/1.{index}");
        assert_eq!(bench.seek(&id, "u"), [format!("{id}: granted b")]);
    }
}

#[test]
fn a_tools_own_bound_holds_on_each_host() {
    let mut bench = Bench::new();
    bench.join(1, "h", 9, &["t*1", "u"]);
    bench.running(1, "h", "a/1.0", "t");
    assert_eq!(bench.seek("a/1.1", "t"), [""; 0]);
    assert_eq!(bench.seek("a/1.2", "u"), ["a/1.2: granted h"]);
    assert_eq!(bench.join(2, "g", 9, &["t*1"]), ["c2 joined [ok]", "a/1.1: granted g"]);
    bench.seek("a/1.3", "t");
    assert_eq!(
        bench.answer(1, "a/1.0"),
        ["answer a/1.0#1 succeeded by h for c1", "a/1.3: granted h"],
        "room comes with the answer, not with its being recorded"
    );
}

#[test]
fn runs_and_tools_are_served_round_robin() {
    let mut bench = Bench::new();
    bench.join(1, "h", 0, &["t", "u"]);
    for (id, tool) in
        [("a/1.0", "t"), ("a/1.1", "t"), ("a/1.2", "t"), ("b/1.0", "t"), ("c/1.0", "u"), ("c/1.1", "u")]
    {
        assert_eq!(bench.seek(id, tool), [""; 0]);
    }
    assert_eq!(
        bench.credit(1, 6),
        [
            "a/1.0: granted h",
            "c/1.0: granted h",
            "b/1.0: granted h",
            "c/1.1: granted h",
            "a/1.1: granted h",
            "a/1.2: granted h"
        ]
    );
}

#[test]
fn a_full_queue_denies() {
    let mut bench = Bench::with(FleetOptions { queue_per_tool: 2, ..FleetOptions::default() });
    bench.join(1, "h", 0, &["t", "u"]);
    bench.seek("a/1.0", "t");
    bench.seek("a/1.1", "t");
    assert_eq!(bench.seek("b/1.0", "t"), ["b/1.0: denied too many"]);
    assert_eq!(bench.seek("b/1.1", "u"), [""; 0], "other tools have their own queue");
    bench.stop_seeking("a/1.0");
    assert_eq!(bench.seek("b/1.0", "t"), [""; 0]);
}

#[test]
fn an_unknown_tool_is_denied_at_once() {
    let mut bench = Bench::new();
    assert_eq!(bench.seek("a/1.0", "t"), ["a/1.0: denied serves"]);
    bench.assert_empty();
}

#[test]
fn a_known_tool_without_a_host_is_waited_for() {
    let mut bench = Bench::new();
    bench.input(FleetInput::Remember { tools: vec!["t".into()] });
    assert_eq!(bench.seek("a/1.0", "t"), [""; 0]);
    bench.pass(Millis::secs(20));
    assert_eq!(bench.seek("a/1.1", "t"), [""; 0]);
    assert_eq!(bench.pass(Millis::secs(9)), [""; 0]);
    assert_eq!(bench.pass(Millis::secs(1)), ["a/1.0: denied connected"]);
    assert_eq!(bench.join(1, "h", 5, &["t"]), ["c1 joined [ok]", "served t", "a/1.1: granted h"]);
}

#[test]
fn the_wait_for_a_host_begins_when_the_last_one_goes() {
    let mut bench = Bench::new();
    bench.join(1, "h", 0, &["t"]);
    bench.join(2, "g", 0, &["t"]);
    bench.seek("a/1.0", "t");
    assert_eq!(bench.disconnect(1), [""; 0]);
    bench.pass(Millis::secs(10));
    assert_eq!(bench.disconnect(2), ["unserved t"]);
    assert_eq!(bench.pass(Millis::secs(29)), [""; 0]);
    bench.join(1, "h", 0, &["t"]);
    bench.heartbeat(1, &[]);
    assert_eq!(bench.pass(Millis::secs(10)), [""; 0], "a host without room is a host");
    bench.disconnect(1);
    assert_eq!(bench.pass(Millis::secs(30)), ["a/1.0: denied connected"]);
    bench.assert_empty();
}

#[test]
fn a_tool_that_nobody_needs_can_be_forgotten() {
    let mut bench = Bench::new();
    let forget = || FleetInput::Forget { tool: "t".into() };
    bench.join(1, "h", 1, &["t"]);
    bench.input(forget());
    assert_eq!(bench.seek("a/1.0", "t"), ["a/1.0: granted h"], "it is served");
    bench.disconnect(1);
    bench.input(FleetInput::StopSeeking { call: call("a/1.0") });
    bench.input(forget());
    assert_eq!(bench.seek("a/1.0", "t"), ["a/1.0: denied serves"]);
}

#[test]
fn tenants_share_nothing() {
    let mut bench = Bench::new();
    bench.join(1, "h", 5, &["t"]);
    bench.running(1, "h", "a/1.0", "t");
    let other = crate::id::TenantId::parse("other").unwrap();
    let mut there = |input| bench.fleet.handle(&other, input, bench.now);
    let denied = there(FleetInput::Seek { call: call("a/1.0"), tool: "t".into(), on: None });
    assert_eq!(denied.iter().map(super::bench::show).collect::<Vec<_>>(), ["a/1.0: denied serves"]);
    assert_eq!(
        there(FleetInput::Cancel {
            call: super::bench::call_ref("a/1.0"),
            cause: crate::host::frame::CancelCause::Settled,
            reason: String::new()
        }),
        []
    );
    assert_eq!(there(FleetInput::Release { run: call("a/1.0").run }), []);
    assert_eq!(bench.fleet.hosts(&other), []);
    assert_eq!(bench.answer(1, "a/1.0"), ["answer a/1.0#1 succeeded by h for c1"]);
}
