//! Frames from hosts, expected and unexpected ones.

use super::bench::{Bench, call_ref};
use crate::host::frame::{CancelOutcome, Hello, HostFrame, InputAnswer, QuestionContent, Resumable};
use crate::limits::{INPUT_FRAMES_PER_CALL_MAX, RESUME_STATES_PER_ATTEMPT_MAX};
use crate::time::Millis;

fn bench() -> Bench {
    let mut bench = Bench::new();
    bench.join(1, "h", 8, &["t"]);
    bench
}

fn progress(text: &str, message: &str, checkpoint: Option<&[u8]>) -> HostFrame {
    HostFrame::Progress {
        call: call_ref(text),
        message: message.into(),
        fraction: None,
        checkpoint: checkpoint.map(<[u8]>::to_vec),
        resumable: None,
    }
}

fn output(text: &str, chunk_seq: u64) -> HostFrame {
    HostFrame::Output { call: call_ref(text), chunk_seq, stderr: false, data: b"x".to_vec() }
}

#[test]
fn a_call_missing_from_two_heartbeats_in_a_row_is_lost() {
    let mut bench = bench();
    bench.running(1, "h", "a/1.0", "t");
    bench.running(1, "h", "a/1.1", "t");
    assert_eq!(bench.heartbeat(1, &["a/1.1"]), [""; 0]);
    assert_eq!(bench.heartbeat(1, &["a/1.0", "a/1.1"]), [""; 0]);
    assert_eq!(bench.heartbeat(1, &["a/1.1"]), [""; 0]);
    assert_eq!(bench.heartbeat(1, &["a/1.1"]), ["c1 <- lease lost a/1.0#1", "a/1.0: lost #1 ran Maybe"]);
    assert_eq!(bench.heartbeat(1, &["a/1.1"]), [""; 0]);
}

#[test]
fn a_call_that_is_not_confirmed_is_not_missed_in_heartbeats() {
    let mut bench = bench();
    bench.seek("a/1.0", "t");
    bench.offer("a/1.0", "h", "t");
    for _ in 0..4 {
        assert_eq!(bench.heartbeat(1, &[]), [""; 0]);
    }
}

#[test]
fn a_heartbeat_that_names_a_call_confirms_it() {
    let mut bench = bench();
    bench.seek("a/1.0", "t");
    bench.offer("a/1.0", "h", "t");
    assert_eq!(bench.heartbeat(1, &["a/1.0"]), ["a/1.0: accepted #1 h"]);
    assert_eq!(bench.pass(Millis::secs(11)), [""; 0]);
}

#[test]
fn a_heartbeat_with_calls_that_are_not_the_hosts_is_answered_within_bounds() {
    let mut bench = bench();
    bench.running(1, "h", "a/1.0#2", "t");
    let lines = bench.heartbeat(1, &["a/1.0#1", "a/1.0#2", "x/1.0"]);
    assert_eq!(lines, ["c1 <- lease lost a/1.0#1", "c1 <- lease lost x/1.0#1"]);
    assert_eq!(bench.ignored("h"), 2);
    let many: Vec<String> = (0..1_000).map(|index| format!("x/1.{index}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert_eq!(bench.heartbeat(1, &many).len(), 64);
}

#[test]
fn a_heartbeat_that_crossed_a_result_means_nothing() {
    let mut bench = bench();
    bench.running(1, "h", "a/1.0", "t");
    bench.answer(1, "a/1.0");
    assert_eq!(bench.heartbeat(1, &["a/1.0"]), [""; 0]);
}

#[test]
fn progress_and_checkpoints() {
    let mut bench = bench();
    bench.running(1, "h", "a/1.0", "t");
    assert_eq!(bench.frame(1, progress("a/1.0", "half", None)), ["a/1.0: progress #1 half"]);
    assert_eq!(
        bench.frame(1, progress("a/1.0", "more", Some(b"ck"))),
        ["a/1.0: checkpoint #1 2", "a/1.0: progress #1 more"]
    );
    bench.pass(Millis::secs(1));
    assert_eq!(bench.frame(1, progress("a/1.0", "", Some(b""))), ["a/1.0: checkpoint #1 0"]);
}

#[test]
fn of_many_checkpoints_the_newest_is_told_once_a_second() {
    let mut bench = bench();
    bench.running(1, "h", "a/1.0", "t");
    let mut told = Vec::new();
    for size in 1..=3_000 {
        told.extend(bench.frame(1, progress("a/1.0", "", Some(&vec![0; size]))));
        told.extend(bench.pass(Millis(1)));
    }
    let sizes = [1, 1_000, 2_000, 3_000];
    assert_eq!(told, sizes.map(|size| format!("a/1.0: checkpoint #1 {size}")));
}

#[test]
fn the_last_checkpoint_is_told_before_its_host_has_the_call_no_longer() {
    let saved = || {
        let mut bench = bench();
        bench.running(1, "h", "a/1.0", "t");
        bench.frame(1, progress("a/1.0", "", Some(b"1")));
        assert_eq!(bench.frame(1, progress("a/1.0", "", Some(b"22"))), [""; 0]);
        bench
    };
    let told = "a/1.0: checkpoint #1 2";
    assert_eq!(saved().answer(1, "a/1.0"), [told, "answer a/1.0#1 succeeded by h for c1"]);
    assert_eq!(saved().disconnect(1), ["unserved t", told]);
    assert_eq!(saved().cancel("a/1.0"), [told, "c1 <- cancel a/1.0#1"]);
    assert_eq!(
        saved().frame(1, HostFrame::Goodbye),
        ["c1 closed Goodbye", "unserved t", told, "a/1.0: lost #1 ran Maybe"]
    );
    let rejoined = saved().join(2, "h", 8, &["t"]);
    assert_eq!(rejoined.iter().position(|line| line == told), Some(4), "{rejoined:?}");
    assert_eq!(rejoined.last().map(String::as_str), Some("a/1.0: lost #1 ran Maybe"));
}

#[test]
fn each_call_has_checkpoints_of_its_own() {
    let mut bench = bench();
    for id in ["a/1.0", "a/1.1"] {
        bench.running(1, "h", id, "t");
        assert_eq!(bench.frame(1, progress(id, "", Some(b"1"))), [format!("{id}: checkpoint #1 1")]);
        assert_eq!(bench.frame(1, progress(id, "", Some(b"22"))), [""; 0]);
    }
    let lines = bench.pass(Millis::secs(1));
    assert_eq!(lines, ["a/1.0: checkpoint #1 2", "a/1.1: checkpoint #1 2"]);
}

#[test]
fn progress_confirms_a_call() {
    let mut bench = bench();
    bench.seek("a/1.0", "t");
    bench.offer("a/1.0", "h", "t");
    assert_eq!(
        bench.frame(1, progress("a/1.0", "half", None)),
        ["a/1.0: accepted #1 h", "a/1.0: progress #1 half"]
    );
}

#[test]
fn output_is_passed_on_once_and_gaps_are_the_hosts_business() {
    let mut bench = bench();
    bench.running(1, "h", "a/1.0", "t");
    assert_eq!(bench.frame(1, output("a/1.0", 1)), ["a/1.0: output #1 1"]);
    assert_eq!(bench.frame(1, output("a/1.0", 1)), [""; 0]);
    assert_eq!(bench.frame(1, output("a/1.0", 5)), ["a/1.0: output #1 5"]);
    assert_eq!(bench.frame(1, output("a/1.0", 4)), [""; 0]);
    assert_eq!(bench.frame(1, output("a/1.0", 0)), [""; 0]);
    assert_eq!(bench.ignored("h"), 3);
}

#[test]
fn frames_about_other_calls_are_ignored_and_counted() {
    let mut bench = bench();
    bench.running(1, "h", "a/1.0", "t");
    bench.join(2, "g", 8, &["t"]);
    let lost = |id: &str, connection: u64| vec![format!("c{connection} <- lease lost {id}")];
    let table = [
        (2, HostFrame::Accepted(call_ref("a/1.0")), lost("a/1.0#1", 2)),
        (1, HostFrame::Accepted(call_ref("a/1.0#2")), lost("a/1.0#2", 1)),
        (1, HostFrame::Accepted(call_ref("x/1.0")), lost("x/1.0#1", 1)),
        (2, progress("a/1.0", "hm", Some(b"ck")), lost("a/1.0#1", 2)),
        (1, progress("a/1.0#7", "hm", None), lost("a/1.0#7", 1)),
        (2, output("a/1.0", 1), vec![]),
        (1, output("a/1.0#3", 1), vec![]),
        (1, HostFrame::CancelAck { call: call_ref("a/1.0"), outcome: CancelOutcome::Stopped }, vec![]),
        (1, HostFrame::Unknown, vec![]),
    ];
    let mut expected = [0, 0];
    for (connection, frame, lines) in table {
        expected[usize::try_from(connection).unwrap() - 1] += 1;
        assert_eq!(bench.frame(connection, frame.clone()), lines, "{frame:?}");
        assert_eq!([bench.ignored("h"), bench.ignored("g")], expected, "{frame:?}");
    }
    assert_eq!(bench.answer(1, "a/1.0"), ["answer a/1.0#1 succeeded by h for c1"], "the call is unharmed");
}

#[test]
fn every_result_is_passed_on_to_be_recorded() {
    let mut bench = bench();
    bench.running(1, "h", "a/1.0", "t");
    bench.join(2, "g", 8, &["t"]);
    assert_eq!(bench.answer(2, "a/1.0"), ["answer a/1.0#1 succeeded by g for c2"]);
    assert_eq!(bench.answer(1, "a/1.0#9"), ["answer a/1.0#9 succeeded by h for c1"]);
    assert_eq!(bench.answer(1, "x/1.0"), ["answer x/1.0#1 succeeded by h for c1"]);
    assert_eq!(bench.answer_with(1, "a/1.0", "forged"), ["answer a/1.0#1 succeeded by h for c1"]);
    assert_eq!((bench.ignored("h"), bench.ignored("g")), (3, 1));
    assert_eq!(bench.reclaim("a/1.0", "h", "t"), ["a/1.0: accepted #1 h"], "none of them took the call away");
    assert_eq!(bench.answer(1, "a/1.0"), ["answer a/1.0#1 succeeded by h for c1"]);
    assert_eq!(bench.answer(1, "a/1.0"), ["answer a/1.0#1 succeeded by h for c1"], "twice is judged twice");
}

#[test]
fn a_second_hello_is_a_violation() {
    let mut bench = bench();
    let hello = Hello {
        protocol_version: 1,
        host: super::bench::host("h"),
        instance: None,
        connection_no: 0,
        sdk: String::new(),
        labels: std::collections::BTreeMap::new(),
        capabilities: Vec::new(),
        max_frame_bytes: 0,
        calls_in_hand: Vec::new(),
        open_runtimes: Vec::new(),
        initial_credit: 0,
    };
    assert_eq!(
        bench.frame(1, HostFrame::Hello(Box::new(hello))),
        ["c1 <- protocol error", "c1 closed Violation", "unserved t"]
    );
    assert_eq!(bench.frame(1, HostFrame::Pong), [""; 0], "what comes after it is not looked at");
}

#[test]
fn questions_from_calls_go_to_their_run_and_the_answers_back() {
    let mut bench = bench();
    bench.running(1, "h", "a/1.0", "t");
    let question = need_input("a/1.0", "Which?");
    assert_eq!(bench.frame(1, question), ["a/1.0: input needed #1 q Which?"]);
    let text = InputAnswer::Text("Ulm".into());
    assert_eq!(bench.reply("a/1.0", text.clone()), [r#"c1 <- input q Text("Ulm")"#]);
    assert_eq!(bench.reply("a/1.0#2", text.clone()), [""; 0], "another attempt has not asked");
    let long = bench.reply("a/1.0", InputAnswer::Text("x".repeat(4_096)));
    assert!(long[0].contains("too large for the tool host"), "{long:?}");
    bench.disconnect(1);
    assert_eq!(bench.reply("a/1.0", text), [""; 0], "the host is away");
}

#[test]
fn a_released_call_leaves_its_host_and_frees_its_room() {
    let mut bench = bench();
    bench.running(1, "h", "a/1.0", "t");
    assert_eq!(bench.release_call("a/1.0#2"), [""; 0], "another attempt is not there");
    assert_eq!(bench.release_call("a/1.0"), ["c1 <- lease lost a/1.0#1"]);
    assert_eq!(bench.release_call("a/1.0"), [""; 0]);
    assert_eq!(bench.seek("a/1.0", "t"), ["a/1.0: granted h"], "its next attempt may go anywhere");
    let late = bench.frame(1, need_input("a/1.0", "Which?"));
    assert_eq!(late, ["c1 <- lease lost a/1.0#1"]);
}

#[test]
fn a_state_to_go_on_from_goes_to_its_run_and_is_acknowledged() {
    let mut bench = bench();
    bench.running(1, "h", "a/1.0", "t");
    let leaves = |no| HostFrame::Progress {
        call: call_ref("a/1.0"),
        message: String::new(),
        fraction: None,
        checkpoint: None,
        resumable: Some(Resumable { no, state: vec![7; 3] }),
    };
    assert_eq!(bench.frame(1, leaves(1)), ["a/1.0: resumable #1 1 3"]);
    assert_eq!(bench.recorded("a/1.0", 1), ["c1 <- state 1 of a/1.0#1"]);
    assert_eq!(bench.recorded("a/1.0#2", 1), [""; 0], "another attempt has left nothing");
    for _ in 1..RESUME_STATES_PER_ATTEMPT_MAX {
        assert_eq!(bench.frame(1, leaves(2)).len(), 1);
    }
    let more = bench.frame(1, leaves(2));
    assert!(more.contains(&"c1 closed Violation".to_owned()), "each is a durable write: {more:?}");
}

#[test]
fn a_question_confirms_its_call() {
    let mut bench = bench();
    bench.seek("a/1.0", "t");
    bench.offer("a/1.0", "h", "t");
    let lines = bench.frame(1, need_input("a/1.0", "Which?"));
    assert_eq!(lines, ["a/1.0: accepted #1 h", "a/1.0: input needed #1 q Which?"]);
}

#[test]
fn a_malformed_question_is_refused() {
    let mut bench = bench();
    bench.running(1, "h", "a/1.0", "t");
    let empty = bench.frame(1, need_input("a/1.0", ""));
    assert!(empty[0].starts_with("c1 <- input q Refused(\"question: must be"), "{empty:?}");
    let mut nowhere = need_input("a/1.0", "Pay here");
    if let HostFrame::NeedInput { question, .. } = &mut nowhere {
        question.url = Some("https://pay.example/\u{202e}gpj.exe".to_owned());
    }
    let refused = bench.frame(1, nowhere);
    assert!(refused[0].starts_with("c1 <- input q Refused(\"url: must be"), "{refused:?}");
    let mut over_at_once = need_input("a/1.0", "Which?");
    if let HostFrame::NeedInput { timeout, .. } = &mut over_at_once {
        *timeout = Some(Millis(0));
    }
    let refused = bench.frame(1, over_at_once);
    assert_eq!(refused, [r#"c1 <- input q Refused("its timeout must be more than zero")"#]);
    assert_eq!(bench.frame(1, need_input("x/1.0", "Which?")), ["c1 <- lease lost x/1.0#1"]);
    for _ in 3..INPUT_FRAMES_PER_CALL_MAX {
        assert_eq!(bench.frame(1, need_input("a/1.0", "Which?")).len(), 1);
    }
    let more = bench.frame(1, need_input("a/1.0", "Which?"));
    assert_eq!(more, [r#"c1 <- input q Refused("asked too often")"#]);
}

fn need_input(call: &str, text: &str) -> HostFrame {
    let question =
        QuestionContent { text: text.into(), input: Some("q".into()), ..QuestionContent::default() };
    HostFrame::NeedInput {
        call: call_ref(call),
        question: Box::new(question),
        timeout: None,
        resume_state: None,
    }
}
