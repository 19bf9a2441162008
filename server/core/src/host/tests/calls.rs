//! A call from its offer to its end.

use super::bench::{Bench, call, call_ref, claim, joining, request, tool};
use crate::host::frame::{CancelCause, CancelOutcome, Disposition, HostFrame, RejectReason};
use crate::host::{FleetInput, HostJoin, UnfitArguments};
use crate::limits::CANCEL_GRACE_SECS;
use crate::time::Millis;

fn bench() -> Bench {
    let mut bench = Bench::new();
    bench.join(1, "h", 8, &["t"]);
    bench
}

#[test]
fn a_call_from_start_to_end() {
    let mut bench = bench();
    assert_eq!(bench.seek("a/1.0", "t"), ["a/1.0: granted h"]);
    assert_eq!(bench.offer("a/1.0", "h", "t"), ["c1 <- call a/1.0#1"]);
    assert_eq!(bench.accept(1, "a/1.0"), ["a/1.0: accepted #1 h"]);
    assert_eq!(bench.accept(1, "a/1.0"), [""; 0]);
    assert_eq!(bench.answer(1, "a/1.0"), ["answer a/1.0#1 succeeded by h for c1"]);
    assert_eq!(bench.handled("a/1.0"), [""; 0]);
    bench.disconnect(1);
    bench.assert_empty();
}

#[test]
fn a_result_without_confirmation_is_a_result() {
    let mut bench = bench();
    bench.seek("a/1.0", "t");
    bench.offer("a/1.0", "h", "t");
    assert_eq!(bench.answer(1, "a/1.0"), ["answer a/1.0#1 succeeded by h for c1"]);
    assert_eq!(bench.pass(Millis::secs(14)), [""; 0], "nothing is lost afterwards");
}

#[test]
fn a_second_attempt_may_begin_before_the_first_result_is_handled() {
    let mut bench = bench();
    bench.running(1, "h", "a/1.0", "t");
    bench.answer(1, "a/1.0");
    bench.running(1, "h", "a/1.0#2", "t");
    bench.handled("a/1.0#1");
    assert_eq!(bench.answer(1, "a/1.0#2"), ["answer a/1.0#2 succeeded by h for c1"]);
}

#[test]
fn an_offer_without_room_is_not_sent() {
    let mut bench = bench();
    assert_eq!(bench.offer("a/1.0", "h", "t"), ["a/1.0: lost #1 ran No"]);
    bench.seek("a/1.0", "t");
    assert_eq!(bench.offer("a/1.0", "other", "t"), ["a/1.0: lost #1 ran No"]);
    bench.seek("a/1.0", "t");
    bench.disconnect(1);
    assert_eq!(bench.offer("a/1.0", "h", "t"), ["a/1.0: lost #1 ran No"]);
    bench.assert_empty();
}

#[test]
fn room_on_a_stream_that_was_replaced_is_gone() {
    let mut bench = bench();
    bench.seek("a/1.0", "t");
    bench.join(2, "h", 8, &["t"]);
    assert_eq!(bench.offer("a/1.0", "h", "t"), ["a/1.0: lost #1 ran No"]);
    assert_eq!(bench.seek("a/1.0", "t"), ["a/1.0: granted h"]);
    bench.join(3, "h", 8, &["t"]);
    assert_eq!(bench.seek("a/1.0", "t"), ["a/1.0: granted h"], "seeking again finds room anew");
    assert_eq!(bench.offer("a/1.0", "h", "t"), ["c3 <- call a/1.0#1"]);
}

#[test]
fn room_on_a_host_that_began_to_leave_is_gone() {
    let mut bench = bench();
    bench.seek("a/1.0", "t");
    bench.frame(1, crate::host::frame::HostFrame::Draining);
    assert_eq!(bench.offer("a/1.0", "h", "t"), ["a/1.0: lost #1 ran No"]);
}

#[test]
fn offering_twice_is_offering_once() {
    let mut bench = bench();
    bench.seek("a/1.0", "t");
    bench.offer("a/1.0", "h", "t");
    assert_eq!(bench.offer("a/1.0", "h", "t"), [""; 0]);
    assert_eq!(bench.offer("a/1.0#2", "h", "t"), ["c1 <- lease lost a/1.0#1", "a/1.0: lost #2 ran No"]);
}

#[test]
fn a_call_that_no_frame_of_the_host_holds_is_told_to_the_model() {
    let mut bench = bench();
    bench.seek("a/1.0", "t");
    let mut large = request("a/1.0", "h", "t");
    large.arguments = "x".repeat(4096);
    assert_eq!(
        bench.input(FleetInput::Offer { request: large, unfit: None }),
        ["answer a/1.0#1 rejected by h for nobody"]
    );
    assert_eq!(bench.seek("a/1.1", "t"), ["a/1.1: granted h"], "its credit is free again");
}

#[test]
fn arguments_that_no_longer_fit_are_told_to_the_model() {
    let unfit = |terms| FleetInput::Offer {
        request: request("a/1.0", "h", "t"),
        unfit: Some(UnfitArguments { terms, message: "x must be a string".to_owned() }),
    };
    let declared = || tool("t").terms.digest.clone();
    let mut bench = bench();
    bench.seek("a/1.0", "t");
    assert_eq!(bench.input(unfit(declared())), ["answer a/1.0#1 rejected by h for nobody"]);
    assert_eq!(bench.seek("a/1.1", "t"), ["a/1.1: granted h"], "its credit is free again");
    assert_eq!(bench.input(unfit(declared())), ["a/1.0: lost #1 ran No"], "it has no room any more");
    bench.seek("a/1.0", "t");
    assert_eq!(
        bench.input(unfit(tool("t@2").terms.digest.clone())),
        ["c1 <- call a/1.0#1"],
        "its host has other terms"
    );
    assert_eq!(bench.input(unfit(declared())), [""; 0], "the host has it already");
}

#[test]
fn a_call_that_is_not_confirmed_in_time_is_lost() {
    let mut bench = bench();
    bench.seek("a/1.0", "t");
    bench.offer("a/1.0", "h", "t");
    bench.heartbeat(1, &[]);
    assert_eq!(bench.pass(Millis::secs(10)), ["c1 <- cancel a/1.0#1", "a/1.0: lost #1 ran Maybe"]);
    assert_eq!(bench.accept(1, "a/1.0"), [""; 0], "it proves only what was feared");
    assert_eq!(
        bench.reject(1, "a/1.0", RejectReason::Busy),
        [""; 0],
        "it has begun: a rejection proves nothing"
    );
    assert_eq!(bench.seek("b/1.0", "t"), [""; 0], "the host is left alone for a while");
    bench.heartbeat(1, &[]);
    assert_eq!(bench.pass(Millis::secs(10)), ["b/1.0: granted h"]);
}

#[test]
fn rejections() {
    let ran_no = |id: &str| format!("{id}: lost #1 ran No");
    for (reason, expected) in [
        (RejectReason::Busy, vec![ran_no("a/1.0") + " busy"]),
        (RejectReason::Draining, vec!["unserved t".into(), ran_no("a/1.0")]),
        (RejectReason::UnknownTool, vec!["unserved t".into(), ran_no("a/1.0")]),
        (RejectReason::BadArguments, vec!["answer a/1.0#1 rejected by h for nobody".into()]),
        (RejectReason::TooLarge, vec!["answer a/1.0#1 rejected by h for nobody".into()]),
    ] {
        let mut bench = bench();
        bench.seek("a/1.0", "t");
        bench.offer("a/1.0", "h", "t");
        assert_eq!(bench.reject(1, "a/1.0", reason), expected, "{reason:?}");
        assert_eq!(bench.reject(1, "a/1.0", reason), [""; 0], "{reason:?}");
        assert_eq!(bench.ignored("h"), 1, "{reason:?}");
    }
}

/// A call that was taken from its host is in doubt. The host's word settles that, however late it comes.
#[test]
fn a_late_word_that_a_call_was_not_begun_is_heard() {
    let reject = |reason| HostFrame::Rejected { call: call_ref("a/1.0"), reason, message: String::new() };
    let words = [
        (reject(RejectReason::Busy), vec![]),
        (reject(RejectReason::Draining), vec!["unserved t"]),
        (reject(RejectReason::UnknownTool), vec!["unserved t"]),
        (reject(RejectReason::BadArguments), vec![]),
        (reject(RejectReason::TooLarge), vec![]),
        (HostFrame::CancelAck { call: call_ref("a/1.0"), outcome: CancelOutcome::NotBegun }, vec![]),
    ];
    for beats in [0, 1, 3] {
        for (word, effects) in words.clone() {
            let mut bench = bench();
            bench.seek("a/1.0", "t");
            bench.offer("a/1.0", "h", "t");
            bench.heartbeat(1, &[]);
            bench.pass(Millis::secs(10));
            for _ in 0..beats {
                assert_eq!(bench.heartbeat(1, &[]), [""; 0], "a heartbeat overtakes the word");
            }
            let expected = [effects, vec!["a/1.0: stopped #1 begun false"]].concat();
            assert_eq!(bench.frame(1, word.clone()), expected, "{word:?} after {beats} heartbeats");
            assert_eq!(bench.frame(1, word.clone()), [""; 0], "{word:?} is heard once");
            assert_eq!(bench.ignored("h"), 1);
        }
    }
}

#[test]
fn a_rejection_after_acceptance_may_have_run() {
    for reason in [RejectReason::Busy, RejectReason::BadArguments] {
        let mut bench = bench();
        bench.running(1, "h", "a/1.0", "t");
        assert_eq!(bench.reject(1, "a/1.0", reason), ["a/1.0: lost #1 ran Maybe"]);
    }
}

#[test]
fn a_busy_host_is_left_alone_for_a_moment() {
    let mut bench = bench();
    bench.seek("a/1.0", "t");
    bench.offer("a/1.0", "h", "t");
    bench.reject(1, "a/1.0", RejectReason::Busy);
    assert_eq!(bench.seek("a/1.0", "t"), [""; 0]);
    assert_eq!(bench.pass(Millis::secs(1)), ["a/1.0: granted h"]);
}

#[test]
fn cancel_is_pushed_and_the_room_stays_taken_until_the_call_stopped() {
    let mut bench = Bench::new();
    bench.join(1, "h", 8, &["t*1"]);
    bench.running(1, "h", "a/1.0", "t");
    bench.seek("b/1.0", "t");
    assert_eq!(bench.cancel("a/1.0#2"), [""; 0], "another attempt is not meant");
    assert_eq!(bench.cancel("a/1.0"), ["c1 <- cancel a/1.0#1"]);
    assert_eq!(bench.cancel("a/1.0"), [""; 0]);
    let ack = |outcome| HostFrame::CancelAck { call: call_ref("a/1.0"), outcome };
    assert_eq!(bench.frame(1, ack(CancelOutcome::RunsOn)), [""; 0], "it cannot be stopped");
    assert_eq!(bench.heartbeat(1, &["a/1.0"]), [""; 0]);
    assert_eq!(bench.frame(1, ack(CancelOutcome::Stopped)), ["b/1.0: granted h"]);
    assert_eq!(bench.frame(1, ack(CancelOutcome::Stopped)), [""; 0]);
    assert_eq!(bench.ignored("h"), 1);
}

/// A run waits for the host's word where the deadline was the reason, and wants to know in any case that nothing happened.
#[test]
fn a_stop_is_reported_where_it_tells_the_run_something() {
    let stopped = |begun| vec![format!("a/1.0: stopped #1 begun {begun}")];
    for (cause, outcome, expected) in [
        (CancelCause::Deadline, CancelOutcome::Stopped, stopped(true)),
        (CancelCause::Deadline, CancelOutcome::NotBegun, stopped(false)),
        (CancelCause::Deadline, CancelOutcome::Finished, vec![]),
        (CancelCause::Deadline, CancelOutcome::RunsOn, vec![]),
        (CancelCause::Settled, CancelOutcome::Stopped, vec![]),
        (CancelCause::Settled, CancelOutcome::NotBegun, stopped(false)),
    ] {
        let mut bench = bench();
        bench.running(1, "h", "a/1.0", "t");
        assert_eq!(bench.cancel_for("a/1.0", cause), ["c1 <- cancel a/1.0#1"]);
        let ack = HostFrame::CancelAck { call: call_ref("a/1.0"), outcome };
        assert_eq!(bench.frame(1, ack), expected, "{cause:?} {outcome:?}");
    }
}

#[test]
fn a_host_that_is_still_stopping_a_call_gets_no_other_of_its_id() {
    let mut bench = bench();
    bench.running(1, "h", "a/1.0", "t");
    bench.cancel("a/1.0");
    // The run is deleted, and there is another of its id.
    assert_eq!(bench.seek("a/1.0", "t"), [""; 0]);
    assert_eq!(bench.seek("a/1.1", "t"), ["a/1.1: granted h"], "others are let by");
    assert_eq!(bench.heartbeat(1, &["a/1.0"]), [""; 0], "it goes on");
    assert_eq!(bench.answer(1, "a/1.0"), ["answer a/1.0#1 succeeded by h for c1"]);
    assert_eq!(
        bench.handled("a/1.0"),
        ["a/1.0: granted h"],
        "until it is acknowledged, the host knows the answer"
    );
}

#[test]
fn a_call_whose_host_still_stops_one_of_its_id_goes_elsewhere() {
    let mut bench = bench();
    bench.running(1, "h", "a/1.0", "t");
    bench.cancel("a/1.0");
    bench.seek("a/1.0", "t");
    assert_eq!(bench.join(2, "g", 8, &["t"]), ["c2 joined [ok]", "a/1.0: granted g"]);
}

#[test]
fn a_call_that_needs_a_host_waits_until_that_has_stopped_one_of_its_id() {
    let mut bench = bench();
    bench.join(2, "g", 8, &["t"]);
    assert_eq!(bench.seek_on("a/1.0", "t", "h"), ["a/1.0: granted h"]);
    bench.offer("a/1.0", "h", "t");
    bench.cancel("a/1.0");
    assert_eq!(bench.seek_on("a/1.0", "t", "h"), [""; 0]);
    assert_eq!(bench.heartbeat(1, &[]), ["a/1.0: granted h"]);
}

#[test]
fn a_cancelled_call_frees_its_room_by_result_or_heartbeat() {
    for by_answer in [true, false] {
        let mut bench = Bench::new();
        bench.join(1, "h", 8, &["t*1"]);
        bench.running(1, "h", "a/1.0", "t");
        bench.seek("b/1.0", "t");
        bench.cancel("a/1.0");
        if by_answer {
            let lines = bench.answer(1, "a/1.0");
            assert_eq!(lines, ["answer a/1.0#1 succeeded by h for c1", "b/1.0: granted h"]);
        } else {
            assert_eq!(bench.heartbeat(1, &[]), ["b/1.0: granted h"]);
        }
    }
}

/// Otherwise a next attempt of the call would wait for good, if no other host serves its tool.
#[test]
fn a_host_that_goes_on_with_a_cancelled_call_is_told_to_give_it_up() {
    let mut bench = Bench::new();
    bench.join(1, "h", 8, &["t"]);
    bench.running(1, "h", "a/1.0", "t");
    bench.cancel_for("a/1.0", CancelCause::Deadline);
    assert_eq!(bench.seek("a/1.0", "t"), [""; 0], "the host still has the attempt before");
    let grace = Millis::secs(CANCEL_GRACE_SECS);
    for _ in 0..2 {
        assert_eq!(bench.heartbeat(1, &["a/1.0"]), [""; 0], "it has time to stop");
        bench.pass(grace);
    }
    assert_eq!(bench.heartbeat(1, &["a/1.0"]), ["c1 <- lease lost a/1.0#1"]);
    assert_eq!(bench.heartbeat(1, &[]), ["a/1.0: granted h"]);
}

#[test]
fn cancel_of_the_last_attempt_leaves_the_next_alone() {
    let mut bench = Bench::new();
    bench.join(1, "h", 1, &["t"]);
    bench.running(1, "h", "a/1.0", "t");
    bench.disconnect(1);
    bench.join(2, "g", 1, &["t"]);
    assert_eq!(bench.pass(Millis::secs(10)), ["a/1.0: lost #1 ran Maybe"]);
    assert_eq!(bench.seek("a/1.0", "t"), ["a/1.0: granted g"]);
    assert_eq!(bench.cancel("a/1.0"), [""; 0]);
    assert_eq!(bench.offer("a/1.0#2", "g", "t"), ["c2 <- call a/1.0#2"]);
}

#[test]
fn cancel_of_the_last_attempt_leaves_the_next_in_the_queue() {
    let mut bench = Bench::new();
    bench.join(1, "h", 0, &["t"]);
    bench.seek("a/1.0", "t");
    assert_eq!(bench.cancel("a/1.0"), [""; 0]);
    assert_eq!(bench.credit(1, 5), ["a/1.0: granted h"]);
}

#[test]
fn cancel_of_a_call_whose_result_is_being_recorded_only_forgets_it() {
    let mut bench = bench();
    bench.running(1, "h", "a/1.0", "t");
    bench.answer(1, "a/1.0");
    assert_eq!(bench.cancel("a/1.0"), [""; 0]);
    assert_eq!(bench.not_recorded("a/1.0"), [""; 0]);
    bench.disconnect(1);
    bench.assert_empty();
}

#[test]
fn release_ends_seeking_and_leaves_assigned_calls() {
    let mut bench = Bench::new();
    bench.join(1, "h", 2, &["t"]);
    bench.running(1, "h", "a/1.0", "t");
    bench.seek("a/1.1", "t");
    bench.seek("a/1.2", "t");
    bench.seek("b/1.0", "t");
    assert_eq!(bench.release("a"), ["b/1.0: granted h"]);
    assert_eq!(bench.reclaim("a/1.0", "h", "t"), ["a/1.0: accepted #1 h"], "its run came back for it");
    bench.release("a");
    bench.answer(1, "a/1.0");
    bench.handled("a/1.0");
    bench.release("b");
    bench.disconnect(1);
    bench.assert_empty();
}

#[test]
fn seeking_anew_takes_the_call_from_the_host_that_has_it() {
    let mut bench = bench();
    bench.running(1, "h", "a/1.0", "t");
    assert_eq!(bench.seek("a/1.0", "t"), ["c1 <- lease lost a/1.0#1", "a/1.0: granted h"]);
}

#[test]
fn a_result_that_cannot_be_recorded_stays_with_its_host() {
    let mut bench = bench();
    bench.running(1, "h", "a/1.0", "t");
    bench.answer(1, "a/1.0");
    bench.disconnect(1);
    assert_eq!(bench.not_recorded("a/1.0"), [""; 0]);
    let lines = bench.rejoin(2, "h", &["t"], vec![claim("a/1.0", true, Disposition::Continue)]);
    assert_eq!(lines, ["c2 joined [ok] a/1.0#1 Continue", "served t", "a/1.0: accepted #1 h"]);
    assert_eq!(bench.heartbeat(2, &[]), [""; 0]);
    assert_eq!(bench.heartbeat(2, &[]), [""; 0]);
    assert_eq!(bench.heartbeat(2, &[]), [""; 0], "a finished call is not in heartbeats");
    assert_eq!(bench.answer(2, "a/1.0"), ["answer a/1.0#1 succeeded by h for c2"]);
}

#[test]
fn a_result_that_cannot_be_recorded_and_is_never_sent_again_is_lost() {
    let mut bench = bench();
    bench.running(1, "h", "a/1.0", "t");
    bench.answer(1, "a/1.0");
    bench.disconnect(1);
    bench.not_recorded("a/1.0");
    assert_eq!(bench.pass(Millis::secs(10)), ["a/1.0: lost #1 ran Maybe"]);
    bench.assert_empty();
}

#[test]
fn a_result_without_a_stream_ends_the_assignment() {
    let mut bench = bench();
    bench.running(1, "h", "a/1.0", "t");
    let answered =
        |lease: &str| FleetInput::ResultWithoutStream { call: call_ref("a/1.0"), lease: lease.to_owned() };
    bench.disconnect(1);
    bench.input(answered("forged"));
    bench.input(answered(super::bench::lease(&call_ref("a/1.0")).as_str()));
    assert_eq!(bench.handled("a/1.0"), [""; 0]);
    assert_eq!(bench.pass(Millis::secs(60)), [""; 0]);
    bench.assert_empty();
}

#[test]
fn a_reclaimed_call_waits_for_its_host() {
    let mut bench = Bench::new();
    assert_eq!(bench.reclaim("a/1.0", "h", "t"), [""; 0]);
    assert_eq!(bench.reclaim("a/1.0", "h", "t"), [""; 0]);
    assert_eq!(bench.pass(Millis::secs(9)), [""; 0]);
    assert_eq!(bench.pass(Millis::secs(1)), ["a/1.0: lost #1 ran Maybe"]);
    bench.assert_empty();
}

#[test]
fn a_reclaimed_call_is_found_again() {
    let mut bench = Bench::new();
    bench.reclaim("a/1.0", "h", "t");
    let lines = bench.rejoin(1, "h", &["t*1"], vec![claim("a/1.0", false, Disposition::Continue)]);
    assert_eq!(lines, ["c1 joined [ok] a/1.0#1 Continue", "served t", "a/1.0: accepted #1 h"]);
    assert_eq!(bench.seek("b/1.0", "t"), [""; 0], "it takes up the tool's room");
    assert_eq!(bench.answer(1, "a/1.0"), ["answer a/1.0#1 succeeded by h for c1", "b/1.0: granted h"]);
}

#[test]
fn a_host_may_be_back_before_the_run() {
    let mut bench = Bench::new();
    bench.rejoin(1, "h", &["t*1"], vec![claim("a/1.0", false, Disposition::Continue)]);
    assert_eq!(bench.seek("b/1.0", "t"), ["b/1.0: granted h"], "whose tool it is, nobody knows yet");
    assert_eq!(bench.reclaim("a/1.0", "h", "t"), ["a/1.0: accepted #1 h"]);
    bench.input(FleetInput::StopSeeking { call: call("b/1.0") });
    assert_eq!(bench.seek("b/1.0", "t"), [""; 0]);
}

#[test]
fn a_reclaimed_call_that_its_connected_host_does_not_have_is_lost() {
    let mut bench = bench();
    assert_eq!(bench.reclaim("a/1.0", "h", "t"), ["a/1.0: lost #1 ran Maybe"]);
}

#[test]
fn a_reclaim_does_not_disturb_a_result_on_its_way() {
    let mut bench = bench();
    bench.running(1, "h", "a/1.0", "t");
    bench.answer(1, "a/1.0");
    assert_eq!(bench.reclaim("a/1.0", "h", "t"), [""; 0]);
    assert_eq!(bench.reclaim("a/1.0#2", "g", "t"), [""; 0]);
    assert_eq!(bench.handled("a/1.0"), [""; 0]);
    assert_eq!(bench.pass(Millis::secs(10)), ["a/1.0: lost #2 ran Maybe"]);
}

#[test]
fn a_call_has_one_host() {
    let mut bench = bench();
    bench.running(1, "h", "a/1.0", "t");
    let claims = vec![claim("a/1.0", false, Disposition::Continue)];
    let lines =
        bench.input(FleetInput::Join(Box::new(HostJoin { claims, ..joining(2, "thief", 8, &["t"]) })));
    assert_eq!(lines, ["c2 joined [ok] a/1.0#1 Stop"]);
    assert_eq!(bench.accept(2, "a/1.0"), ["c2 <- lease lost a/1.0#1"]);
    assert_eq!(bench.heartbeat(1, &["a/1.0"]), [""; 0]);
}
