//! Memory of live runs has a bound: a start beyond it is refused, and a live run waits or fails.

use agentloop_client::v1 as wire;
use agentloop_tests::errors::assert_refused;
use agentloop_tests::input::{in_session, named};
use agentloop_tests::model::Model;
use agentloop_tests::process::eventually;
use agentloop_tests::server::TestServer;
use tonic::Code;
use tonic_types::StatusExt as _;
use wire::{RunErrorCode, RunStatus, WaitKind};

fn long(bytes: usize) -> String {
    "word ".repeat(bytes / 5)
}

#[tokio::test]
async fn a_prompt_that_never_fits_is_refused_for_good() {
    let model = Model::start().await;
    let server = TestServer::with_server(&model, "max_live_bytes = 1000000").await;
    let refused = server.try_run(named("r", &long(600_000))).await;
    let refused = assert_refused(refused, Code::ResourceExhausted, "MEMORY_EXHAUSTED");
    assert!(refused.get_details_retry_info().is_none(), "it need not come again");
    model.says("fine");
    assert_eq!(server.run(named("r", "hi")).await.status(), RunStatus::Completed);
}

#[tokio::test]
async fn a_start_beyond_the_bound_is_refused_until_there_is_room() {
    let model = Model::start().await;
    let server = TestServer::with_server(&model, "max_live_bytes = 1000000").await;
    let mut speech = model.speaks();
    let live = server.stream(named("r0", &long(300_000))).await;
    speech.asked().await;
    let refused = server.try_run(named("r1", &long(300_000))).await;
    let refused = assert_refused(refused, Code::ResourceExhausted, "MEMORY_EXHAUSTED");
    assert!(refused.get_details_retry_info().is_some_and(|retry| retry.retry_delay.is_some()));
    model.says("small");
    assert_eq!(server.run(named("r2", "hi")).await.status(), RunStatus::Completed);
    speech.end();
    live.rest().await;
    model.says("now");
    assert_eq!(server.run(named("r1", &long(300_000))).await.status(), RunStatus::Completed);
}

#[tokio::test]
async fn a_live_run_waits_for_memory_before_its_model_call() {
    let model = Model::start().await;
    let server = TestServer::with_server(&model, "max_live_bytes = 1000000").await;
    model.says("fine");
    server.run(in_session("s", "r1", &long(200_000))).await;
    let mut speech = model.speaks();
    let other = server.stream(named("other", &long(300_000))).await;
    speech.asked().await;
    let waits = server.stream(in_session("s", "r2", "hi")).await;
    eventually("the run to wait", || async {
        let run = server.get_run("r2").await;
        assert_eq!(run.status(), RunStatus::ModelRunning);
        (run.waiting_on?.kind() == WaitKind::Memory).then_some(())
    })
    .await;
    model.says("there is room");
    speech.end();
    other.rest().await;
    waits.rest().await;
    let run = server.get_run("r2").await;
    assert_eq!((run.status(), run.waiting_on), (RunStatus::Completed, None));
    // It read its session again, all of it.
    assert_eq!(model.last_request()["messages"].as_array().map(Vec::len), Some(3));
}

#[tokio::test]
async fn a_run_that_waits_for_memory_can_be_aborted() {
    let model = Model::start().await;
    let server = TestServer::with_server(&model, "max_live_bytes = 1000000").await;
    model.says("fine");
    server.run(in_session("s", "r1", &long(200_000))).await;
    let mut speech = model.speaks();
    let other = server.stream(named("other", &long(300_000))).await;
    speech.asked().await;
    let waits = server.stream(in_session("s", "r2", "hi")).await;
    server.abort("r2").await;
    waits.rest().await;
    assert_eq!(server.get_run("r2").await.status(), RunStatus::Aborted);
    speech.end();
    other.rest().await;
    model.says("again");
    assert_eq!(server.run(in_session("s", "r3", "hi")).await.status(), RunStatus::Completed);
}

#[tokio::test]
async fn a_run_that_needs_more_than_there_is_fails() {
    let model = Model::start().await;
    let server = TestServer::with_server(&model, "max_live_bytes = 700000").await;
    for run in ["r1", "r2"] {
        model.says("fine");
        let result = server.run(in_session("s", run, &long(150_000))).await;
        assert_eq!(result.status(), RunStatus::Completed, "{:?}", result.last_error);
    }
    let result = server.run(in_session("s", "r3", &long(150_000))).await;
    assert_eq!(result.status(), RunStatus::Failed);
    let error = result.last_error.expect("a reason");
    assert_eq!(error.code(), RunErrorCode::LimitMemory, "{}", error.message);
    assert!(error.message.contains("700000"), "{}", error.message);
}
