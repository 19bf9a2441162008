use agentloop_proto::v1::{AttemptEffect, CallFailed, CallResult};

use super::*;
use crate::host::{AskError, Output, ToolError};

const GRACE: Duration = Duration::ZERO;

fn request(call_id: &str, lease_token: &str) -> CallRequest {
    CallRequest {
        call_id: call_id.into(),
        attempt: 1,
        lease_token: lease_token.into(),
        ..CallRequest::default()
    }
}

fn key(call_id: &str) -> CallKey {
    CallKey::new(call_id, 1)
}

fn ended(text: &str) -> TaskOutcome {
    TaskOutcome::Ended(Ok(Output::text(text)))
}

fn result(call_id: &str, lease_token: &str, output: &str) -> Frame {
    Frame::CallResult(CallResult {
        call_id: call_id.into(),
        attempt: 1,
        lease_token: lease_token.into(),
        output: output.into(),
        images: vec![],
        ..CallResult::default()
    })
}

fn verdict(call_id: &str, disposition: CallDisposition) -> CallVerdict {
    CallVerdict { call_id: call_id.into(), attempt: 1, disposition: disposition.into() }
}

/// Two calls run; one more may start.
fn two_running() -> (Calls, Stop) {
    let mut calls = Calls::new(3);
    let stop = Stop::default();
    calls.start(&request("a", "lease-a"), stop.clone());
    calls.start(&request("b", "lease-b"), Stop::default());
    (calls, stop)
}

#[test]
fn a_result_is_repeated_until_it_is_acknowledged() {
    let (mut calls, _) = two_running();
    assert_eq!(calls.free(), 1);
    assert_eq!(calls.finish(&key("a"), ended("done")), [result("a", "lease-a", "done")]);
    assert_eq!((calls.free(), calls.unacknowledged()), (2, 1));

    let in_hand: Vec<_> = calls.in_hand().into_iter().map(|call| (call.call_id, call.finished)).collect();
    assert_eq!(in_hand, [("a".to_owned(), true), ("b".to_owned(), false)]);
    assert_eq!(
        calls.apply_verdicts(&[], GRACE),
        [result("a", "lease-a", "done")],
        "repeated after a reconnect"
    );

    calls.acknowledge(&key("a"));
    calls.acknowledge(&key("a"));
    assert_eq!(calls.unacknowledged(), 0);
    assert_eq!(calls.apply_verdicts(&[], GRACE), []);
    assert!(!calls.is_idle(), "b still runs");
}

#[test]
fn a_known_call_is_answered_without_running_again() {
    let (mut calls, _) = two_running();
    let again = request("a", "lease-2");
    assert_eq!(calls.look_up(&again), CallLookup::Known(vec![accepted(&key("a"))]), "while it runs");

    let told = calls.finish(&key("a"), ended("done"));
    assert_eq!(told, [result("a", "lease-2", "done")], "the latest lease counts");
    let answer = CallLookup::Known(vec![accepted(&key("a")), result("a", "lease-3", "done")]);
    assert_eq!(calls.look_up(&request("a", "lease-3")), answer, "before the acknowledgement");

    calls.acknowledge(&key("a"));
    let answer = CallLookup::Known(vec![accepted(&key("a")), result("a", "lease-4", "done")]);
    assert_eq!(calls.look_up(&request("a", "lease-4")), answer, "and after it");
    assert_eq!(calls.unacknowledged(), 1, "the server may have lost it");

    let next_attempt = CallRequest { attempt: 2, ..request("a", "lease-5") };
    assert_eq!(calls.look_up(&next_attempt), CallLookup::New, "another attempt is another call");
}

#[test]
fn a_call_with_another_idempotency_key_is_another_call() {
    let (mut calls, _) = two_running();
    let other = CallRequest { idempotency_key: "other".into(), ..request("a", "lease-2") };
    assert_eq!(calls.look_up(&other), CallLookup::IdInUse, "while the first still runs");
    assert_eq!(calls.finish(&key("a"), ended("first")), [result("a", "lease-a", "first")]);

    assert_eq!(calls.look_up(&other), CallLookup::New, "before the acknowledgement");
    assert_eq!(
        (calls.unacknowledged(), calls.results.unacknowledged_bytes()),
        (0, 0),
        "the first is dropped"
    );
    calls.start(&other, Stop::default());
    assert_eq!(calls.finish(&key("a"), ended("second")), [result("a", "lease-2", "second")]);

    calls.acknowledge(&key("a"));
    assert_eq!(calls.look_up(&request("a", "lease-3")), CallLookup::New, "and after it");
    assert_eq!(calls.cancel(&key("a"), GRACE), Some(cancel_ack(&key("a"), CancelOutcome::Unknown)));
}

#[test]
fn a_cancelled_call_that_stops_sends_no_result() {
    let (mut calls, stop) = two_running();
    assert_eq!(calls.cancel(&key("a"), GRACE), None, "it is acknowledged when it has ended");
    assert!(stop.token.is_cancelled());
    let frames = calls.finish(&key("a"), TaskOutcome::Stopped);
    assert_eq!(frames, [cancel_ack(&key("a"), CancelOutcome::Stopped)]);
    assert_eq!(calls.unacknowledged(), 0);
    assert_ne!(calls.look_up(&request("a", "lease")), CallLookup::New, "it is not run a second time");
}

#[test]
fn a_cancelled_call_that_did_nothing_was_not_begun() {
    let (mut calls, _) = two_running();
    calls.cancel(&key("a"), GRACE);
    let stopped = ToolError::failed("it waited for its runtime").did_nothing();
    let frames = calls.finish(&key("a"), TaskOutcome::Ended(Err(stopped)));
    assert_eq!(frames, [cancel_ack(&key("a"), CancelOutcome::NotBegun)]);
}

#[test]
fn a_cancelled_call_that_finishes_sends_its_result() {
    let (mut calls, _) = two_running();
    calls.cancel(&key("a"), GRACE);
    let frames = calls.finish(&key("a"), ended("done"));
    let finished = cancel_ack(&key("a"), CancelOutcome::Finished);
    assert_eq!(frames, [result("a", "lease-a", "done"), finished.clone()]);
    assert_eq!(calls.cancel(&key("a"), GRACE), Some(finished.clone()));
    calls.acknowledge(&key("a"));
    assert_eq!(calls.cancel(&key("a"), GRACE), Some(finished));
    assert_eq!(calls.cancel(&key("x"), GRACE), Some(cancel_ack(&key("x"), CancelOutcome::Unknown)));
}

#[test]
fn an_abandoned_call_ends_silently() {
    let (mut calls, stop) = two_running();
    calls.abandon(&key("a"), GRACE);
    assert!(stop.token.is_cancelled());
    assert_eq!(calls.free(), 1, "it counts until it has ended");
    let refs: Vec<_> = calls.refs().into_iter().map(|call| call.call_id).collect();
    assert_eq!(refs, ["b"]);
    assert_eq!(calls.finish(&key("a"), ended("done")), []);
    assert_eq!(calls.free(), 2);
}

#[test]
fn verdicts_of_a_welcome_are_applied() {
    let (mut calls, stop) = two_running();
    calls.start(&request("c", "lease-c"), Stop::default());
    calls.finish(&key("b"), ended("b is done"));
    calls.finish(&key("c"), ended("c is done"));
    let verdicts = [
        verdict("a", CallDisposition::Stop),
        verdict("b", CallDisposition::AlreadyRecorded),
        verdict("c", CallDisposition::Continue),
    ];
    assert_eq!(calls.apply_verdicts(&verdicts, GRACE), [result("c", "lease-c", "c is done")]);
    assert!(stop.token.is_cancelled());
    assert_eq!(calls.unacknowledged(), 1);
}

#[test]
fn the_last_checkpoint_is_repeated() {
    let (mut calls, _) = two_running();
    let progress = |checkpoint: Option<&[u8]>| Progress {
        call_id: "a".into(),
        attempt: 1,
        checkpoint: checkpoint.map(<[u8]>::to_vec),
        ..Progress::default()
    };
    assert!(calls.progress(progress(Some(b"one"))).is_some());
    assert!(calls.progress(progress(None)).is_some());
    assert_eq!(calls.apply_verdicts(&[], GRACE), [Frame::Progress(progress(Some(b"one")))]);
    assert_eq!(calls.progress(Progress { call_id: "x".into(), ..Progress::default() }), None);
}

#[test]
fn buffered_output_comes_before_the_result() {
    let (mut calls, _) = two_running();
    assert_eq!(calls.output(&key("a"), OutputStream::Stdout, b"hello"), []);
    let frames = calls.finish(&key("a"), ended("done"));
    assert!(matches!(&frames[0], Frame::OutputChunk(chunk) if chunk.data == b"hello"), "{frames:?}");
    assert_eq!(frames[1], result("a", "lease-a", "done"));
}

#[test]
fn a_call_stopped_by_the_host_may_be_tried_again() {
    let (mut calls, stop) = two_running();
    calls.stop_all(GRACE);
    assert!(stop.token.is_cancelled());
    let frames = calls.finish(&key("a"), TaskOutcome::Stopped);
    assert!(matches!(&frames[..], [Frame::CallFailed(CallFailed { retryable: true, .. })]), "{frames:?}");
}

#[test]
fn a_failure_is_repeated_like_a_result() {
    let (mut calls, _) = two_running();
    let failed = TaskOutcome::Ended(Err(ToolError::failed("no").did_nothing()));
    let frames = calls.finish(&key("a"), failed);
    assert_eq!(calls.apply_verdicts(&[], GRACE), frames);
}

#[test]
fn a_result_that_the_server_refuses_becomes_a_failure() {
    let (mut calls, _) = two_running();
    calls.finish(&key("a"), ended("malformed"));
    calls.give_up_refused("b", "it still runs");
    calls.give_up_refused("", "no call's");
    assert_eq!(calls.apply_verdicts(&[], GRACE), [result("a", "lease-a", "malformed")]);

    calls.give_up_refused("a", &"ä".repeat(10_000));
    let frames = calls.apply_verdicts(&[], GRACE);
    let [Frame::CallFailed(failed)] = &frames[..] else { panic!("no failure: {frames:?}") };
    assert_eq!((failed.call_id.as_str(), failed.lease_token.as_str()), ("a", "lease-a"));
    assert_eq!(failed.effect(), AttemptEffect::Done);
    assert!(failed.message.starts_with("the server refused the result: ää"), "{}", failed.message);
    assert!(failed.message.len() < 4200, "the server's message is cut");

    calls.acknowledge(&key("a"));
    assert_eq!((calls.unacknowledged(), calls.results.unacknowledged_bytes()), (0, 0));
}

/// Two calls run, and the server accepts frames of at most `bytes`.
fn with_frame_bound(bytes: u64) -> Calls {
    let (mut calls, _) = two_running();
    calls.set_frame_bound(FrameBound::new(bytes));
    calls
}

#[test]
fn a_result_larger_than_the_server_accepts_becomes_a_failure() {
    let mut calls = with_frame_bound(65_536);
    let fits = "x".repeat(65_536 - 22);
    assert_eq!(calls.finish(&key("b"), ended(&fits)), [result("b", "lease-b", &fits)], "to the last byte");

    let frames = calls.finish(&key("a"), ended(&"x".repeat(65_536 - 21)));
    let [Frame::CallFailed(failed)] = &frames[..] else { panic!("no failure: {frames:?}") };
    assert_eq!(failed.message, "the result has 65537 bytes with its frame; the server takes 65536");
    assert_eq!((failed.effect(), failed.retryable), (AttemptEffect::Done, false));
    assert_eq!(calls.results.unacknowledged_bytes(), fits.len() + failed.message.len());
}

#[test]
fn an_older_result_is_cut_to_the_bound_of_a_new_server() {
    let (mut calls, _) = two_running();
    calls.finish(&key("a"), ended(&"x".repeat(5000)));
    let failed = TaskOutcome::Ended(Err(ToolError::failed("ä".repeat(5000)).did_nothing()));
    calls.finish(&key("b"), failed);
    calls.set_frame_bound(FrameBound::new(4096));
    let frames = calls.apply_verdicts(&[], GRACE);
    assert!(frames.iter().all(|frame| calls.bound.fits(frame)), "{frames:?}");
    let [Frame::CallFailed(too_large), Frame::CallFailed(failed)] = &frames[..] else { panic!("{frames:?}") };
    assert!(too_large.message.contains("the server takes 4096"), "{}", too_large.message);
    assert_eq!(failed.effect(), AttemptEffect::None);
    assert!(failed.message.len() > 4000, "the beginning is left: {}", failed.message.len());
}

#[test]
fn a_checkpoint_or_question_that_no_frame_can_carry_is_dropped() {
    let mut calls = with_frame_bound(4096);
    let checkpoint = Some(vec![0; 4096]);
    let progress = Progress { call_id: "a".into(), attempt: 1, checkpoint, ..Progress::default() };
    let told = Frame::Progress(Progress { checkpoint: None, ..progress.clone() });
    assert_eq!(calls.progress(progress), Some(told.clone()));

    let (answer, mut answered) = oneshot::channel();
    let long = NeedInput { question: "x".repeat(4096), ..question("a", "q") };
    assert_eq!(calls.ask(long, answer), None);
    assert!(matches!(answered.try_recv(), Ok(Response::Refused(why)) if why.contains("4096")));
    assert_eq!(calls.apply_verdicts(&[], GRACE), [told]);
}

#[test]
fn too_many_unacknowledged_results_stop_new_calls() {
    let mut calls = Calls::new(4);
    for n in 0..results::UNACKNOWLEDGED_MAX {
        let id = n.to_string();
        assert_eq!(calls.free(), 4);
        calls.start(&request(&id, "lease"), Stop::default());
        calls.finish(&key(&id), ended("done"));
    }
    assert_eq!(calls.free(), 0);
    calls.acknowledge(&key("0"));
    assert_eq!(calls.free(), 4);
}

fn question(call_id: &str, input_id: &str) -> NeedInput {
    NeedInput { call_id: call_id.into(), attempt: 1, input_id: input_id.into(), ..NeedInput::default() }
}

fn input_response(call_id: &str, input_id: &str) -> InputResponse {
    let response = Some(Response::Text("12A".into()));
    InputResponse { call_id: call_id.into(), input_id: input_id.into(), response }
}

#[test]
fn an_acknowledgement_is_for_every_state_up_to_its_number() {
    let (mut calls, _) = two_running();
    let mut save = |resume_no| {
        let (recorded, is_recorded) = oneshot::channel();
        let resume_state = Some(vec![7]);
        let progress =
            Progress { call_id: "a".into(), attempt: 1, resume_state, resume_no, ..Progress::default() };
        let frame = Frame::Progress(progress.clone());
        assert_eq!(calls.save_state(UnrecordedState { progress, recorded }), Some(frame.clone()));
        (frame, is_recorded)
    };
    // Tasks that save at the same time may come in any order.
    let (_, mut two) = save(2);
    let (_, mut one) = save(1);
    let (last, mut three) = save(3);
    let ack = |resume_no| ProgressAck { call_id: "a".into(), attempt: 1, resume_no };
    calls.state_recorded(&ack(2));
    assert_eq!((one.try_recv(), two.try_recv()), (Ok(Ok(())), Ok(Ok(()))));
    assert_eq!(three.try_recv(), Err(oneshot::error::TryRecvError::Empty));
    assert_eq!(calls.apply_verdicts(&[], GRACE), [last]);
    calls.state_recorded(&ack(3));
    assert_eq!(three.try_recv(), Ok(Ok(())));
    assert_eq!(calls.apply_verdicts(&[], GRACE), []);
}

#[test]
fn a_question_is_asked_again_until_it_is_answered() {
    let (mut calls, _) = two_running();
    let (seat, mut seated) = oneshot::channel();
    let (given_up, listener) = oneshot::channel();
    let asking = Frame::NeedInput(question("a", "seat"));
    assert_eq!(calls.ask(question("a", "seat"), seat), Some(asking.clone()));
    calls.ask(question("a", "side"), given_up);
    drop(listener);
    assert_eq!(
        calls.apply_verdicts(&[], GRACE),
        [asking],
        "a question that its handler gave up is not repeated"
    );

    calls.answer_question(&input_response("b", "seat"));
    calls.answer_question(&input_response("a", "row"));
    assert!(seated.try_recv().is_err(), "the answers are for other questions");
    calls.answer_question(&input_response("a", "seat"));
    assert_eq!(seated.try_recv(), Ok(Response::Text("12A".into())));
    assert_eq!(calls.apply_verdicts(&[], GRACE), []);
}

#[test]
fn the_answer_goes_to_the_attempt_that_the_server_waits_for() {
    let (mut calls, _) = two_running();
    let (first, mut first_answer) = oneshot::channel();
    let (second, mut second_answer) = oneshot::channel();
    calls.ask(question("a", "seat"), first);
    calls.abandon(&key("a"), GRACE);
    let again = CallRequest { attempt: 2, ..request("a", "lease-2") };
    calls.start(&again, Stop::default());
    calls.ask(NeedInput { attempt: 2, ..question("a", "seat") }, second);
    calls.answer_question(&input_response("a", "seat"));
    assert!(first_answer.try_recv().is_err());
    assert!(second_answer.try_recv().is_ok());
}

#[test]
fn a_cancelled_call_asks_nobody() {
    let (mut calls, _) = two_running();
    let (answer, mut answered) = oneshot::channel();
    calls.cancel(&key("a"), GRACE);
    assert_eq!(calls.ask(question("a", "seat"), answer), None);
    assert_eq!(answered.try_recv(), Err(oneshot::error::TryRecvError::Closed));
}

#[test]
fn what_the_server_refuses_of_a_running_call_does_not_come_again() {
    let (mut calls, _) = two_running();
    let mut asks = |input_id: &str| {
        let (answer, answered) = oneshot::channel();
        let question =
            NeedInput { call_id: "a".into(), attempt: 1, input_id: input_id.into(), ..NeedInput::default() };
        calls.ask(question, answer).expect("the call is wanted");
        answered
    };
    let (mut older, mut newest) = (asks("older"), asks("newest"));
    let (recorded, mut is_recorded) = oneshot::channel();
    let progress = Progress { call_id: "a".into(), attempt: 1, resume_no: 1, ..Progress::default() };
    calls.save_state(UnrecordedState { progress, recorded }).expect("the call is wanted");

    calls.give_up_refused("a", "bad");
    let refused = |what| format!("the server refused the {what}: bad");
    assert_eq!(newest.try_recv(), Ok(Response::Refused(refused("question"))));
    assert!(older.try_recv().is_err(), "it got past the server");
    assert_eq!(calls.apply_verdicts(&[], GRACE).len(), 2, "a question and a state are repeated");

    calls.give_up_refused("a", "bad");
    assert_eq!(older.try_recv(), Ok(Response::Refused(refused("question"))));
    calls.give_up_refused("a", "bad");
    assert_eq!(is_recorded.try_recv(), Ok(Err(AskError::Refused(refused("resume state")))));
    assert_eq!(calls.apply_verdicts(&[], GRACE), []);
}
