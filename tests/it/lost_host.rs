//! A tool's host goes away, for a while or for good.

use agentloop_client::v1 as wire;
use agentloop_tests::errors::assert_refused;
use agentloop_tests::events::{Events, names, results};
use agentloop_tests::host::Host;
use agentloop_tests::input::{in_session, named};
use agentloop_tests::model::Model;
use agentloop_tests::raw_host::{RawHost, declared, hello, result_of};
use agentloop_tests::server::TestServer;
use agentloop_tests::soon;
use serde_json::json;
use tonic::Code;
use wire::complete_call_request::Outcome;
use wire::connect_request::Frame;
use wire::connect_response::Frame as ServerFrame;
use wire::run_event::Event;
use wire::{EffectClass, ResultVerdict, RunStatus, ToolStatus};

async fn complete(server: &TestServer, result: wire::CallResult) -> Result<ResultVerdict, tonic::Status> {
    let request = wire::CompleteCallRequest { outcome: Some(Outcome::Result(result)) };
    Ok(soon(server.tool_host().complete_call(request)).await?.into_inner().verdict())
}

#[tokio::test]
async fn a_result_is_given_without_a_stream() {
    let model = Model::start().await;
    let mut server = TestServer::start(&model).await;
    let mut host = RawHost::welcomed(&server, "h1", vec![declared("job", EffectClass::Unsafe)]).await;
    model.asks("job", json!({})).says("done");
    let mut events = server.stream(named("r1", "go")).await;
    let call = host.take_call().await;
    events.wait_for_name("tool_call_accepted").await;
    drop(host);
    let result = result_of(&call, "finished");
    let forged = wire::CallResult { lease_token: "another".to_owned(), ..result.clone() };
    assert_refused(complete(&server, forged).await, Code::NotFound, "CALL_NOT_FOUND");
    assert_eq!(complete(&server, result.clone()).await.expect("taken"), ResultVerdict::Recorded);
    assert_eq!(results(&events.rest().await)[0].output, "finished");
    for _ in 0..2 {
        assert_eq!(complete(&server, result.clone()).await.expect("known"), ResultVerdict::Duplicate);
        server.restart().await;
    }
}

#[tokio::test]
async fn a_result_that_comes_after_the_end_is_stale() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let mut host = RawHost::welcomed(&server, "h1", vec![declared("job", EffectClass::Unsafe)]).await;
    model.asks("job", json!({}));
    let events = server.stream(named("r1", "go")).await;
    let call = host.take_call().await;
    server.abort("r1").await;
    let cancel = host.wait_for(|frame| matches!(frame, ServerFrame::Cancel(_))).await;
    let ServerFrame::Cancel(cancel) = cancel else { unreachable!("it was waited for") };
    assert_eq!((cancel.call_id.as_str(), cancel.attempt), (call.call_id.as_str(), 1));
    assert_eq!(cancel.cause(), wire::CancelCause::Aborted);
    assert_eq!(cancel.reason, "enough");
    assert_eq!(complete(&server, result_of(&call, "late")).await.expect("known"), ResultVerdict::Stale);
    assert_eq!(results(&events.rest().await)[0].status(), ToolStatus::Aborted);
}

/// A call of a tool that gives up after 100 ms, with its cancel, which comes before the call has any result.
async fn overdue_call(host: &mut RawHost, events: &mut Events) -> wire::CallRequest {
    let call = host.take_call().await;
    events.wait_for_name("tool_call_accepted").await;
    let cancel = host.wait_for(|frame| matches!(frame, ServerFrame::Cancel(_))).await;
    let ServerFrame::Cancel(cancel) = cancel else { unreachable!("it was waited for") };
    assert_eq!((cancel.call_id.as_str(), cancel.attempt), (call.call_id.as_str(), 1));
    assert_eq!(cancel.cause(), wire::CancelCause::Deadline);
    call
}

fn impatient() -> wire::ToolDeclaration {
    let timeout = prost_types::Duration { seconds: 0, nanos: 100_000_000 };
    wire::ToolDeclaration { timeout: Some(timeout), ..declared("job", EffectClass::Unsafe) }
}

fn ack(call: &wire::CallRequest, outcome: wire::CancelOutcome) -> Frame {
    let (call_id, attempt) = (call.call_id.clone(), call.attempt);
    Frame::CancelAck(wire::CancelAck { call_id, attempt, outcome: outcome.into() })
}

#[tokio::test]
async fn an_unsafe_call_at_its_deadline_waits_for_its_late_result() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let mut host = RawHost::welcomed(&server, "h1", vec![impatient()]).await;
    model.asks("job", json!({})).says("done");
    let mut events = server.stream(named("r1", "go")).await;
    let call = overdue_call(&mut host, &mut events).await;
    host.send(ack(&call, wire::CancelOutcome::Stopped));
    let asked = events.wait_for_name("human_requested").await;
    let Some(Event::HumanRequested(asked)) = asked.event else { panic!("a question") };
    let question = asked.request.expect("a question");
    assert_eq!(question.kind(), wire::HumanRequestKind::InDoubt);
    assert!(question.question.contains("no answer within 1 s"), "{}", question.question);
    assert_eq!(complete(&server, result_of(&call, "late")).await.expect("taken"), ResultVerdict::Recorded);
    let results = results(&events.rest().await);
    assert_eq!((results[0].status(), results[0].output.as_str()), (ToolStatus::Succeeded, "late"));
}

#[tokio::test]
async fn an_unsafe_call_times_out_if_the_operator_says_that_this_is_an_outcome() {
    let model = Model::start().await;
    let policy = "[agents.default.tool_policy]\ndeadline_is_outcome = [\"job\"]\n";
    let server = TestServer::with(&model, policy).await;
    let mut host = RawHost::welcomed(&server, "h1", vec![impatient()]).await;
    model.asks("job", json!({})).says("done");
    let mut events = server.stream(named("r1", "go")).await;
    overdue_call(&mut host, &mut events).await;
    let events = events.rest().await;
    assert!(!names(&events).contains(&"human_requested"), "nothing is in doubt");
    let result = &results(&events)[0];
    assert_eq!(result.status(), ToolStatus::TimedOut);
    assert!(result.output.contains("may have taken effect"), "{}", result.output);
}

#[tokio::test]
async fn an_unsafe_call_times_out_if_its_host_declares_that_this_is_an_outcome() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let declared = wire::ToolDeclaration { deadline_is_outcome: true, ..impatient() };
    let mut host = RawHost::welcomed(&server, "h1", vec![declared]).await;
    model.asks("job", json!({})).says("done");
    let mut events = server.stream(named("r1", "go")).await;
    let call = overdue_call(&mut host, &mut events).await;
    let events = events.rest().await;
    assert!(!names(&events).contains(&"human_requested"), "nothing is in doubt");
    let result = &results(&events)[0];
    assert_eq!(result.status(), ToolStatus::TimedOut);
    assert!(result.output.contains("may have taken effect"), "{}", result.output);
    let late = complete(&server, result_of(&call, "late")).await;
    assert_eq!(late.expect("known"), ResultVerdict::Stale, "the deadline was the outcome");
}

#[tokio::test]
async fn an_unsafe_call_that_was_not_begun_times_out() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let mut host = RawHost::welcomed(&server, "h1", vec![impatient()]).await;
    model.asks("job", json!({})).says("done");
    let mut events = server.stream(named("r1", "go")).await;
    let call = overdue_call(&mut host, &mut events).await;
    host.send(ack(&call, wire::CancelOutcome::NotBegun));
    let results = results(&events.rest().await);
    assert_eq!(results[0].status(), ToolStatus::TimedOut);
}

#[tokio::test]
async fn a_host_that_comes_back_goes_on_with_its_calls() {
    let model = Model::start().await;
    let mut server = TestServer::start(&model).await;
    let tools = || vec![declared("job", EffectClass::Unsafe)];
    let mut host = RawHost::welcomed(&server, "h1", tools()).await;
    model.asks("job", json!({})).says("done");
    let mut events = server.stream(named("r1", "go")).await;
    let call = host.take_call().await;
    events.wait_for_name("tool_call_accepted").await;
    drop(host);
    server.restart().await;
    let mut host = RawHost::open(&server).await;
    let in_hand = wire::CallInHand {
        call_id: call.call_id.clone(),
        attempt: 1,
        lease_token: call.lease_token.clone(),
        finished: false,
    };
    host.send(Frame::Hello(wire::Hello { calls_in_hand: vec![in_hand], ..hello("h1", tools()) }));
    let ServerFrame::Welcome(welcome) = host.wait_for(|_| true).await else { panic!("welcome comes first") };
    assert_eq!(welcome.calls[0].disposition(), wire::CallDisposition::Continue);
    host.send(Frame::CallResult(result_of(&call, "finished")));
    let ack = host.wait_for(|frame| matches!(frame, ServerFrame::ResultAck(_))).await;
    let ServerFrame::ResultAck(ack) = ack else { unreachable!("it was waited for") };
    assert_eq!(ack.verdict(), ResultVerdict::Recorded);
    let result = server.run(named("r1", "go")).await;
    assert_eq!(result.status(), RunStatus::Completed);
}

/// Hosts are given up at once.
const NO_GRACE: &str = "[hosts]\ngrace_period = \"0s\"\nhost_wait = \"100ms\"";

#[tokio::test]
async fn a_repeatable_call_goes_to_another_host() {
    let model = Model::start().await;
    let server = TestServer::with(&model, NO_GRACE).await;
    let tools = || vec![declared("look", EffectClass::ReadOnly)];
    let mut first = RawHost::welcomed(&server, "h1", tools()).await;
    model.asks("look", json!({})).says("done");
    let mut events = server.stream(named("r1", "go")).await;
    let before = first.take_call().await;
    events.wait_for_name("tool_call_accepted").await;
    let mut second = RawHost::welcomed(&server, "h2", tools()).await;
    drop(first);
    let after = second.take_call().await;
    assert_eq!((after.attempt, &after.call_id), (2, &before.call_id));
    assert_eq!(after.idempotency_key, before.idempotency_key);
    assert_ne!(after.lease_token, before.lease_token);
    second.send(Frame::CallResult(result_of(&after, "seen")));
    assert_eq!(results(&events.rest().await)[0].output, "seen");
}

#[tokio::test]
async fn a_repeatable_call_waits_for_another_host() {
    let model = Model::start().await;
    let server = TestServer::with(&model, "[hosts]\ngrace_period = \"0s\"").await;
    let tools = || vec![declared("look", EffectClass::ReadOnly)];
    let mut first = RawHost::welcomed(&server, "h1", tools()).await;
    model.asks("look", json!({})).says("done");
    let mut events = server.stream(named("r1", "go")).await;
    first.take_call().await;
    drop(first);
    events.wait_for_name("tool_call_attempt_failed").await;
    assert_eq!(server.get_run("r1").await.waiting_on.map(|on| on.kind()), Some(wire::WaitKind::ToolHost));
    let mut second = RawHost::welcomed(&server, "h2", tools()).await;
    let call = second.take_call().await;
    assert_eq!(call.attempt, 2);
    second.send(Frame::CallResult(result_of(&call, "seen")));
    assert_eq!(results(&events.rest().await)[0].output, "seen");
}

#[tokio::test]
async fn an_unsafe_call_is_put_to_a_human() {
    let model = Model::start().await;
    let server = TestServer::with(&model, NO_GRACE).await;
    let mut host = RawHost::welcomed(&server, "h1", vec![declared("pay", EffectClass::Unsafe)]).await;
    model.asks("pay", json!({})).says("I do not know");
    let mut events = server.stream(named("r1", "go")).await;
    host.take_call().await;
    events.wait_for_name("tool_call_accepted").await;
    drop(host);
    events.wait_for_name("human_requested").await;
    let waits = server.run(named("r1", "go")).await;
    assert_eq!(waits.status(), RunStatus::AwaitingHuman);
    let question = &waits.pending[0];
    assert_eq!(question.kind(), wire::HumanRequestKind::InDoubt);
    let deny = wire::decision::Decision::Deny(wire::Deny { message: "ask the bank".to_owned() });
    server.decide(&question.request_id, deny).await.expect("decided");
    let result = results(&events.rest().await).remove(0);
    assert_eq!(result.status(), ToolStatus::OutcomeUnknown);
    assert!(result.output.contains("ask the bank"), "{}", result.output);
}

/// The host of a call is lost and comes back with the result when the next try is sought already.
async fn brings_its_result(effect: EffectClass) {
    let model = Model::start().await;
    let server = TestServer::with(&model, "[hosts]\ngrace_period = \"0s\"").await;
    let tools = || vec![declared("job", effect)];
    let mut host = RawHost::welcomed(&server, "h1", tools()).await;
    model.asks("job", json!({})).says("done");
    let mut events = server.stream(named("r1", "go")).await;
    let call = host.take_call().await;
    events.wait_for_name("tool_call_accepted").await;
    drop(host);
    events.wait_for_name("tool_call_attempt_failed").await;
    if effect == EffectClass::Unsafe {
        events.wait_for_name("human_requested").await;
        let question = server.run(named("r1", "go")).await.pending.remove(0);
        let again = wire::decision::Decision::Approve(wire::Approve {});
        server.decide(&question.request_id, again).await.expect("decided");
    }
    let mut host = RawHost::open(&server).await;
    let in_hand = wire::CallInHand {
        call_id: call.call_id.clone(),
        attempt: 1,
        lease_token: call.lease_token.clone(),
        finished: true,
    };
    host.send(Frame::Hello(wire::Hello { calls_in_hand: vec![in_hand], ..hello("h1", tools()) }));
    let ServerFrame::Welcome(welcome) = host.wait_for(|_| true).await else { panic!("welcome comes first") };
    assert_eq!(welcome.calls[0].disposition(), wire::CallDisposition::Continue);
    host.send(Frame::CallResult(result_of(&call, "finished")));
    match host.wait_for(|_| true).await {
        ServerFrame::ResultAck(ack) => assert_eq!(ack.verdict(), ResultVerdict::Recorded),
        other => panic!("the work is not done twice: {other:?}"),
    }
    assert_eq!(results(&events.rest().await)[0].output, "finished");
}

#[tokio::test]
async fn a_result_that_a_host_brings_comes_before_the_next_try() {
    for effect in [EffectClass::Unsafe, EffectClass::ReadOnly, EffectClass::Keyed] {
        brings_its_result(effect).await;
    }
}

/// The host does not stop what is cancelled, and the run's name is used again: so are the ids of its calls.
#[tokio::test]
async fn a_deleted_runs_result_does_not_answer_a_new_run_of_the_same_id() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let tools = ["stubborn", "look"].map(|name| declared(name, EffectClass::ReadOnly));
    let mut host = RawHost::welcomed(&server, "h1", tools.to_vec()).await;
    model.asks("stubborn", json!({}));
    let events = server.stream(in_session("s1", "w", "go")).await;
    let first = host.take_call().await;
    server.abort("w").await;
    events.rest().await;
    let delete = wire::DeleteSessionRequest { session_id: "s1".to_owned() };
    soon(server.sessions().delete_session(delete)).await.expect("deleted");
    model.asks("look", json!({})).says("done");
    let mut events = server.stream(in_session("s1", "w", "look")).await;
    events.wait_for_name("tool_call_proposed").await;
    assert_eq!(server.get_run("w").await.waiting_on.map(|on| on.kind()), Some(wire::WaitKind::ToolHost));
    host.send(Frame::CallResult(result_of(&first, "stubborn to the end")));
    let next = |frame: &ServerFrame| !matches!(frame, ServerFrame::Cancel(_));
    match host.wait_for(next).await {
        ServerFrame::ResultAck(ack) => assert_eq!(ack.verdict(), ResultVerdict::Stale),
        other => panic!("the host still knows the other's answer: {other:?}"),
    }
    let second = host.take_call().await;
    assert_eq!((&second.call_id, second.tool.as_str()), (&first.call_id, "look"));
    host.send(Frame::CallResult(result_of(&second, "seen")));
    assert_eq!(results(&events.rest().await)[0].output, "seen");
}

#[tokio::test]
async fn a_tool_that_nobody_serves_any_more_is_unavailable() {
    let model = Model::start().await;
    let server = TestServer::with(&model, NO_GRACE).await;
    Host::start(&server).await.leave().await;
    model.asks("weather", json!({ "city": "Rome" })).says("never mind");
    let events = server.stream(named("r1", "go")).await.rest().await;
    assert_eq!(results(&events)[0].status(), ToolStatus::Unavailable, "{:?}", names(&events));
    assert_eq!(events.last().map(wire::RunEvent::status), Some(RunStatus::Completed));
}
