//! The words of the tool-host protocol, said by hand.

use agentloop_client::v1 as wire;
use agentloop_core::limits::TOOL_ATTEMPTS_MAX;
use agentloop_core::tool::Digest;
use agentloop_tests::events::{names, results};
use agentloop_tests::input::named;
use agentloop_tests::model::Model;
use agentloop_tests::raw_host::{RawHost, declared, hello, result_of};
use agentloop_tests::server::TestServer;
use agentloop_tests::soon;
use serde_json::json;
use wire::complete_call_request::Outcome;
use wire::connect_request::Frame;
use wire::connect_response::Frame as ServerFrame;
use wire::{EffectClass, RejectReason, ResultVerdict, RunStatus, ToolStatus};

use crate::clock::{SetClock, server_by};

/// The next call, about which the host says nothing yet.
async fn offered(host: &mut RawHost) -> wire::CallRequest {
    match host.wait_for(|frame| matches!(frame, ServerFrame::CallRequest(_))).await {
        ServerFrame::CallRequest(call) => call,
        _ => unreachable!("it was waited for"),
    }
}

async fn acknowledged(host: &mut RawHost) -> ResultVerdict {
    match host.wait_for(|frame| matches!(frame, ServerFrame::ResultAck(_))).await {
        ServerFrame::ResultAck(ack) => ack.verdict(),
        _ => unreachable!("it was waited for"),
    }
}

fn named_in(call: &wire::CallRequest) -> Frame {
    let call = wire::CallRef { call_id: call.call_id.clone(), attempt: call.attempt };
    Frame::Heartbeat(wire::Heartbeat { calls: vec![call], ..Default::default() })
}

fn rejected(call: &wire::CallRequest, reason: RejectReason) -> Frame {
    Frame::CallRejected(wire::CallRejected {
        call_id: call.call_id.clone(),
        attempt: call.attempt,
        reason: reason.into(),
        message: "not now".to_owned(),
    })
}

#[tokio::test]
async fn a_heartbeat_that_names_a_call_accepts_it() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let mut host = RawHost::welcomed(&server, "h1", vec![declared("job", EffectClass::Unsafe)]).await;
    model.asks("job", json!({})).says("done");
    let mut events = server.stream(named("r1", "go")).await;
    let call = offered(&mut host).await;
    host.send(named_in(&call));
    events.wait_for_name("tool_call_accepted").await;
    host.send(Frame::CallResult(result_of(&call, "finished")));
    assert_eq!(acknowledged(&mut host).await, ResultVerdict::Recorded);
    assert_eq!(results(&events.rest().await)[0].output, "finished");
}

#[tokio::test]
async fn a_result_needs_no_acceptance_before_it() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let mut host = RawHost::welcomed(&server, "h1", vec![declared("job", EffectClass::Unsafe)]).await;
    model.asks("job", json!({})).says("done");
    let events = server.stream(named("r1", "go")).await;
    let call = offered(&mut host).await;
    host.send(Frame::CallResult(result_of(&call, "at once")));
    assert_eq!(acknowledged(&mut host).await, ResultVerdict::Recorded);
    assert_eq!(results(&events.rest().await)[0].output, "at once");
}

/// One result is recorded. Only its repetition is a duplicate; anything else that is said of the call does not count.
#[tokio::test]
async fn another_result_after_the_recorded_one_is_stale() {
    let model = Model::start().await;
    let mut server = TestServer::start(&model).await;
    let mut host = RawHost::welcomed(&server, "h1", vec![declared("job", EffectClass::Unsafe)]).await;
    model.asks("job", json!({})).says("done");
    let events = server.stream(named("r1", "go")).await;
    let call = host.take_call().await;
    let (first, other) = (result_of(&call, "one"), result_of(&call, "two"));
    let forged = wire::CallResult { lease_token: "another".to_owned(), ..first.clone() };
    host.send(Frame::CallResult(forged));
    assert_eq!(acknowledged(&mut host).await, ResultVerdict::Stale, "with another lease it says nothing");
    for (result, verdict) in [
        (first.clone(), ResultVerdict::Recorded),
        (first.clone(), ResultVerdict::Duplicate),
        (other.clone(), ResultVerdict::Stale),
        (first.clone(), ResultVerdict::Duplicate),
    ] {
        host.send(Frame::CallResult(result));
        assert_eq!(acknowledged(&mut host).await, verdict);
    }
    host.send(Frame::CallFailed(wire::CallFailed {
        call_id: call.call_id.clone(),
        attempt: call.attempt,
        lease_token: call.lease_token.clone(),
        message: "no, it failed".to_owned(),
        ..Default::default()
    }));
    assert_eq!(acknowledged(&mut host).await, ResultVerdict::Stale);
    assert_eq!(results(&events.rest().await)[0].output, "one");
    server.restart().await;
    for (result, verdict) in [(first, ResultVerdict::Duplicate), (other, ResultVerdict::Stale)] {
        let request = wire::CompleteCallRequest { outcome: Some(Outcome::Result(result)) };
        let response = soon(server.tool_host().complete_call(request)).await.expect("known");
        assert_eq!(response.into_inner().verdict(), verdict);
    }
}

/// The lease of a call as whoever knows the seed of its run makes it.
fn lease_by(seed: u64, slot: [u32; 2], attempt: u32) -> String {
    let [model_call, position] = slot.map(u32::to_le_bytes);
    let pieces: [&[u8]; 5] = [b"lease", &seed.to_le_bytes(), &model_call, &position, &attempt.to_le_bytes()];
    Digest::of(&pieces).as_str().to_owned()
}

/// A host has the keys of its own calls, and guesses that they begin with the seed of the run, as they once did.
#[tokio::test]
async fn a_host_cannot_answer_a_call_that_another_was_given() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let mut curious = RawHost::welcomed(&server, "h1", vec![declared("look", EffectClass::ReadOnly)]).await;
    let mut payments = RawHost::welcomed(&server, "h2", vec![declared("pay", EffectClass::Keyed)]).await;
    model.asks("look", json!({})).asks("pay", json!({})).says("done");
    let events = server.stream(named("r1", "go")).await;
    let looked = curious.take_call().await;
    curious.send(Frame::CallResult(result_of(&looked, "seen")));
    let paid = payments.take_call().await;
    let guessed = u64::from_str_radix(&looked.idempotency_key[..16], 16).expect("it is in hex");
    let lease_token = lease_by(guessed, [2, 0], 1);
    let forged = wire::CallResult { lease_token: lease_token.clone(), ..result_of(&paid, "forged") };
    let request = wire::CompleteCallRequest { outcome: Some(Outcome::Result(forged.clone())) };
    let refused = soon(server.tool_host().complete_call(request)).await.expect_err("it is another's");
    assert_eq!(refused.code(), tonic::Code::NotFound);
    curious.send(Frame::CallResult(forged));
    assert_eq!(acknowledged(&mut curious).await, ResultVerdict::Recorded, "of its own call");
    assert_eq!(acknowledged(&mut curious).await, ResultVerdict::Stale, "of another's");
    payments.send(Frame::CallResult(result_of(&paid, "paid")));
    assert_eq!(acknowledged(&mut payments).await, ResultVerdict::Recorded);
    let outputs: Vec<String> = results(&events.rest().await).into_iter().map(|one| one.output).collect();
    assert_eq!(outputs, ["seen", "paid"]);
}

#[tokio::test]
async fn any_credit_is_taken() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let mut host = RawHost::open(&server).await;
    let tools = vec![declared("job", EffectClass::ReadOnly)];
    host.send(Frame::Hello(wire::Hello { initial_credit: u64::MAX, ..hello("h1", tools) }));
    host.wait_for(|frame| matches!(frame, ServerFrame::Welcome(_))).await;
    host.send(Frame::Credit(wire::Credit { total: u64::MAX }));
    model.asks("job", json!({})).says("done");
    let events = server.stream(named("r1", "go")).await;
    let call = host.take_call().await;
    host.send(Frame::CallResult(result_of(&call, "finished")));
    assert_eq!(results(&events.rest().await)[0].status(), ToolStatus::Succeeded);
}

/// `initial_credit` is the first value of the total, not something beside it.
#[tokio::test]
async fn the_first_credit_counts_into_the_total() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let mut host = RawHost::open(&server).await;
    let tools = vec![declared("job", EffectClass::ReadOnly)];
    host.send(Frame::Hello(wire::Hello { initial_credit: 1, ..hello("h1", tools) }));
    host.wait_for(|frame| matches!(frame, ServerFrame::Welcome(_))).await;
    host.send(Frame::Credit(wire::Credit { total: 1 }));
    model.asks("job", json!({ "n": 1 })).asks("job", json!({ "n": 2 })).says("done");
    let events = server.stream(named("r1", "go")).await;
    let call = host.take_call().await;
    host.send(Frame::CallResult(result_of(&call, "one")));
    assert_eq!(acknowledged(&mut host).await, ResultVerdict::Recorded);
    let queued = async {
        while server
            .tools()
            .list_tools(wire::ListToolsRequest::default())
            .await
            .expect("listed")
            .into_inner()
            .tools[0]
            .calls_queued
            == 0
        {
            tokio::task::yield_now().await;
        }
    };
    soon(queued).await;
    host.send(Frame::Credit(wire::Credit { total: 2 }));
    let call = host.take_call().await;
    host.send(Frame::CallResult(result_of(&call, "two")));
    assert_eq!(results(&events.rest().await).len(), 2);
}

#[tokio::test]
async fn the_server_pings_a_host_from_its_welcome_on() {
    let model = Model::start().await;
    let server = TestServer::with(&model, "[hosts]\nheartbeat_interval = \"50ms\"").await;
    let mut host = RawHost::open(&server).await;
    host.send(Frame::Hello(hello("h1", Vec::new())));
    let first = host.pinged().await;
    host.send(Frame::Pong(wire::Pong { nonce: first.nonce }));
    let second = host.pinged().await;
    assert_ne!(first.nonce, second.nonce);
}

/// A call that its host did not confirm in time is in doubt. Once the host says that it did not begin it, nothing is.
#[tokio::test]
async fn a_late_rejection_settles_a_doubt() {
    let model = Model::start().await;
    let server = TestServer::with(&model, "[hosts]\naccept_timeout = \"100ms\"").await;
    let mut host = RawHost::welcomed(&server, "h1", vec![declared("pay", EffectClass::Unsafe)]).await;
    model.asks("pay", json!({})).says("done");
    let mut events = server.stream(named("r1", "go")).await;
    let call = offered(&mut host).await;
    let asked = events.wait_for_name("human_requested").await;
    let Some(wire::run_event::Event::HumanRequested(asked)) = asked.event else {
        unreachable!("it was waited for")
    };
    let question = asked.request.expect("a question").question;
    assert!(question.contains("did not confirm the call in time"), "{question}");
    assert!(!question.contains("lost"), "the host is connected: {question}");
    host.send(Frame::Heartbeat(wire::Heartbeat::default()));
    host.send(rejected(&call, RejectReason::Busy));
    let again = host.take_call().await;
    assert_eq!((&again.idempotency_key, again.attempt), (&call.idempotency_key, 2));
    host.send(Frame::CallResult(result_of(&again, "paid")));
    let events = events.rest().await;
    assert_eq!(results(&events)[0].output, "paid");
    assert_eq!(server.pending().await, []);
    assert_eq!(server.run(named("r1", "go")).await.status(), RunStatus::Completed);
}

/// A late confirmation says that the call was begun, and nothing of its end: only a result or a person settles the doubt.
#[tokio::test]
async fn a_late_confirmation_leaves_a_doubt_to_its_result() {
    let model = Model::start().await;
    let server = TestServer::with(&model, "[hosts]\naccept_timeout = \"100ms\"").await;
    let mut host = RawHost::welcomed(&server, "h1", vec![declared("pay", EffectClass::Unsafe)]).await;
    model.asks("pay", json!({})).says("done");
    let mut events = server.stream(named("r1", "go")).await;
    let call = offered(&mut host).await;
    events.wait_for_name("human_requested").await;
    let accepted = wire::CallAccepted { call_id: call.call_id.clone(), attempt: call.attempt };
    host.send(Frame::CallAccepted(accepted));
    // After the confirmation, a rejection proves nothing.
    host.send(rejected(&call, RejectReason::Busy));
    let forged = wire::CallResult { lease_token: "another".to_owned(), ..result_of(&call, "forged") };
    host.send(Frame::CallResult(forged));
    assert_eq!(acknowledged(&mut host).await, ResultVerdict::Stale, "everything before it was heard");
    let [question] = &server.pending().await[..] else { panic!("the question is still open") };
    assert_eq!(question.kind(), wire::HumanRequestKind::InDoubt);
    host.send(Frame::CallResult(result_of(&call, "paid")));
    assert_eq!(acknowledged(&mut host).await, ResultVerdict::Recorded);
    let events = events.rest().await;
    assert_eq!(results(&events)[0].output, "paid");
    let told = names(&events);
    assert!(!told.contains(&"tool_call_accepted"), "it is not running as far as anybody knows: {told:?}");
    assert_eq!(told.iter().filter(|name| **name == "tool_call_offered").count(), 1, "{told:?}");
    assert_eq!(server.pending().await, []);
}

/// More rejections than a call has tries. Only the waits in between are taken from the clock.
#[tokio::test]
async fn busy_hosts_use_up_no_try() {
    const REJECTIONS: u32 = TOOL_ATTEMPTS_MAX + 2;
    let model = Model::start().await;
    let clock = SetClock::default();
    let server = server_by(&clock, &model).await;
    let tools = || vec![declared("pay", EffectClass::Unsafe)];
    model.asks("pay", json!({})).says("done");
    let mut host = RawHost::welcomed(&server, "h1", tools()).await;
    let mut events = server.stream(named("r1", "go")).await;
    for attempt in 1..=REJECTIONS {
        let call = offered(&mut host).await;
        assert_eq!(call.attempt, attempt);
        host.send(rejected(&call, RejectReason::Busy));
        events.wait_for_name("tool_call_attempt_failed").await;
        // A host that was busy gets no call for a while; the next one does.
        host.close().await.expect("it leaves");
        host = RawHost::welcomed(&server, &format!("h{}", attempt + 1), tools()).await;
        clock.set_ahead(u64::from(attempt) * 30_000);
        // The run looks at the clock when anybody looks at the run.
        server.get_run("r1").await;
    }
    let call = host.take_call().await;
    assert_eq!(call.attempt, REJECTIONS + 1);
    host.send(Frame::CallResult(result_of(&call, "paid")));
    let results = results(&events.rest().await);
    assert_eq!((results[0].status(), results[0].output.as_str()), (ToolStatus::Succeeded, "paid"));
}

#[tokio::test]
async fn what_a_host_says_of_itself_is_shown_cut_to_its_bound() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let mut host = RawHost::open(&server).await;
    // A process may count its connections.
    let tools = vec![declared("job", EffectClass::Unsafe)];
    host.send(Frame::Hello(wire::Hello { connection_no: 3, ..hello("h1", tools) }));
    host.wait_for(|frame| matches!(frame, ServerFrame::Welcome(_))).await;
    model.asks("job", json!({})).says("done");
    let mut events = server.stream(named("r1", "go")).await;
    let call = offered(&mut host).await;
    let Frame::Heartbeat(alive) = named_in(&call) else { unreachable!("it is a heartbeat") };
    host.send(Frame::Heartbeat(wire::Heartbeat { status_text: "é".repeat(600), ..alive }));
    events.wait_for_name("tool_call_accepted").await;
    let request = wire::ListHostsRequest::default();
    let hosts = soon(server.tools().list_hosts(request)).await.expect("a list").into_inner().hosts;
    assert_eq!(hosts[0].status_text, "é".repeat(512), "1 KiB, without half a character");
}
