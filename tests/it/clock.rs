//! A clock that is set while the server runs or is down: no wait gets longer, and the times of a journal never go back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use agentloop_client::v1 as wire;
use agentloop_core::time::{Millis, Timestamp};
use agentloop_server::clock::{Clock, SteadyClock, SystemClock};
use agentloop_tests::events::results;
use agentloop_tests::host::Host;
use agentloop_tests::input::named;
use agentloop_tests::model::Model;
use agentloop_tests::raw_host::{RawHost, declared, hello, result_of};
use agentloop_tests::server::TestServer;
use serde_json::json;
use wire::connect_request::Frame;
use wire::connect_response::Frame as ServerFrame;
use wire::{EffectClass, RunErrorCode, RunStatus, ToolStatus};

pub(crate) const HOUR: u64 = 60 * 60 * 1_000;

/// The system's clock, ahead by this many milliseconds. The store reads the system's own clock when it is opened, so a
/// test sets a clock back by ending its lead.
#[derive(Clone, Default)]
pub(crate) struct SetClock(Arc<AtomicU64>);

impl SetClock {
    fn ahead(millis: u64) -> Self {
        let clock = Self::default();
        clock.set_ahead(millis);
        clock
    }

    pub(crate) fn set_ahead(&self, millis: u64) {
        self.0.store(millis, Ordering::SeqCst);
    }
}

impl Clock for SetClock {
    fn now(&self) -> Timestamp {
        SystemClock.now().after(Millis(self.0.load(Ordering::SeqCst)))
    }
}

pub(crate) async fn server_by(clock: &SetClock, model: &Model) -> TestServer {
    let clock = clock.clone();
    TestServer::built(model, "", move |builder| builder.clock(Arc::new(clock.clone()))).await
}

fn asks_for(run: &str, seconds: u32) -> wire::RunInput {
    wire::RunInput { approval_timeout_seconds: Some(seconds), ..named(run, "write") }
}

/// Every event of a run to its end, whose times must not go back.
async fn ended(server: &TestServer, run: &str) -> Vec<wire::RunEvent> {
    let events = server.subscribe(run, 0).await.rest().await;
    let durable = events.iter().filter(|event| event.seq > 0);
    let times: Vec<_> = durable.map(|event| event.at.map(|at| (at.seconds, at.nanos))).collect();
    assert!(times.is_sorted(), "{run}: {times:?}");
    events
}

#[tokio::test]
async fn set_back_an_hour_makes_no_wait_longer() {
    let model = Model::start().await;
    let clock = SetClock::ahead(HOUR);
    let mut server = server_by(&clock, &model).await;
    let _host = Host::start(&server).await;
    model.asks("mail", json!({ "to": "bob" }));
    let waits = server.run(asks_for("parked", 2)).await;
    assert_eq!(waits.status(), RunStatus::AwaitingHuman);
    let limits = wire::LoopLimits {
        max_run_duration: Some(prost_types::Duration { seconds: 2, nanos: 0 }),
        ..Default::default()
    };
    let mut speech = model.speaks();
    let limited = wire::RunInput { loop_limits: Some(limits), ..named("live", "speak") };
    let stream = server.stream(limited).await;
    speech.asked().await;
    // After the restart the model gets two calls: the live run's call again, and the parked run's next one.
    model.answers(|request| match request.to_string().contains("write") {
        true => agentloop_tests::model::Answer::Says("not sent".to_owned()),
        false => agentloop_tests::model::Answer::Later(
            std::time::Duration::from_secs(60),
            Box::new(agentloop_tests::model::Answer::Says("late".to_owned())),
        ),
    });
    clock.set_ahead(0);
    server.restart().await;
    drop(stream);
    let parked = ended(&server, "parked").await;
    assert_eq!(results(&parked)[0].status(), ToolStatus::Denied, "nobody answered in time");
    ended(&server, "live").await;
    let live = server.get_run("live").await;
    assert_eq!(live.last_error.map(|error| error.code()), Some(RunErrorCode::LimitDuration));
}

#[tokio::test]
async fn set_forward_an_hour_does_what_fell_due_and_waits_for_hosts() {
    let model = Model::start().await;
    let clock = SetClock::default();
    let mut server = server_by(&clock, &model).await;
    let approved =
        || wire::ToolDeclaration { requires_approval: true, ..declared("mail", EffectClass::Unsafe) };
    let tools = || vec![declared("job", EffectClass::Unsafe), approved()];
    let mut host = RawHost::welcomed(&server, "h1", tools()).await;
    for (run, seconds) in [("due", 1_800), ("not_due", 7_200)] {
        model.asks("mail", json!({}));
        assert_eq!(server.run(asks_for(run, seconds)).await.status(), RunStatus::AwaitingHuman);
    }
    model.asks("job", json!({})).says("done").says("not sent");
    let mut events = server.stream(named("at_host", "go")).await;
    let call = host.take_call().await;
    events.wait_for_name("tool_call_accepted").await;
    drop(host);
    clock.set_ahead(HOUR);
    server.restart().await;
    let due = ended(&server, "due").await;
    assert_eq!(results(&due)[0].status(), ToolStatus::Denied, "nobody answered in time");
    assert_eq!(server.get_run("not_due").await.status(), RunStatus::AwaitingHuman);
    // The call's deadline passed as well, by this clock. Its host has time to come back all the same.
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
    let at_host = ended(&server, "at_host").await;
    assert_eq!(results(&at_host)[0].status(), ToolStatus::Succeeded);
}

/// The server's own kind of clock, hours ahead of the machine's: a wait that followed the machine's would not end.
#[tokio::test]
async fn waits_follow_the_servers_clock_and_not_the_machines() {
    let model = Model::start().await;
    let (wall, began) = (SetClock::ahead(2 * HOUR), Instant::now());
    let clock = Arc::new(SteadyClock::new(|| wall.now(), move || began.elapsed()));
    let server = TestServer::built(&model, "", move |builder| builder.clock(clock.clone())).await;
    let _host = Host::start(&server).await;
    model.asks("mail", json!({ "to": "bob" }));
    assert_eq!(server.run(asks_for("distant", 600)).await.status(), RunStatus::AwaitingHuman);
    // Both wait: one for a human, parked, and one for its model, with a limit on its time.
    model.asks("mail", json!({ "to": "bob" }));
    let waits = server.run(asks_for("parked", 2)).await;
    assert_eq!(waits.status(), RunStatus::AwaitingHuman);
    let mut speech = model.speaks();
    let duration = prost_types::Duration { seconds: 2, nanos: 0 };
    let limits = wire::LoopLimits { max_run_duration: Some(duration), ..Default::default() };
    let stream = server.stream(wire::RunInput { loop_limits: Some(limits), ..named("live", "speak") }).await;
    speech.asked().await;
    model.says("not sent");
    let parked = ended(&server, "parked").await;
    assert_eq!(results(&parked)[0].status(), ToolStatus::Denied, "nobody answered in time");
    stream.rest().await;
    ended(&server, "live").await;
    let ended = server.get_run("live").await;
    assert_eq!(ended.last_error.map(|error| error.code()), Some(RunErrorCode::LimitDuration));
    assert_eq!(server.get_run("distant").await.status(), RunStatus::AwaitingHuman, "it is not due");
}
