//! Queued runs, which wait until all earlier runs of the session have ended.

use agentloop_client::v1 as wire;
use agentloop_tests::errors::{assert_refused, metadata};
use agentloop_tests::events::{assert_dense, durable, names};
use agentloop_tests::host::Host;
use agentloop_tests::input::in_session;
use agentloop_tests::model::Model;
use agentloop_tests::server::TestServer;
use agentloop_tests::soon;
use futures_util::future::join_all;
use serde_json::json;
use tonic::Code;
use wire::run_event::Event;
use wire::{RunStatus, WaitKind};

use super::{busy, delete, enqueued, interrupting, read, said};

const ROUNDS: u32 = 64;

async fn listed(server: &TestServer) -> Vec<String> {
    let request = wire::ListRunsRequest {
        session_id: "s1".to_owned(),
        statuses: vec![RunStatus::Queued.into()],
        ..Default::default()
    };
    let found = soon(server.agent_loop().list_runs(request)).await.expect("listed").into_inner();
    found.runs.into_iter().map(|run| run.run_id).collect()
}

#[tokio::test]
async fn they_go_one_after_the_other_in_the_order_they_came() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let mut speech = model.speaks();
    let first = server.stream(in_session("s1", "r1", "one")).await;
    speech.asked().await;
    let mut second = server.stream(enqueued("r2", "two")).await;
    let started = second.wait_for_name("run_started").await;
    let Some(Event::RunStarted(started)) = started.event else { panic!("{started:?}") };
    assert!(started.queued);
    let Some(Event::InputMessage(held)) = second.wait_for_name("input_message").await.event else {
        panic!("a message")
    };
    assert_eq!(held.entry_no, 0, "it is not in the session yet");
    let _third = server.stream(enqueued("r3", "three")).await;

    for (run, position) in [("r2", 1), ("r3", 2)] {
        let shown = server.get_run(run).await;
        assert_eq!((shown.status(), shown.queue_position), (RunStatus::Queued, position));
        let waiting = shown.waiting_on.expect("it waits");
        assert_eq!((waiting.kind(), waiting.what.as_str()), (WaitKind::Session, "s1"));
    }
    assert_eq!(listed(&server).await, ["r3", "r2"]);
    let refused = server.try_run(in_session("s1", "r4", "me too")).await;
    let refused = assert_refused(refused, Code::FailedPrecondition, "SESSION_BUSY");
    assert_eq!(metadata(&refused, "run_id"), "r1");
    assert_eq!(said(&server).await, ["one"]);

    model.says("second").says("third");
    speech.say("first");
    speech.end();
    // A unary call waits in the queue too.
    let third = server.run(enqueued("r3", "three")).await;
    assert_eq!((third.run_id.as_str(), third.status()), ("r3", RunStatus::Completed));
    assert_eq!(said(&server).await, ["one", "first", "two", "second", "three", "third"]);
    assert_eq!(read(&model.last_request()), ["one", "first", "two", "second", "three"]);

    first.rest().await;
    let events = second.rest().await;
    assert_dense(&events, 1);
    let wanted = [
        "run_started",
        "input_message",
        "session_entered",
        "input_entered",
        "model_call_started",
        "assistant_message",
        "run_finished",
    ];
    assert_eq!(names(&durable(&events)), wanted);
    assert_eq!(server.get_run("r2").await.queue_position, 0);
    assert_eq!(listed(&server).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_session_at_rest_takes_them_at_once() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let policies = [
        wire::BusySessionPolicy::Reject,
        wire::BusySessionPolicy::Enqueue,
        wire::BusySessionPolicy::Interrupt,
        wire::BusySessionPolicy::Steer,
    ];
    for (at, policy) in policies.into_iter().enumerate() {
        model.says("hello");
        let run = format!("r{at}");
        let events = server.stream(busy(policy, &run, "hi")).await.rest().await;
        let wanted =
            ["run_started", "input_message", "model_call_started", "assistant_message", "run_finished"];
        assert_eq!(names(&durable(&events)), wanted, "{policy:?}");
        let Some(Event::RunStarted(started)) = &events[0].event else { panic!("{events:?}") };
        assert_eq!((events[0].run_id.as_str(), started.queued), (run.as_str(), false));
    }
}

#[tokio::test]
async fn one_that_is_aborted_leaves_nothing_in_the_session() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let mut speech = model.speaks();
    let _first = server.stream(in_session("s1", "r1", "one")).await;
    speech.asked().await;
    let second = server.stream(enqueued("r2", "two")).await;
    let third = server.stream(enqueued("r3", "three")).await;
    assert_eq!(server.abort("r2").await.status(), RunStatus::Aborted);
    assert_eq!(server.abort("r2").await.status(), RunStatus::Aborted, "once more changes nothing");
    let events = second.rest().await;
    assert_eq!(names(&events), ["run_started", "input_message", "run_finished"]);
    assert_eq!(server.get_run("r3").await.queue_position, 1);
    model.says("third");
    speech.say("first");
    speech.end();
    third.rest().await;
    assert_eq!(said(&server).await, ["one", "first", "three", "third"]);
}

#[tokio::test]
async fn whose_caller_went_away_end_if_they_were_told_to() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let mut speech = model.speaks();
    let _first = server.stream(in_session("s1", "r1", "one")).await;
    speech.asked().await;
    let cancel = wire::DisconnectPolicy::Cancel.into();
    let second = wire::RunInput { on_disconnect: cancel, ..enqueued("r2", "two") };
    drop(server.stream(second).await);
    let events = server.subscribe("r2", 0).await.rest().await;
    assert_eq!(super::end(&events).code(), wire::RunErrorCode::AbortedByDisconnect);
    speech.end();
}

#[tokio::test]
async fn the_end_of_the_live_run_lets_the_next_in_however_it_ends() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let mut speech = model.speaks();
    let _first = server.stream(in_session("s1", "r1", "one")).await;
    speech.asked().await;
    model.fails(400);
    let second = server.stream(enqueued("r2", "two")).await;
    let third = server.stream(enqueued("r3", "three")).await;
    model.says("third");
    let request = wire::AbortRequest {
        target: Some(wire::abort_request::Target::SessionId("s1".to_owned())),
        reason: "enough".to_owned(),
    };
    let aborted = soon(server.agent_loop().abort(request)).await.expect("aborted").into_inner();
    assert_eq!((aborted.run_id.as_str(), aborted.status()), ("r1", RunStatus::Aborted));
    assert_eq!(super::end(&second.rest().await).code(), wire::RunErrorCode::ModelBadRequest);
    third.rest().await;
    assert_eq!(said(&server).await, ["one", "two", "three", "third"]);
}

#[tokio::test]
async fn a_restart_keeps_the_queue() {
    let model = Model::start().await;
    let mut server = TestServer::start(&model).await;
    let host = Host::start(&server).await;
    model.asks("mail", json!({ "to": "bob" }));
    server.run(in_session("s1", "r1", "one")).await;
    drop(host);
    // The first one waits for a human, and the next one waits for the first.
    for (run, text) in [("r2", "two"), ("r3", "three"), ("r4", "four")] {
        drop(server.stream(enqueued(run, text)).await);
    }
    server.restart().await;
    assert_eq!(server.get_run("r4").await.queue_position, 3);
    assert_eq!(server.abort("r3").await.status(), RunStatus::Aborted);
    model.says("first").says("second").says("fourth");
    let question = server.pending().await.remove(0);
    let deny = wire::decision::Decision::Deny(wire::Deny::default());
    server.decide(&question.request_id, deny).await.expect("decided");
    assert_eq!(server.run(enqueued("r4", "four")).await.status(), RunStatus::Completed);
    let said = said(&server).await;
    assert_eq!(said[said.len() - 5..], ["first", "two", "second", "four", "fourth"]);
}

#[tokio::test]
async fn stopped_in_the_middle_the_queue_goes_on_after_it() {
    let model = Model::start().await;
    let mut server = TestServer::start(&model).await;
    let mut speech = model.speaks();
    let _first = server.stream(in_session("s1", "r1", "one")).await;
    speech.asked().await;
    for (run, text) in [("r2", "two"), ("r3", "three")] {
        drop(server.stream(enqueued(run, text)).await);
    }
    server.stop().await;
    model.says("first").says("second").says("third");
    server.restart().await;
    server.subscribe("r3", 0).await.rest().await;
    assert_eq!(said(&server).await, ["one", "first", "two", "second", "three", "third"]);
}

#[tokio::test]
async fn a_queue_has_an_end_and_a_session_with_one_is_not_deleted() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let mut speech = model.speaks();
    let _first = server.stream(in_session("s1", "r0", "one")).await;
    speech.asked().await;
    for at in 1..=ROUNDS {
        drop(server.stream(enqueued(&format!("r{at}"), "more")).await);
    }
    let full = server.try_run(enqueued("late", "more")).await;
    assert_refused(full, Code::ResourceExhausted, "QUEUE_FULL");
    let request = wire::GetRunRequest { run_id: "late".to_owned() };
    let none = soon(server.agent_loop().get_run(request)).await;
    assert_refused(none, Code::NotFound, "RUN_NOT_FOUND");
    assert_refused(delete(&server).await, Code::FailedPrecondition, "SESSION_BUSY");
    model.answers(|_| agentloop_tests::model::Answer::Says("yes".to_owned()));
    speech.end();
    let last = server.subscribe(&format!("r{ROUNDS}"), 0).await.rest().await;
    assert_eq!(last.last().expect("events").status(), RunStatus::Completed);
    assert_eq!(said(&server).await.len() as u32, 2 * (ROUNDS + 1));
    assert!(delete(&server).await.expect("deleted"));
}

#[tokio::test]
async fn a_full_queue_keeps_nobody_from_interrupting() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let mut speech = model.speaks();
    let first = server.stream(in_session("s1", "r0", "one")).await;
    speech.asked().await;
    for at in 1..=ROUNDS {
        drop(server.stream(enqueued(&format!("r{at}"), "more")).await);
    }
    model.answers(|_| agentloop_tests::model::Answer::Says("yes".to_owned()));
    assert_eq!(server.run(interrupting("urgent", "stop")).await.status(), RunStatus::Completed);
    assert_eq!(first.rest().await.last().map(wire::RunEvent::status), Some(RunStatus::Aborted));
}

#[tokio::test]
async fn those_who_come_at_once_do_not_pass_the_end_of_a_queue() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let mut speech = model.speaks();
    let _first = server.stream(in_session("s1", "r0", "one")).await;
    speech.asked().await;
    let asked = (1..=ROUNDS + 16).map(|at| {
        let input = Some(enqueued(&format!("r{at}"), "more"));
        let mut caller = server.agent_loop();
        async move { soon(caller.run_stream(wire::RunStreamRequest { input, after_seq: 0 })).await }
    });
    let answers = join_all(asked).await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count() as u32, ROUNDS);
    for refused in answers.into_iter().filter_map(Result::err) {
        assert_refused::<()>(Err(refused), Code::ResourceExhausted, "QUEUE_FULL");
    }
}

#[tokio::test]
async fn the_same_request_again_is_the_same_place_in_the_queue() {
    let model = Model::start().await;
    let mut server = TestServer::start(&model).await;
    let mut speech = model.speaks();
    let _first = server.stream(in_session("s1", "r1", "one")).await;
    speech.asked().await;
    let (again, twice) = (enqueued("r2", "two"), enqueued("r2", "two"));
    let (one, other) = tokio::join!(server.stream(again), server.stream(twice));
    assert_eq!(listed(&server).await, ["r2"]);
    let reused = server.try_run(enqueued("r2", "another")).await;
    assert_refused(reused, Code::AlreadyExists, "ID_REUSED");
    drop((one, other));
    model.says("first").says("second");
    server.restart().await;
    assert_eq!(server.run(enqueued("r2", "two")).await.status(), RunStatus::Completed);
    assert_eq!(said(&server).await, ["one", "first", "two", "second"]);
}
