//! A host under faults of the connection or the server.

use std::{
    sync::{Arc, Mutex, atomic::Ordering},
    time::Duration,
};

use agentloop_client::{
    host::{AttemptEffect, HostError, HostEvent, Runtimes, ToolError},
    v1::{
        CallDisposition, CallVerdict, CapabilityRefusal, CapabilityVerdict, GoAway, Hello, LeaseLost,
        OpenRuntime, Ping, ProtocolError, Welcome, connect_request::Frame,
        connect_response::Frame as ServerFrame,
    },
};
use tokio::sync::{Semaphore, mpsc};
use tonic::Status;

use crate::{
    host::{Gate, Running, host},
    proxy::Proxy,
};
use agentloop_client_testing::{
    agent_loop::Script,
    server::FakeServer,
    timeout::soon,
    tool_host::{Connection, Hosts, call, welcome},
};

struct Bench {
    hosts: Hosts,
    fake: FakeServer,
    gate: Gate,
}

impl Bench {
    async fn new() -> Bench {
        let hosts = Hosts::default();
        let fake = FakeServer::start(Script::default(), hosts.clone()).await;
        Bench { hosts, fake, gate: Gate::new() }
    }

    fn run(&self) -> Running {
        Running::start(host(&self.fake.url(), &self.gate))
    }
}

fn with_verdicts(dispositions: &[(&str, CallDisposition)]) -> Welcome {
    let verdict = |&(call_id, disposition): &(&str, CallDisposition)| CallVerdict {
        call_id: call_id.into(),
        attempt: 1,
        disposition: disposition.into(),
    };
    Welcome { calls: dispositions.iter().map(verdict).collect(), ..welcome() }
}

fn all_refused(hello: &Hello) -> Vec<CapabilityVerdict> {
    let refuse = |n: usize| CapabilityVerdict {
        name: format!("t{n}"),
        accepted: false,
        reason: "another digest".into(),
        ..CapabilityVerdict::default()
    };
    (0..hello.capabilities.len()).map(refuse).collect()
}

#[tokio::test]
async fn a_result_that_was_not_acknowledged_is_sent_again_after_a_cut() {
    let bench = Bench::new().await;
    let proxy = Proxy::start(bench.fake.address).await;
    let _running = Running::start(host(&proxy.url(), &bench.gate));

    let mut first = bench.hosts.welcome().await;
    for (call_id, text) in [("c1", "one"), ("c2", "two")] {
        first.send_call(call(call_id, "echo", &format!(r#"{{"text":"{text}"}}"#))).await;
        assert!(matches!(first.reply().await, Frame::CallResult(_)));
    }
    first.send_call(call("c3", "wait", "{}")).await;
    proxy.cut();

    let (mut second, hello) = bench.hosts.accept().await;
    let in_hand: Vec<_> = hello
        .calls_in_hand
        .iter()
        .map(|c| (c.call_id.as_str(), c.lease_token.as_str(), c.finished))
        .collect();
    assert_eq!(in_hand, [("c1", "lease-c1", true), ("c2", "lease-c2", true), ("c3", "lease-c3", false)]);
    assert_eq!(hello.initial_credit, 15, "one of sixteen is running");

    let verdicts = [
        ("c1", CallDisposition::AlreadyRecorded),
        ("c2", CallDisposition::Continue),
        ("c3", CallDisposition::Continue),
    ];
    second.send(ServerFrame::Welcome(with_verdicts(&verdicts))).await;
    match second.reply().await {
        Frame::CallResult(result) => {
            assert_eq!((result.call_id.as_str(), result.output.as_str()), ("c2", "two"))
        }
        other => panic!("{other:?}"),
    }
    bench.gate.leave.add_permits(1);
    assert!(matches!(second.reply().await, Frame::CallResult(result) if result.call_id == "c3"));
    assert_eq!(bench.gate.began.load(Ordering::SeqCst), 1, "the cut did not run it again");
}

fn beating_each(interval: Duration) -> Welcome {
    let interval = prost_types::Duration::try_from(interval).expect("a short time");
    Welcome { heartbeat_interval: Some(interval), ..welcome() }
}

#[tokio::test]
async fn a_server_that_falls_silent_is_left() {
    let bench = Bench::new().await;
    let _running = bench.run();
    let (mut frozen, _) = bench.hosts.accept().await;
    frozen.send(ServerFrame::Welcome(beating_each(Duration::from_millis(100)))).await;
    frozen.send_call(call("c1", "wait", "{}")).await;
    frozen.send(ServerFrame::Ping(Ping { nonce: 7 })).await;
    assert!(matches!(frozen.reply().await, Frame::Pong(pong) if pong.nonce == 7));

    let (_second, hello) = bench.hosts.accept().await;
    let in_hand: Vec<_> = hello.calls_in_hand.iter().map(|call| call.call_id.as_str()).collect();
    assert_eq!(in_hand, ["c1"], "the call goes on");
}

#[tokio::test]
async fn a_server_without_pings_is_not_left() {
    let bench = Bench::new().await;
    let _running = bench.run();
    let (mut quiet, _) = bench.hosts.accept().await;
    quiet.send(ServerFrame::Welcome(beating_each(Duration::from_millis(100)))).await;
    quiet.beats(5).await; // twice the silence after which a server that sends pings is left
    quiet.send_call(call("c1", "echo", r#"{"text":"here"}"#)).await;
    assert!(matches!(quiet.reply().await, Frame::CallResult(result) if result.output == "here"));
}

#[tokio::test]
async fn a_call_that_ended_without_a_connection_is_reported_on_the_next() {
    let bench = Bench::new().await;
    let _running = bench.run();
    let mut first = bench.hosts.welcome().await;
    first.send_call(call("c1", "wait", "{}")).await;
    first.fail(Status::unavailable("restarting")).await;

    let (mut second, _) = bench.hosts.accept().await;
    bench.gate.leave.add_permits(1);
    second.send(ServerFrame::Welcome(with_verdicts(&[("c1", CallDisposition::Continue)]))).await;
    assert!(matches!(second.reply().await, Frame::CallResult(result) if result.output == "waited c1"));
}

#[tokio::test]
async fn a_call_that_the_welcome_stops_is_abandoned() {
    let bench = Bench::new().await;
    let _running = bench.run();
    let mut first = bench.hosts.welcome().await;
    first.send_call(call("c1", "wait", "{}")).await;
    first.fail(Status::unavailable("restarting")).await;

    let (mut second, _) = bench.hosts.accept().await;
    second.send(ServerFrame::Welcome(with_verdicts(&[("c1", CallDisposition::Stop)]))).await;
    // The credit comes back when the call has ended; no other frame is about it.
    assert!(matches!(second.next().await, Some(Frame::Credit(credit)) if credit.total == 16));
    second.send_call(call("c2", "echo", r#"{"text":"next"}"#)).await;
    assert!(matches!(second.reply().await, Frame::CallResult(result) if result.call_id == "c2"));
}

#[tokio::test]
async fn a_lost_lease_stops_the_call() {
    let bench = Bench::new().await;
    let _running = bench.run();
    let mut connection = bench.hosts.welcome().await;
    connection.send_call(call("c1", "wait", "{}")).await;
    connection.send(ServerFrame::LeaseLost(LeaseLost { call_id: "c1".into(), attempt: 1 })).await;
    assert!(matches!(connection.next().await, Some(Frame::Credit(credit)) if credit.total == 17));
}

#[tokio::test]
async fn a_protocol_error_is_reported_and_the_host_reconnects() {
    let bench = Bench::new().await;
    let events: Arc<Mutex<Vec<HostEvent>>> = Arc::default();
    let told = Arc::clone(&events);
    let builder = host(&bench.fake.url(), &bench.gate);
    let _running = Running::start(builder.on_event(move |event| told.lock().unwrap().push(event.clone())));

    let first = bench.hosts.welcome().await;
    let error = ProtocolError { message: "a gap".into(), call_id: "c1".into() };
    first.send(ServerFrame::ProtocolError(error)).await;
    bench.hosts.accept().await;

    let events = events.lock().unwrap();
    let expected = HostEvent::ProtocolError { message: "a gap".into(), call_id: "c1".into() };
    assert!(events.contains(&expected), "{events:?}");
    assert!(matches!(events[0], HostEvent::Connected { .. }));
    assert!(matches!(events[2], HostEvent::Lost { .. }));
}

#[tokio::test]
async fn a_result_that_the_server_refuses_does_not_come_again() {
    let bench = Bench::new().await;
    let _running = bench.run();
    let mut first = bench.hosts.welcome().await;
    first.send_call(call("c1", "echo", r#"{"text":"malformed"}"#)).await;
    assert!(matches!(first.reply().await, Frame::CallResult(_)));
    let error = ProtocolError { message: "call_result.images: too many".into(), call_id: "c1".into() };
    first.send(ServerFrame::ProtocolError(error)).await;
    first.fail(Status::invalid_argument("the host broke the protocol")).await;

    let mut second = bench.hosts.welcome().await;
    let frame = second.reply().await;
    let Frame::CallFailed(failed) = frame else { panic!("no failure: {frame:?}") };
    assert_eq!(failed.message, "the server refused the result: call_result.images: too many");
    assert_eq!(failed.effect(), AttemptEffect::Done);
}

#[tokio::test]
async fn a_host_that_is_refused_for_good_stops() {
    for status in [Status::unauthenticated("no token"), Status::invalid_argument("bad tool")] {
        let bench = Bench::new().await;
        let running = bench.run();
        bench.hosts.accept().await.0.fail(status).await;
        assert!(matches!(running.ended().await, Err(HostError::Refused(_))));
    }
    let bench = Bench::new().await;
    let running = bench.run();
    let (connection, _) = bench.hosts.accept().await;
    let error = ProtocolError { message: "version 1 is not spoken".into(), call_id: String::new() };
    connection.send(ServerFrame::ProtocolError(error)).await;
    let error = running.ended().await.expect_err("turned away");
    assert!(error.to_string().contains("version 1"), "{error}");
}

#[tokio::test]
async fn a_host_whose_id_another_host_takes_stops() {
    let bench = Bench::new().await;
    let running = bench.run();
    let connection = bench.hosts.welcome().await;
    let message = "another connection with this host id took this one's place".to_owned();
    connection.send(ServerFrame::ProtocolError(ProtocolError { message, call_id: String::new() })).await;
    connection.fail(Status::failed_precondition("another connection took this one's place")).await;
    let error = running.ended().await.expect_err("it ends").to_string();
    assert_eq!(
        error,
        "the server refused the host: another host took the id `host-1`; give each host its own id"
    );
}

#[tokio::test]
async fn functions_of_the_builder_that_panic_do_not_end_the_host() {
    let bench = Bench::new().await;
    let said = Mutex::new(vec!["end".to_owned(), "ä".repeat(1000)]);
    let builder = host(&bench.fake.url(), &bench.gate)
        .on_event(|event| panic!("not this: {event:?}"))
        .status(move || said.lock().unwrap().pop().expect("a status"));
    let _running = Running::start(builder);
    let (mut connection, _) = bench.hosts.accept().await;
    connection.send(ServerFrame::Welcome(beating_each(Duration::from_millis(100)))).await;
    connection.beats(3).await;
    let texts: Vec<_> = connection.heartbeats.iter().map(|beat| beat.status_text.as_str()).collect();
    assert_eq!(texts, ["ä".repeat(512).as_str(), "end", ""]);
}

#[tokio::test]
async fn a_host_whose_tools_are_all_refused_stops() {
    let bench = Bench::new().await;
    let running = bench.run();
    let (connection, hello) = bench.hosts.accept().await;
    connection.send(ServerFrame::Welcome(Welcome { capabilities: all_refused(&hello), ..welcome() })).await;
    assert!(matches!(running.ended().await, Err(HostError::ToolsRefused(reasons)) if reasons.len() == 6));
}

#[tokio::test]
async fn a_host_whose_tools_are_refused_as_weaker_waits_until_they_are_accepted() {
    let bench = Bench::new().await;
    let _running = bench.run();
    let (first, hello) = bench.hosts.accept().await;
    let mut capabilities = all_refused(&hello);
    capabilities[0].set_refusal(CapabilityRefusal::Weaker);
    first.send(ServerFrame::Welcome(Welcome { capabilities, ..welcome() })).await;
    first.send(ServerFrame::GoAway(GoAway { reason: "accepted".into(), ..GoAway::default() })).await;
    let mut second = bench.hosts.welcome().await;
    second.send_call(call("c1", "echo", r#"{"text":"served"}"#)).await;
    assert!(matches!(second.reply().await, Frame::CallResult(result) if result.output == "served"));
}

#[tokio::test]
async fn a_host_whose_tools_are_refused_later_delivers_what_it_has_and_ends() {
    let bench = Bench::new().await;
    let running = bench.run();
    let mut first = bench.hosts.welcome().await;
    first.send_call(call("c1", "echo", r#"{"text":"one"}"#)).await;
    assert!(matches!(first.reply().await, Frame::CallResult(_)));
    first.send_call(call("c2", "wait", "{}")).await;
    first.fail(Status::unavailable("restarting")).await;

    let (mut second, hello) = bench.hosts.accept().await;
    second.send(ServerFrame::Welcome(Welcome { capabilities: all_refused(&hello), ..welcome() })).await;
    assert!(matches!(second.reply().await, Frame::CallResult(result) if result.output == "one"));
    assert!(matches!(second.reply().await, Frame::Draining(_)));
    second.acknowledge("c1").await;
    bench.gate.leave.add_permits(1);
    assert!(matches!(second.reply().await, Frame::CallResult(result) if result.output == "waited c2"));
    second.acknowledge("c2").await;
    assert!(matches!(second.reply().await, Frame::Goodbye(_)));
    drop(second);
    assert!(matches!(running.ended().await, Err(HostError::ToolsRefused(reasons)) if reasons.len() == 6));
}

/// Starts a host, and returns the wait that it announces once `say_go_away` has got its first connection.
async fn announced_wait(say_go_away: impl AsyncFnOnce(Connection)) -> (String, Duration) {
    let bench = Bench::new().await;
    let (told, mut events) = mpsc::unbounded_channel();
    let listener = move |event: &HostEvent| {
        if let HostEvent::Lost { reason, retry_in } = event {
            told.send((reason.clone(), *retry_in)).ok();
        }
    };
    let _running = Running::start(host(&bench.fake.url(), &bench.gate).on_event(listener));
    let (connection, _) = bench.hosts.accept().await;
    say_go_away(connection).await;
    soon(events.recv()).await.expect("the host runs")
}

#[tokio::test]
async fn a_host_waits_as_long_as_the_server_asks_before_and_after_its_welcome() {
    let reconnect_after = Some(prost_types::Duration { seconds: 30, nanos: 0 });
    let go_away = || ServerFrame::GoAway(GoAway { reason: "a restart".into(), reconnect_after });
    let before = announced_wait(async |connection| {
        connection.send(go_away()).await;
        connection.fail(Status::unavailable("restarting")).await;
    });
    let after = announced_wait(async |connection| {
        connection.send(ServerFrame::Welcome(welcome())).await;
        connection.send(go_away()).await;
        connection.fail(Status::unavailable("restarting")).await;
    });
    for (reason, retry_in) in [before.await, after.await] {
        assert!(reason.contains("a restart"), "{reason}");
        assert!(retry_in > Duration::from_secs(10), "{retry_in:?}");
    }
}

#[tokio::test]
async fn a_host_comes_back_after_the_server_was_away() {
    let bench = Bench::new().await;
    let _running = bench.run();
    for _ in 0..3 {
        let (connection, _) = bench.hosts.accept().await;
        connection.fail(Status::unavailable("restarting")).await;
    }
    let mut connection = bench.hosts.welcome().await;
    connection.send_call(call("c1", "echo", r#"{"text":"back"}"#)).await;
    assert!(matches!(connection.reply().await, Frame::CallResult(result) if result.output == "back"));
}

#[tokio::test]
async fn a_shutdown_with_nothing_in_hand_needs_no_server() {
    let bench = Bench::new().await;
    let running = bench.run();
    let (connection, _) = bench.hosts.accept().await;
    running.stop.cancel();
    running.ended().await.expect("a clean end");
    drop(connection);
}

#[tokio::test]
async fn all_runtimes_together_have_five_seconds_to_close() {
    let bench = Bench::new().await;
    let opened = Arc::new(Semaphore::new(0));
    let opening = Arc::clone(&opened);
    let open = move |_| {
        opening.add_permits(1);
        async { Ok::<_, ToolError>(()) }
    };
    let runtimes = Runtimes::new(open, |_| std::future::pending());
    let running = Running::start(host(&bench.fake.url(), &bench.gate).runtimes(runtimes));
    let mut connection = bench.hosts.welcome().await;
    for id in ["r1", "r2", "r3"] {
        let runtime = OpenRuntime { runtime_id: id.into(), ..OpenRuntime::default() };
        connection.send(ServerFrame::OpenRuntime(runtime)).await;
    }
    soon(opened.acquire_many(3)).await.expect("open").forget();
    running.stop.cancel();
    assert!(matches!(connection.reply().await, Frame::Draining(_)));
    assert!(matches!(connection.reply().await, Frame::Goodbye(_)));
    drop(connection);
    // From here on the test waits only for timers, so the clock can jump.
    tokio::time::pause();
    let began = tokio::time::Instant::now();
    running.task.await.expect("no panic").expect("a clean end");
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
}

#[tokio::test]
async fn undelivered_results_are_counted() {
    let bench = Bench::new().await;
    let builder = host(&bench.fake.url(), &bench.gate).drain_timeout(Duration::ZERO);
    let running = Running::start(builder);
    let mut connection = bench.hosts.welcome().await;
    connection.send_call(call("c1", "echo", r#"{"text":"lost"}"#)).await;
    assert!(matches!(connection.reply().await, Frame::CallResult(_)));
    running.stop.cancel();
    assert!(matches!(connection.reply().await, Frame::Draining(_)));
    // From here on the test waits only for timers, so the clock can jump.
    tokio::time::pause();
    assert!(matches!(running.task.await.expect("no panic"), Err(HostError::Undelivered(1))));
}
