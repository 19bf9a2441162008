//! Memory of live runs has a bound: a start beyond it is refused, and a live run waits or fails.

use agentloop_client::{Client, Error, v1 as wire};
use agentloop_tests::credentials::SecurityFiles;
use agentloop_tests::errors::assert_refused;
use agentloop_tests::events::text;
use agentloop_tests::input::{in_session, named};
use agentloop_tests::model::{Model, Speech};
use agentloop_tests::process::eventually;
use agentloop_tests::server::TestServer;
use agentloop_tests::soon;
use tonic::Code;
use tonic_types::StatusExt as _;
use wire::{ErrorReason, RunErrorCode, RunStatus, WaitKind};

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

/// An answer is charged as it grows. It takes the room of what comes after it, and is never cut for want of room.
#[tokio::test]
async fn an_answer_longer_than_its_reservation_takes_the_room_of_others_and_comes_whole() {
    let model = Model::start().await;
    let server = TestServer::with_server(&model, "max_live_bytes = 1000000").await;
    let mut speech = model.speaks();
    let mut speaks = server.stream(named("speaks", "hi")).await;
    speech.asked().await;
    model.says("small");
    assert_eq!(server.run(named("before", "hi")).await.status(), RunStatus::Completed);
    let pieces: Vec<String> = (0..3).map(|at| format!("{}piece {at}. ", long(400_000))).collect();
    pieces.iter().for_each(|piece| speech.say(piece));
    // Events that wait for a run's caller are charged.
    speaks.wait_for(|event| format!("{event:?}").contains("piece 2. ")).await;
    let refused = server.try_run(named("after", "hi")).await;
    let refused = assert_refused(refused, Code::ResourceExhausted, "MEMORY_EXHAUSTED");
    assert!(refused.get_details_retry_info().is_some(), "there will be room");
    speech.end();
    speaks.rest().await;
    let run = server.run(named("speaks", "hi")).await;
    assert_eq!(run.status(), RunStatus::Completed);
    let said = text(&run.final_assistant_message.expect("an answer"));
    assert_eq!(said.len(), pieces.concat().len(), "all of it, though it is more than all runs may have");
    model.says("now");
    assert_eq!(server.run(named("after", "hi")).await.status(), RunStatus::Completed);
}

/// More runs than there is room for are taken over. Each goes on when those before it are done.
#[tokio::test]
async fn after_a_restart_runs_go_on_in_the_order_of_their_creation_while_there_is_room() {
    // Neither the order of the names nor its reverse.
    const RUNS: [&str; 8] = ["d", "b", "h", "a", "g", "c", "f", "e"];
    let model = Model::start().await;
    let mut server = TestServer::with_server(&model, "max_live_bytes = 100000000").await;
    let mut before = Vec::new();
    for run in RUNS {
        let mut speech = model.speaks();
        let events = server.stream(in_session(run, run, &format!("{run}: {}", long(300_000)))).await;
        speech.asked().await;
        before.push((events, speech));
    }
    let speeches = RUNS.map(|_| model.speaks());
    server.reconfigure("max_live_bytes = 100000000", "max_live_bytes = 700000").await;
    drop(before);
    for (at, mut speech) in speeches.into_iter().enumerate() {
        let request = speech.asked().await;
        let prompt = request["messages"][0]["content"].as_str().expect("the prompt");
        assert_eq!(&prompt[..3], format!("{}: ", RUNS[at]), "run {at}");
        for next in RUNS.iter().skip(at + 1) {
            eventually("those after it to wait", || async {
                let run = server.get_run(next).await;
                (run.waiting_on?.kind() == WaitKind::Memory).then_some(())
            })
            .await;
        }
        assert_eq!(model.requests().len(), RUNS.len() + at + 1, "one at a time has room");
        speech.say("fine");
        speech.end();
    }
    for run in RUNS {
        let events = server.subscribe(run, 0).await.rest().await;
        assert_eq!(events.last().map(wire::RunEvent::status), Some(RunStatus::Completed), "{run}");
    }
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

/// Two tenants at a server with four megabytes.
async fn two_tenants(model: &Model) -> (TestServer, [Client; 2], SecurityFiles) {
    let files = SecurityFiles::new();
    let tokens = ["red", "blue"].map(|tenant| files.token("ada", tenant, &["caller"]));
    let server = TestServer::configured(model, "max_live_bytes = 4000000", &files.auth()).await;
    let clients = tokens.map(|token| server.as_caller(&token));
    (server, clients, files)
}

/// Starts a run with a long prompt of its own, and waits until its model is asked, which is to speak so.
async fn speaks(client: &Client, speech: &mut Speech, run: usize, bytes: usize) -> Result<(), Error> {
    let prompt = format!("{run}: {}", long(bytes));
    drop(Box::pin(soon(client.run_stream(named(&format!("r{run}"), &prompt)))).await?);
    speech.asked().await;
    Ok(())
}

fn assert_exhausted(refused: &Error) {
    let status = refused.status().expect("a status");
    assert_eq!((status.code, status.reason), (Code::ResourceExhausted, Some(ErrorReason::MemoryExhausted)));
    assert!(status.retry_after.is_some(), "{status:?}");
}

#[tokio::test]
async fn a_tenant_whose_run_waits_for_memory_keeps_no_other_from_starting() {
    let model = Model::start().await;
    let (_server, [red, blue], _files) = two_tenants(&model).await;
    model.says("fine");
    soon(red.run(in_session("s", "before", &long(1_000_000)))).await.expect("it ends");
    let mut live = Vec::new();
    for run in 0..4 {
        live.push(model.speaks());
        speaks(&red, &mut live[run], run, 300_000).await.expect("there is room");
    }
    drop(Box::pin(soon(red.run_stream(in_session("s", "waits", "hi")))).await.expect("it starts"));
    eventually("the run to wait", || async {
        let run = red.get_run("waits").await.expect("it is there");
        (run.waiting_on?.kind() == WaitKind::Memory).then_some(())
    })
    .await;
    assert_exhausted(&soon(red.run(named("more", "hi"))).await.expect_err("another of its runs waits"));
    model.says("fine");
    let run = soon(blue.run(named("r", "hi"))).await.expect("there is room for another tenant");
    assert_eq!(run.status(), RunStatus::Completed);
    model.says("at last");
    live.into_iter().for_each(Speech::end);
    eventually("the end of the run", || async {
        let run = red.get_run("waits").await.expect("it is there");
        (run.status() == RunStatus::Completed).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_tenant_leaves_memory_for_the_runs_of_others() {
    let model = Model::start().await;
    let (_server, [red, blue], _files) = two_tenants(&model).await;
    let mut live = vec![model.speaks()];
    let refused = loop {
        let run = live.len();
        match speaks(&red, &mut live[run - 1], run, 100_000).await {
            Ok(()) => live.push(model.speaks()),
            Err(refused) => break refused,
        }
    };
    assert_exhausted(&refused);
    assert!(live.len() > 5, "it has most of the memory: {}", live.len());
    let last = live.last_mut().expect("one that no model call has taken");
    speaks(&blue, last, 0, 10_000).await.expect("there is room for another tenant");
    live.into_iter().for_each(Speech::end);
}
