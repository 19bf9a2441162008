//! Hosts connect, disconnect, reconnect and are lost.

use super::bench::{Bench, call_ref, claim, joining, tool};
use crate::host::frame::{Disposition, HostFrame};
use crate::host::{CloseReason, ConnectionId, FleetInput, FleetOutput, HostHealth};
use crate::id::TenantId;
use crate::limits::CALLS_PER_HOST_MAX;
use crate::time::Millis;

#[test]
fn a_silent_host_is_lost_and_its_calls_after_the_grace_period() {
    let mut bench = Bench::new();
    bench.join(1, "h", 8, &["t"]);
    bench.running(1, "h", "a/1.0", "t");
    bench.pass(Millis::secs(14));
    bench.heartbeat(1, &["a/1.0"]);
    assert_eq!(bench.pass(Millis(14_999)), [""; 0]);
    assert_eq!(bench.pass(Millis(1)), ["c1 closed Silent", "unserved t"]);
    assert_eq!(bench.pass(Millis(9_999)), [""; 0]);
    assert_eq!(bench.pass(Millis(1)), ["a/1.0: lost #1 ran Maybe"]);
    bench.assert_empty();
}

#[test]
fn any_frame_is_a_sign_of_life() {
    let mut bench = Bench::new();
    bench.join(1, "h", 8, &["t"]);
    for _ in 0..5 {
        bench.pass(Millis::secs(10));
        assert_eq!(bench.frame(1, HostFrame::Pong), [""; 0]);
    }
    for _ in 0..5 {
        bench.pass(Millis::secs(10));
        assert_eq!(bench.input(FleetInput::Touch { connection: ConnectionId(1) }), [""; 0]);
    }
}

#[test]
fn a_host_that_comes_back_keeps_its_calls() {
    let mut bench = Bench::new();
    bench.join(1, "h", 8, &["t"]);
    bench.running(1, "h", "a/1.0", "t");
    bench.disconnect(1);
    bench.pass(Millis::secs(9));
    let lines = bench.rejoin(2, "h", &["t"], vec![claim("a/1.0", false, Disposition::Continue)]);
    assert_eq!(lines, ["c2 joined [ok] a/1.0#1 Continue", "served t", "a/1.0: accepted #1 h"]);
    bench.heartbeat(2, &["a/1.0"]);
    assert_eq!(bench.pass(Millis::secs(10)), [""; 0]);
    assert_eq!(bench.answer(2, "a/1.0"), ["answer a/1.0#1 succeeded by h for c2"]);
}

#[test]
fn a_host_whose_replica_broke_off_has_its_lease_more_to_come_back() {
    let mut bench = Bench::new();
    bench.join(1, "h", 8, &["t"]);
    bench.running(1, "h", "a/1.0", "t");
    bench.disconnect(1);
    bench.pass(Millis(100));
    bench.link_lost("h");
    assert_eq!(bench.pass(Millis(24_999)), [""; 0]);
    assert_eq!(bench.pass(Millis(1)), ["a/1.0: lost #1 ran Maybe"]);
    bench.assert_empty();
}

#[test]
fn a_host_that_is_back_before_its_link_was_found_lost_is_left_alone() {
    let mut bench = Bench::new();
    bench.join(1, "h", 8, &["t"]);
    bench.running(1, "h", "a/1.0", "t");
    bench.disconnect(1);
    bench.rejoin(2, "h", &["t"], vec![claim("a/1.0", false, Disposition::Continue)]);
    bench.link_lost("h");
    for _ in 0..3 {
        bench.pass(Millis::secs(10));
        bench.heartbeat(2, &["a/1.0"]);
    }
    assert_eq!(bench.answer(2, "a/1.0"), ["answer a/1.0#1 succeeded by h for c2"]);
    bench.link_lost("unknown");
}

#[test]
fn calls_in_hand_use_no_credit_of_the_new_stream() {
    let mut bench = Bench::new();
    bench.join(1, "h", 1, &["t"]);
    bench.running(1, "h", "a/1.0", "t");
    bench.disconnect(1);
    let mut joining = joining(2, "h", 1, &["t"]);
    joining.claims = vec![claim("a/1.0", false, Disposition::Continue)];
    bench.input(FleetInput::Join(Box::new(joining)));
    assert_eq!(bench.seek("b/1.0", "t"), ["b/1.0: granted h"]);
}

#[test]
fn a_host_that_comes_back_without_a_call_has_lost_it() {
    let mut bench = Bench::new();
    bench.join(1, "h", 8, &["t"]);
    bench.running(1, "h", "a/1.0", "t");
    bench.seek("a/1.1", "t");
    bench.offer("a/1.1", "h", "t");
    bench.disconnect(1);
    let lines = bench.join(2, "h", 8, &["t"]);
    assert_eq!(
        lines,
        ["c2 joined [ok]", "served t", "a/1.0: lost #1 ran Maybe", "a/1.1: lost #1 ran Maybe"],
        "whether it got the second one, nobody knows"
    );
}

#[test]
fn the_runs_verdict_on_a_call_in_hand_stands() {
    for disposition in [Disposition::Stop, Disposition::AlreadyRecorded] {
        let mut bench = Bench::new();
        bench.join(1, "h", 8, &["t"]);
        bench.running(1, "h", "a/1.0", "t");
        bench.disconnect(1);
        let lines = bench.rejoin(2, "h", &["t"], vec![claim("a/1.0", true, disposition)]);
        assert_eq!(lines, [format!("c2 joined [ok] a/1.0#1 {disposition:?}"), "served t".into()]);
        bench.disconnect(2);
        bench.assert_empty();
    }
}

#[test]
fn a_call_that_went_another_way_in_the_meantime_is_stopped() {
    let mut bench = Bench::new();
    bench.join(1, "h", 8, &["t"]);
    bench.join(2, "g", 8, &["t"]);
    bench.running(2, "g", "a/1.0#2", "t");
    bench.seek("b/1.0", "t");
    let claims =
        vec![claim("a/1.0#1", false, Disposition::Continue), claim("b/1.0#1", false, Disposition::Continue)];
    let lines = bench.rejoin(3, "x", &["t"], claims);
    assert_eq!(lines, ["c3 joined [ok] a/1.0#1 Stop b/1.0#1 Stop"]);
}

/// A call that was lost with its host, and seeks another while no host has room.
fn sought_again() -> Bench {
    let mut bench = Bench::new();
    bench.join(1, "h", 8, &["t"]);
    bench.running(1, "h", "a/1.0", "t");
    bench.disconnect(1);
    assert_eq!(bench.pass(Millis::secs(10)), ["a/1.0: lost #1 ran Maybe"]);
    assert_eq!(bench.seek("a/1.0", "t"), [""; 0]);
    bench
}

fn finished() -> Vec<(crate::host::frame::CallInHand, Disposition)> {
    vec![claim("a/1.0", true, Disposition::Continue)]
}

#[test]
fn a_result_that_a_host_brings_comes_before_the_next_attempt() {
    let mut bench = sought_again();
    let lines = bench.rejoin(2, "h", &["t"], finished());
    assert_eq!(lines, ["c2 joined [ok] a/1.0#1 Continue", "served t"]);
    assert_eq!(bench.join(3, "g", 8, &["t"]), ["c3 joined [ok]"], "nor does another host get it");
    assert_eq!(bench.seek("a/1.0", "t"), [""; 0], "seeking twice is seeking once");
    assert_eq!(bench.heartbeat(2, &[]), [""; 0]);
    assert_eq!(bench.answer(2, "a/1.0"), ["answer a/1.0#1 succeeded by h for c2"]);
    assert_eq!(bench.ignored("h"), 0);
    assert_eq!(bench.stop_seeking("a/1.0"), [""; 0], "its run has what it wanted");
    assert_eq!(bench.handled("a/1.0"), [""; 0]);
    bench.heartbeat(2, &[]);
    bench.heartbeat(3, &[]);
    assert_eq!(bench.pass(Millis::secs(14)), [""; 0]);
    bench.disconnect(2);
    bench.disconnect(3);
    bench.assert_empty();
}

#[test]
fn a_result_that_does_not_end_its_call_makes_way_for_the_next_attempt() {
    let mut bench = sought_again();
    bench.rejoin(2, "h", &["t"], finished());
    bench.answer(2, "a/1.0");
    assert_eq!(bench.handled("a/1.0#2"), [""; 0], "another attempt is not meant");
    assert_eq!(bench.handled("a/1.0"), ["a/1.0: granted h"]);
}

#[test]
fn a_result_that_does_not_come_is_not_awaited_for_ever() {
    let mut bench = sought_again();
    bench.rejoin(2, "h", &["t"], finished());
    bench.heartbeat(2, &[]);
    assert_eq!(bench.pass(Millis(9_999)), [""; 0]);
    assert_eq!(bench.pass(Millis(1)), ["a/1.0: granted h"]);
}

#[test]
fn a_result_whose_host_disconnects_again_is_awaited_as_long() {
    let mut bench = sought_again();
    bench.rejoin(2, "h", &["t"], finished());
    bench.join(3, "g", 8, &["t"]);
    bench.disconnect(2);
    bench.pass(Millis::secs(5));
    let lines = bench.rejoin(4, "h", &["t"], finished());
    assert_eq!(lines, ["c4 joined [ok] a/1.0#1 Continue"]);
    assert_eq!(bench.pass(Millis(4_999)), [""; 0]);
    assert_eq!(bench.pass(Millis(1)), ["a/1.0: granted g"]);
}

#[test]
fn a_result_announced_before_the_next_seek_comes_first_too() {
    let mut bench = Bench::new();
    let lines = bench.rejoin(1, "h", &["t"], finished());
    assert_eq!(lines, ["c1 joined [ok] a/1.0#1 Continue", "served t", "a/1.0: accepted #1 h"]);
    assert_eq!(bench.seek("a/1.0", "t"), [""; 0]);
    bench.answer(1, "a/1.0");
    assert_eq!(bench.handled("a/1.0"), ["a/1.0: granted h"], "it said that the call failed");
}

#[test]
fn a_result_of_a_pinned_call_comes_first_too() {
    let mut bench = Bench::new();
    bench.join(1, "g", 8, &["t"]);
    bench.seek_on("a/1.0", "t", "h");
    assert_eq!(bench.rejoin(2, "x", &["t"], finished()), ["c2 joined [ok] a/1.0#1 Continue"]);
    bench.answer(2, "a/1.0");
    assert_eq!(bench.handled("a/1.0"), [""; 0], "it waits for its host");
    assert_eq!(bench.pass(Millis::secs(10)), ["a/1.0: granted g"]);
}

#[test]
fn a_result_of_a_granted_call_is_passed_on() {
    let mut bench = sought_again();
    bench.join(2, "g", 8, &["t"]);
    assert_eq!(bench.rejoin(3, "h", &["t"], finished()), ["c3 joined [ok] a/1.0#1 Continue"]);
    assert_eq!(bench.answer(3, "a/1.0"), ["answer a/1.0#1 succeeded by h for c3"]);
    assert_eq!(bench.stop_seeking("a/1.0"), [""; 0]);
    bench.handled("a/1.0");
}

#[test]
fn naming_a_call_twice_in_hand_is_naming_it_once() {
    let mut bench = Bench::new();
    let claims =
        vec![claim("a/1.0", false, Disposition::Continue), claim("a/1.0", true, Disposition::Continue)];
    let lines = bench.rejoin(1, "h", &["t"], claims);
    assert_eq!(
        lines,
        ["c1 joined [ok] a/1.0#1 Continue a/1.0#1 Continue", "served t", "a/1.0: accepted #1 h"]
    );
}

#[test]
fn a_second_connection_takes_the_firsts_place() {
    let mut bench = Bench::new();
    bench.join(1, "h", 8, &["t"]);
    bench.running(1, "h", "a/1.0", "t");
    let lines = bench.rejoin(2, "h", &["t"], vec![claim("a/1.0", false, Disposition::Continue)]);
    assert_eq!(
        lines,
        [
            "c2 joined [ok] a/1.0#1 Continue",
            "c1 <- protocol error",
            "c1 closed Replaced",
            "unserved t",
            "served t",
            "a/1.0: accepted #1 h"
        ]
    );
    assert_eq!(bench.disconnect(1), [""; 0], "the old stream's end means nothing");
    assert_eq!(bench.heartbeat(1, &[]), [""; 0]);
    assert_eq!(bench.answer(1, "a/1.0"), [""; 0], "what it says on the old stream, it will say again");
    assert_eq!(bench.answer(2, "a/1.0"), ["answer a/1.0#1 succeeded by h for c2"]);
}

#[test]
fn digests_must_agree() {
    let mut bench = Bench::new();
    bench.join(1, "h", 8, &["t@1", "u@1"]);
    let joined = bench.fleet.handle(
        &TenantId::local(),
        FleetInput::Join(Box::new(joining(2, "g", 8, &["t@2", "u@1"]))),
        bench.now,
    );
    let FleetOutput::Joined { tools, .. } = &joined[0] else { panic!("{joined:?}") };
    let reason = tools[0].as_ref().unwrap();
    for part in [tool("t@1").terms.digest.as_str(), tool("t@2").terms.digest.as_str(), "host h"] {
        assert!(reason.contains(part), "{reason}");
    }
    assert_eq!(tools[1], None);
    bench.check();
    for index in 0..4 {
        let id = format!("a/1.{index}");
        assert_eq!(bench.seek(&id, "t"), [format!("{id}: granted h")]);
    }
}

#[test]
fn a_new_version_takes_over_from_hosts_that_leave() {
    let mut bench = Bench::new();
    bench.join(1, "old", 8, &["t@1"]);
    bench.running(1, "old", "a/1.0", "t");
    assert_eq!(bench.frame(1, HostFrame::Draining), ["unserved t"]);
    assert_eq!(bench.join(2, "new", 8, &["t@2"]), ["c2 joined [ok]", "served t"]);
    assert_eq!(bench.answer(1, "a/1.0"), ["answer a/1.0#1 succeeded by old for c1"]);
    bench.disconnect(1);
    assert_eq!(bench.join(3, "old", 8, &["t@1"]), ["c3 joined [refused]"]);
}

#[test]
fn one_host_may_change_its_own_declaration() {
    let mut bench = Bench::new();
    bench.join(1, "h", 8, &["t@1"]);
    bench.join(2, "h", 8, &["t@2"]);
    assert_eq!(bench.join(3, "g", 8, &["t@2"]), ["c3 joined [ok]"]);
}

#[test]
fn a_call_that_was_granted_is_not_sent_under_new_terms() {
    let mut bench = Bench::new();
    bench.join(1, "h", 8, &["t@1"]);
    bench.seek("a/1.0", "t");
    bench.input(replace(1, &["t@2"]));
    assert_eq!(bench.offer("a/1.0", "h", "t"), ["a/1.0: lost #1 ran No"]);
    bench.seek("a/1.1", "t");
    bench.input(replace(1, &["t@1"]));
    assert_eq!(bench.seek("a/1.1", "t"), ["a/1.1: granted h"], "the run is told the new terms");
    assert_eq!(bench.offer("a/1.1", "h", "t"), ["c1 <- call a/1.1#1"]);
}

fn replace(connection: u64, tools: &[&str]) -> FleetInput {
    let tools = tools.iter().map(|text| tool(text)).collect();
    FleetInput::ReplaceTools { connection: ConnectionId(connection), tools }
}

#[test]
fn tools_change_while_connected() {
    let mut bench = Bench::new();
    bench.join(1, "h", 8, &["t", "u"]);
    bench.running(1, "h", "a/1.0", "u");
    bench.seek("a/1.1", "u");
    assert_eq!(bench.input(replace(1, &["t", "v"])), ["c1 tools [ok,ok]", "unserved u", "served v"]);
    assert_eq!(bench.offer("a/1.1", "h", "u"), ["a/1.1: lost #1 ran No"]);
    assert_eq!(bench.seek("a/1.2", "v"), ["a/1.2: granted h"]);
    assert_eq!(bench.answer(1, "a/1.0"), ["answer a/1.0#1 succeeded by h for c1"], "what runs goes on");
    assert_eq!(bench.input(replace(9, &["t"])), [""; 0]);
}

#[test]
fn a_changed_tool_that_another_host_declares_otherwise_is_refused() {
    let mut bench = Bench::new();
    bench.join(1, "a", 8, &["t@1"]);
    bench.join(2, "g", 8, &["t@1"]);
    assert_eq!(bench.input(replace(1, &["t@2"])), ["c1 tools [refused]"]);
    for index in 0..3 {
        let id = format!("a/1.{index}");
        assert_eq!(bench.seek(&id, "t"), [format!("{id}: granted g")]);
    }
    bench.disconnect(2);
    assert_eq!(bench.input(replace(1, &["t@2"])), ["c1 tools [ok]", "served t"]);
}

#[test]
fn changed_bounds_of_a_tool_give_room() {
    let mut bench = Bench::new();
    bench.join(1, "h", 8, &["t*1"]);
    bench.running(1, "h", "a/1.0", "t");
    bench.seek("a/1.1", "t");
    assert_eq!(bench.input(replace(1, &["t*2"])), ["c1 tools [ok]", "a/1.1: granted h"]);
}

#[test]
fn a_draining_host_finishes_what_it_has() {
    let mut bench = Bench::new();
    bench.join(1, "h", 8, &["t"]);
    bench.running(1, "h", "a/1.0", "t");
    assert_eq!(bench.frame(1, HostFrame::Draining), ["unserved t"]);
    assert_eq!(bench.frame(1, HostFrame::Draining), [""; 0]);
    assert_eq!(bench.seek("b/1.0", "t"), [""; 0]);
    assert_eq!(bench.fleet.hosts(&TenantId::local())[0].health, HostHealth::Draining);
    assert_eq!(bench.answer(1, "a/1.0"), ["answer a/1.0#1 succeeded by h for c1"]);
    bench.handled("a/1.0");
    assert_eq!(bench.frame(1, HostFrame::Goodbye), ["c1 closed Goodbye"]);
}

#[test]
fn goodbye_gives_up_what_was_not_answered() {
    let mut bench = Bench::new();
    bench.join(1, "h", 8, &["t"]);
    bench.running(1, "h", "a/1.0", "t");
    bench.seek("a/1.1", "t");
    bench.offer("a/1.1", "h", "t");
    assert_eq!(
        bench.frame(1, HostFrame::Goodbye),
        ["c1 closed Goodbye", "unserved t", "a/1.0: lost #1 ran Maybe", "a/1.1: lost #1 ran Maybe"]
    );
    bench.assert_empty();
}

#[test]
fn credit_beyond_the_bound_counts_as_the_bound() {
    let mut bench = Bench::new();
    bench.join(1, "h", u64::MAX, &["t"]);
    assert_eq!(bench.credit(1, u64::MAX), [""; 0]);
    bench.running(1, "h", "a/1.0", "t");
    let hosts = bench.fleet.hosts(&TenantId::local());
    assert_eq!((hosts[0].calls, hosts[0].free_credit), (1, CALLS_PER_HOST_MAX as u64));
}

#[test]
fn a_violation_ends_the_stream_and_not_the_calls() {
    let mut bench = Bench::new();
    bench.join(1, "h", 8, &["t"]);
    bench.running(1, "h", "a/1.0", "t");
    let violation = FleetInput::Violation { connection: ConnectionId(1), message: "bad".into(), call: None };
    assert_eq!(bench.input(violation), ["c1 <- protocol error", "c1 closed Violation", "unserved t"]);
    let lines = bench.rejoin(2, "h", &["t"], vec![claim("a/1.0", false, Disposition::Continue)]);
    assert_eq!(lines, ["c2 joined [ok] a/1.0#1 Continue", "served t", "a/1.0: accepted #1 h"]);
}

#[test]
fn shutting_down_places_no_call_and_lets_those_in_hand_finish() {
    let mut bench = Bench::new();
    bench.join(1, "h", 8, &["t"]);
    bench.running(1, "h", "a/1.0", "t");
    bench.running(1, "h", "a/1.1", "t");
    let show = |out: Vec<FleetOutput>| out.iter().map(super::bench::show).collect::<Vec<_>>();
    assert_eq!(show(bench.fleet.go_away(Millis::secs(1))), ["c1 <- go away"]);
    assert_eq!(bench.seek("b/1.0", "t"), [""; 0]);
    assert_eq!(bench.credit(1, 20), [""; 0]);
    assert_eq!(bench.answer(1, "a/1.0"), ["answer a/1.0#1 succeeded by h for c1"]);
    assert_eq!(show(bench.fleet.close_all()), ["c1 closed ShuttingDown", "unserved t"]);
    assert_eq!(bench.pass(Millis::secs(60)), [""; 0], "nothing is given up: it is in the journals");
}

#[test]
fn a_stream_can_be_dropped_for_reasons_of_ours() {
    let mut bench = Bench::new();
    bench.join(1, "h", 8, &["t"]);
    bench.running(1, "h", "a/1.0", "t");
    let drop = FleetInput::CloseStream { connection: ConnectionId(1), reason: CloseReason::NotReading };
    assert_eq!(bench.input(drop.clone()), ["c1 closed NotReading", "unserved t"]);
    assert_eq!(bench.input(drop), ["c1 closed NotReading"], "a stream that never joined is closed too");
}

#[test]
fn views_show_hosts_and_tools() {
    let mut bench = Bench::new();
    bench.join(1, "h", 3, &["t", "u"]);
    bench.running(1, "h", "a/1.0", "t");
    bench.join(2, "g", 0, &["u"]);
    bench.input(FleetInput::Remember { tools: vec!["v".into()] });
    bench.seek("a/1.1", "v");
    let hosts = bench.fleet.hosts(&TenantId::local());
    assert_eq!(hosts.iter().map(|host| host.host.as_str()).collect::<Vec<_>>(), ["g", "h"]);
    assert_eq!((hosts[1].calls, hosts[1].free_credit, hosts[1].health), (1, 2, HostHealth::Connected));
    let tools = bench.fleet.tools(&TenantId::local());
    let lines: Vec<_> = tools.iter().map(|t| (t.name.as_str(), t.hosts.len(), t.calls, t.queued)).collect();
    assert_eq!(lines, [("t", 1, 1, 0), ("u", 2, 0, 0), ("v", 0, 0, 1)]);
    assert!(bench.fleet.serves(&TenantId::local(), "t") && !bench.fleet.serves(&TenantId::local(), "v"));
    assert_eq!(bench.fleet.holder(&TenantId::local(), &call_ref("a/1.0").call).unwrap().as_str(), "h");
    assert_eq!(bench.fleet.holder(&TenantId::local(), &call_ref("a/1.1").call), None);
    bench.disconnect(1);
    let hosts = bench.fleet.hosts(&TenantId::local());
    assert_eq!((hosts[1].health, hosts[1].calls), (HostHealth::Lost, 1));
}
