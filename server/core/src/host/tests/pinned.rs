//! Calls that only one host may get, and their runtimes.

use super::bench::{Bench, call, host, joining, request};
use crate::host::{ConnectionId, FleetInput, FleetOptions, HostJoin};
use crate::id::RuntimeId;
use crate::time::Millis;
use crate::tool::Runtime;

fn two_hosts() -> Bench {
    let mut bench = Bench::new();
    bench.join(1, "a", 1, &["t"]);
    bench.join(2, "b", 9, &["t"]);
    bench
}

#[test]
fn a_call_that_needs_one_host_gets_that_one_or_waits_for_its_room() {
    let mut bench = two_hosts();
    assert_eq!(bench.seek_on("r/1.0", "t", "a"), ["r/1.0: granted a"]);
    assert_eq!(bench.seek_on("r/1.1", "t", "a"), [""; 0], "b has room, but not what it needs");
    assert_eq!(bench.seek_on("r/1.1", "t", "a"), [""; 0], "seeking twice is seeking once");
    assert_eq!(bench.seek("s/1.0", "t"), ["s/1.0: granted b"]);
    assert_eq!(bench.input(FleetInput::StopSeeking { call: call("r/1.0") }), ["r/1.1: granted a"]);
}

#[test]
fn a_pinned_call_comes_before_queued_ones() {
    let mut bench = Bench::new();
    bench.join(1, "a", 1, &["t"]);
    bench.running(1, "a", "s/1.0", "t");
    bench.seek("s/1.1", "t");
    bench.seek_on("r/1.0", "t", "a");
    assert_eq!(bench.credit(1, 2), ["r/1.0: granted a"]);
    assert_eq!(bench.credit(1, 3), ["s/1.1: granted a"]);
}

#[test]
fn a_host_that_is_away_has_the_grace_period_to_come_back() {
    let mut bench = two_hosts();
    bench.disconnect(1);
    assert_eq!(bench.seek_on("r/1.0", "t", "a"), [""; 0]);
    assert_eq!(bench.seek_on("r/1.1", "t", "a"), [""; 0]);
    assert_eq!(bench.join(3, "a", 1, &["t"]), ["c3 joined [ok]", "r/1.0: granted a"]);
    assert_eq!(bench.disconnect(3), [""; 0]);
    assert_eq!(bench.pass(Millis::secs(9)), [""; 0]);
    assert_eq!(bench.pass(Millis::secs(2)), ["r/1.1: granted b"], "what it needed is lost");
}

#[test]
fn a_host_whose_replica_broke_off_is_waited_for_longer() {
    let mut bench = two_hosts();
    assert_eq!(bench.seek_on("r/1.0", "t", "a"), ["r/1.0: granted a"]);
    assert_eq!(bench.seek_on("r/1.1", "t", "a"), [""; 0]);
    bench.disconnect(1);
    bench.link_lost("a");
    for _ in 0..2 {
        assert_eq!(bench.pass(Millis::secs(10)), [""; 0]);
        bench.input(FleetInput::Touch { connection: ConnectionId(2) });
    }
    assert_eq!(bench.pass(Millis(4_999)), [""; 0]);
    assert_eq!(bench.pass(Millis(1)), ["r/1.1: granted b"], "what it needed is lost");
}

#[test]
fn a_host_that_does_not_take_such_calls_any_more_is_not_waited_for() {
    let mut bench = Bench::new();
    bench.join(1, "a", 1, &["t"]);
    bench.running(1, "a", "r/1.0", "t");
    bench.join(2, "b", 9, &["t"]);
    bench.seek_on("r/1.1", "t", "a");
    let tools = joining(1, "a", 1, &["u"]).tools;
    let replaced = bench.input(FleetInput::ReplaceTools { connection: crate::host::ConnectionId(1), tools });
    assert_eq!(replaced, ["c1 tools [ok]", "served u", "r/1.1: granted b"]);
    assert_eq!(bench.seek_on("r/1.2", "t", "a"), ["r/1.2: granted b"]);
}

#[test]
fn calls_pinned_to_one_host_are_bounded() {
    let mut bench = Bench::with(FleetOptions { queue_per_tool: 1, ..FleetOptions::default() });
    bench.join(1, "a", 0, &["t"]);
    assert_eq!(bench.seek_on("r/1.0", "t", "a"), [""; 0]);
    assert_eq!(bench.seek_on("r/1.1", "t", "a"), ["r/1.1: denied too many"]);
    assert_eq!(bench.seek_on("r/1.2", "t", "nobody"), [""; 0]);
    assert_eq!(bench.seek_on("r/1.3", "t", "nobody"), ["r/1.3: denied too many"]);
    bench.pass(Millis::secs(60));
}

fn needing(text: &str, on: &str, number: u32) -> FleetInput {
    let mut request = request(text, on, "t");
    let id = RuntimeId { run: request.call.call.run.clone(), number };
    request.runtime = Some(Runtime { id, init_data: String::new(), hints: String::new() });
    FleetInput::Offer { request, unfit: None }
}

#[test]
fn a_runtime_is_opened_once_before_its_first_call_and_closed_in_the_end() {
    let mut bench = Bench::new();
    bench.join(1, "a", 9, &["t"]);
    bench.seek("r/1.0", "t");
    assert_eq!(bench.input(needing("r/1.0#1", "a", 1)), ["c1 <- open r/rt1", "c1 <- call r/1.0#1"]);
    bench.seek("r/1.1", "t");
    assert_eq!(bench.input(needing("r/1.1#1", "a", 1)), ["c1 <- call r/1.1#1"]);
    let close = |name| FleetInput::CloseRuntime { host: host(name), runtime: "r/rt1".to_owned() };
    assert_eq!(bench.input(close("a")), ["c1 <- close r/rt1"]);
    assert_eq!(bench.input(close("nobody")), [""; 0]);
    bench.seek("r/1.2", "t");
    assert_eq!(bench.input(needing("r/1.2#1", "a", 1)), ["c1 <- open r/rt1", "c1 <- call r/1.2#1"]);
}

#[test]
fn a_runtime_that_no_frame_of_the_host_holds_is_told_to_the_model() {
    let large = |text: &str, hints: usize| {
        let FleetInput::Offer { mut request, .. } = needing(text, "a", 1) else {
            unreachable!("it is an offer")
        };
        let runtime = request.runtime.as_mut().expect("it needs one");
        (runtime.init_data, runtime.hints) = ("x".repeat(2048), "x".repeat(hints));
        FleetInput::Offer { request, unfit: None }
    };
    let mut bench = Bench::new();
    bench.join(1, "a", 9, &["t"]);
    bench.seek("r/1.0", "t");
    assert_eq!(bench.input(large("r/1.0#1", 1025)), ["answer r/1.0#1 rejected by a for nobody"]);
    bench.seek("r/1.1", "t");
    assert_eq!(bench.input(large("r/1.1#1", 1024)), ["c1 <- open r/rt1", "c1 <- call r/1.1#1"]);
    bench.seek("r/1.2", "t");
    assert_eq!(bench.input(large("r/1.2#1", 1025)), ["c1 <- call r/1.2#1"], "it is open");
}

#[test]
fn a_host_that_comes_back_with_its_runtime_is_not_asked_to_open_it_again() {
    let mut bench = Bench::new();
    let runtimes = vec!["r/rt1".to_owned()];
    bench.input(FleetInput::Join(Box::new(HostJoin { runtimes, ..joining(1, "a", 9, &["t"]) })));
    bench.seek_on("r/1.0", "t", "a");
    assert_eq!(bench.input(needing("r/1.0#1", "a", 1)), ["c1 <- call r/1.0#1"]);
    bench.seek_on("r/1.1", "t", "a");
    assert_eq!(bench.input(needing("r/1.1#1", "a", 2)), ["c1 <- open r/rt2", "c1 <- call r/1.1#1"]);
}
