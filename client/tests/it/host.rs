//! A host without faults: its calls, credit, output, heartbeats and shutdown.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime},
};

use agentloop_client::{
    host::{
        AttemptEffect, CallContext, HostError, NoArguments, OutputStream, Tool, ToolError, ToolHost,
        ToolHostBuilder,
    },
    schemars::{self, JsonSchema},
    v1::{
        CallFailed, CallRequest, Caller, Cancel, CancelOutcome, GoAway, Ping, RejectReason,
        connect_request::Frame, connect_response::Frame as ServerFrame,
    },
};
use serde::Deserialize;
use tokio::{sync::Semaphore, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use agentloop_client_testing::{
    agent_loop::Script,
    server::{FakeServer, quick_backoff},
    timeout::soon,
    tool_host::{Connection, Hosts, call},
};

#[derive(Deserialize, JsonSchema)]
struct Text {
    text: String,
}

/// Counts the calls of the tool `wait`, and holds each until a permit of `leave` lets it end.
#[derive(Clone)]
pub(crate) struct Gate {
    pub(crate) began: Arc<AtomicUsize>,
    /// The number of calls that run now.
    running: Arc<AtomicUsize>,
    /// The highest value of `running` so far.
    most: Arc<AtomicUsize>,
    pub(crate) leave: Arc<Semaphore>,
}

impl Gate {
    pub(crate) fn new() -> Self {
        Gate {
            began: Arc::default(),
            running: Arc::default(),
            most: Arc::default(),
            leave: Arc::new(Semaphore::new(0)),
        }
    }

    async fn pass(self, ctx: CallContext) -> Result<String, ToolError> {
        self.began.fetch_add(1, Ordering::SeqCst);
        self.most.fetch_max(self.running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        tokio::select! {
            permit = self.leave.acquire() => permit.expect("open").forget(),
            () = ctx.cancelled().cancelled() => return Err(ToolError::failed("cancelled")),
        }
        self.running.fetch_sub(1, Ordering::SeqCst);
        Ok(format!("waited {}", ctx.call_id()))
    }
}

/// A host with six tools: `echo`, `wait`, `fail`, `panic`, `deaf` and `talk`.
pub(crate) fn host(url: &str, gate: &Gate) -> ToolHostBuilder {
    let gate = gate.clone();
    let wait = move |_: NoArguments, ctx| gate.clone().pass(ctx);
    ToolHost::builder(url)
        .host_id("host-1")
        .backoff(quick_backoff())
        .tool(
            Tool::new("echo", "Says it back").read_only().handler(|given: Text, _| async { Ok(given.text) }),
        )
        .tool(Tool::new("wait", "Waits").read_only().handler(wait))
        .tool(Tool::new("fail", "Fails").handler(fail))
        .tool(Tool::new("panic", "Panics").handler(panic))
        .tool(Tool::new("deaf", "Never stops").handler(deaf))
        .tool(Tool::new("talk", "Talks").streams_output().handler(talk))
}

async fn fail(_: NoArguments, _: CallContext) -> Result<(), ToolError> {
    Err(ToolError::retryable("not now", Duration::from_secs(2)).did_nothing())
}

async fn panic(_: NoArguments, _: CallContext) -> Result<(), ToolError> {
    panic!("a secret")
}

async fn deaf(_: NoArguments, _: CallContext) -> Result<(), ToolError> {
    std::future::pending().await
}

async fn talk(_: NoArguments, ctx: CallContext) -> Result<String, ToolError> {
    for piece in ["one ", "two ", "three"] {
        ctx.output(OutputStream::Stdout, piece).await;
    }
    ctx.progress("half way", Some(0.5), Some(b"saved".to_vec())).await;
    Ok("said".into())
}

/// A running host, which `stop` shuts down.
pub(crate) struct Running {
    pub(crate) stop: CancellationToken,
    pub(crate) task: JoinHandle<Result<(), HostError>>,
}

impl Running {
    pub(crate) fn start(builder: ToolHostBuilder) -> Running {
        let stop = CancellationToken::new();
        let shutdown = stop.clone().cancelled_owned();
        let host = builder.build().expect("a good host");
        Running { stop, task: tokio::spawn(host.run_until(shutdown)) }
    }

    pub(crate) async fn ended(self) -> Result<(), HostError> {
        soon(self.task).await.expect("the host does not panic")
    }
}

async fn connected(concurrency: usize) -> (FakeServer, Running, Gate, Connection) {
    let (hosts, gate) = (Hosts::default(), Gate::new());
    let fake = FakeServer::start(Script::default(), hosts.clone()).await;
    let running = Running::start(host(&fake.url(), &gate).concurrency(concurrency));
    let connection = hosts.welcome().await;
    (fake, running, gate, connection)
}

fn result(frame: Frame) -> (String, String) {
    match frame {
        Frame::CallResult(result) => {
            assert_eq!(result.lease_token, format!("lease-{}", result.call_id));
            (result.call_id, result.output)
        }
        other => panic!("no result: {other:?}"),
    }
}

fn failure(frame: Frame) -> CallFailed {
    match frame {
        Frame::CallFailed(failed) => failed,
        other => panic!("no failure: {other:?}"),
    }
}

#[tokio::test]
async fn hello_declares_the_tools_and_the_credit() {
    let hosts = Hosts::default();
    let fake = FakeServer::start(Script::default(), hosts.clone()).await;
    let _running = Running::start(host(&fake.url(), &Gate::new()).concurrency(3).label("zone", "a"));
    let (_connection, hello) = hosts.accept().await;
    assert_eq!((hello.protocol_version, hello.host_id.as_str()), (1, "host-1"));
    assert_eq!((hello.capabilities.len(), hello.initial_credit), (6, 3));
    assert_eq!(hello.labels["zone"], "a");
    assert!(hello.calls_in_hand.is_empty());
}

#[tokio::test]
async fn calls_are_accepted_and_answered() {
    let (_fake, _running, _, mut connection) = connected(4).await;
    connection.send_call(call("c1", "echo", r#"{"text":"hi"}"#)).await;
    assert_eq!(result(connection.reply().await), ("c1".into(), "hi".into()));

    connection.send_call(call("c2", "fail", "{}")).await;
    let failed = failure(connection.reply().await);
    assert!(failed.retryable);
    assert_eq!(failed.effect(), AttemptEffect::None);
    assert_eq!(failed.retry_delay.map(|delay| delay.seconds), Some(2));
}

/// The time left for a call with these fields, as its handler sees it by its own clock.
async fn time_left_of(request: CallRequest) -> Option<Duration> {
    let hosts = Hosts::default();
    let fake = FakeServer::start(Script::default(), hosts.clone()).await;
    let (sender, mut seen) = tokio::sync::mpsc::channel(1);
    let ask = move |_: NoArguments, ctx: CallContext| {
        let sender = sender.clone();
        async move {
            let left = ctx.deadline().map(|deadline| deadline.duration_since(SystemTime::now()));
            sender.send(left.map(|left| left.unwrap_or_default())).await.expect("the test waits");
            Ok::<_, ToolError>(())
        }
    };
    let ask = Tool::new("ask", "Asks for the time").read_only().handler(ask);
    let _running = Running::start(ToolHost::builder(fake.url()).host_id("host-1").tool(ask));
    let mut connection = hosts.welcome().await;
    connection.send_call(request).await;
    soon(seen.recv()).await.expect("the handler runs")
}

#[tokio::test]
async fn a_deadline_is_kept_by_the_time_left_and_not_by_the_servers_clock() {
    let (minute, hour) = (Duration::from_secs(60), Duration::from_secs(3600));
    let seconds = |seconds| Some(prost_types::Duration { seconds, nanos: 0 });
    for skewed in [SystemTime::now() - hour, SystemTime::now() + hour] {
        let deadline = Some(prost_types::Timestamp::from(skewed));
        let skewed = CallRequest { deadline, time_left: seconds(60), ..call("c1", "ask", "{}") };
        let left = time_left_of(skewed).await.expect("there is a deadline");
        assert!(left > minute / 2 && left <= minute, "{left:?}");
    }
    // An older server does not say how much time is left.
    let deadline = Some(prost_types::Timestamp::from(SystemTime::now() + hour));
    let left = time_left_of(CallRequest { deadline, ..call("c1", "ask", "{}") }).await.expect("a deadline");
    assert!(left > hour / 2 && left <= hour, "{left:?}");
}

#[tokio::test]
async fn a_tool_knows_who_started_the_run() {
    let hosts = Hosts::default();
    let fake = FakeServer::start(Script::default(), hosts.clone()).await;
    let (sender, mut seen) = tokio::sync::mpsc::channel(2);
    let who = move |_: NoArguments, ctx: CallContext| {
        let sender = sender.clone();
        async move {
            sender.send(ctx.caller().cloned()).await.expect("the test waits");
            Ok::<_, ToolError>(())
        }
    };
    let who = Tool::new("who", "Tells who asks").read_only().handler(who);
    let _running = Running::start(ToolHost::builder(fake.url()).host_id("host-1").tool(who));
    let mut connection = hosts.welcome().await;
    let ada = Caller { name: "ada".into(), tenant: "acme".into(), ..Caller::default() };
    for (id, caller) in [("c1", Some(ada)), ("c2", None)] {
        connection.send_call(CallRequest { caller: caller.clone(), ..call(id, "who", "{}") }).await;
        assert_eq!(soon(seen.recv()).await.expect("the handler runs"), caller);
        assert!(matches!(connection.reply().await, Frame::CallResult(_)));
    }
}

#[tokio::test]
async fn a_panic_is_the_calls_and_not_the_hosts() {
    let (_fake, _running, _, mut connection) = connected(4).await;
    connection.send_call(call("c1", "panic", "{}")).await;
    let failed = failure(connection.reply().await);
    assert_eq!(failed.effect(), AttemptEffect::Maybe);
    assert!(!failed.message.contains("secret"), "{}", failed.message);
    connection.send_call(call("c2", "echo", r#"{"text":"alive"}"#)).await;
    assert_eq!(result(connection.reply().await).1, "alive");
}

#[tokio::test]
async fn calls_that_cannot_run_are_rejected() {
    let (_fake, _running, gate, mut connection) = connected(1).await;
    let mut rejected = async |request: CallRequest| {
        connection.send(ServerFrame::CallRequest(request)).await;
        match connection.reply().await {
            Frame::CallRejected(rejected) => (rejected.reason(), rejected.message),
            other => panic!("not rejected: {other:?}"),
        }
    };
    assert_eq!(rejected(call("c1", "nothing", "{}")).await.0, RejectReason::UnknownTool);
    let (reason, message) = rejected(call("c2", "echo", r#"{"txt":1}"#)).await;
    assert_eq!(reason, RejectReason::BadArguments);
    assert!(message.contains("missing field `text`"), "{message}");
    let long = format!(r#""{}""#, "ä".repeat(5000));
    let (reason, message) = rejected(call("c2", "wait", &long)).await;
    assert_eq!((reason, message.len() <= 4096), (RejectReason::BadArguments, true), "{message}");
    assert!(message.ends_with('ä'), "{message}");

    connection.send_call(call("c3", "wait", "{}")).await;
    connection.send(ServerFrame::CallRequest(call("c4", "wait", "{}"))).await;
    assert!(matches!(connection.reply().await, Frame::CallRejected(r) if r.reason() == RejectReason::Busy));
    assert_eq!(gate.began.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn credit_never_exceeds_the_concurrency() {
    let (_fake, _running, gate, mut connection) = connected(2).await;
    // The server uses every credit at once. Calls that may run are those granted minus those ended.
    let (mut granted, mut given, mut ended) = (2, 0, 0);
    while ended < 20 {
        while given < granted {
            connection.send(ServerFrame::CallRequest(call(&format!("c{given}"), "wait", "{}"))).await;
            given += 1;
        }
        match connection.next().await.expect("connected") {
            Frame::CallAccepted(_) => gate.leave.add_permits(1),
            Frame::CallResult(result) => {
                ended += 1;
                connection.acknowledge(&result.call_id).await;
            }
            Frame::Credit(credit) => {
                assert!(credit.total > granted, "credit only grows");
                granted = credit.total;
            }
            other => panic!("rejected or worse: {other:?}"),
        }
        assert!(granted - ended <= 2, "{granted} granted, {ended} ended");
    }
    assert_eq!(gate.most.load(Ordering::SeqCst), 2, "both were used, and never more");
}

#[tokio::test]
async fn a_known_call_is_answered_from_the_cache() {
    let (_fake, _running, gate, mut connection) = connected(4).await;
    connection.send_call(call("c1", "wait", "{}")).await;
    connection.send_call(call("c1", "wait", "{}")).await;
    gate.leave.add_permits(1);
    assert_eq!(result(connection.reply().await).1, "waited c1");
    connection.send_call(call("c1", "wait", "{}")).await;
    assert_eq!(result(connection.reply().await).1, "waited c1");
    connection.acknowledge("c1").await;
    connection.send_call(call("c1", "wait", "{}")).await;
    assert_eq!(result(connection.reply().await).1, "waited c1");
    assert_eq!(gate.began.load(Ordering::SeqCst), 1, "it ran once");
}

#[tokio::test]
async fn a_call_with_another_idempotency_key_is_another_call() {
    let (_fake, _running, gate, mut connection) = connected(4).await;
    let other = CallRequest { idempotency_key: "other".into(), ..call("c1", "wait", "{}") };
    connection.send_call(call("c1", "wait", "{}")).await;
    connection.send(ServerFrame::CallRequest(other.clone())).await;
    assert!(matches!(connection.reply().await, Frame::CallRejected(r) if r.reason() == RejectReason::Busy));

    gate.leave.add_permits(1);
    assert_eq!(result(connection.reply().await).1, "waited c1");
    connection.send_call(other).await;
    gate.leave.add_permits(1);
    assert_eq!(result(connection.reply().await).1, "waited c1");
    assert_eq!(gate.began.load(Ordering::SeqCst), 2, "it ran");
}

#[tokio::test]
async fn a_cancel_stops_a_cooperative_call_and_drops_another() {
    let (_fake, _running, _, mut connection) = connected(4).await;
    for tool in ["wait", "deaf"] {
        connection.send_call(call(tool, tool, "{}")).await;
        let grace_period = Some(prost_types::Duration { seconds: 0, nanos: 1_000_000 });
        let cancel = Cancel {
            call_id: tool.into(),
            attempt: 1,
            reason: String::new(),
            grace_period,
            ..Cancel::default()
        };
        connection.send(ServerFrame::Cancel(cancel)).await;
        match connection.reply().await {
            Frame::CancelAck(ack) => assert_eq!(ack.outcome(), CancelOutcome::Stopped, "{tool}"),
            other => panic!("{tool}: {other:?}"),
        }
    }
    let cancel = Cancel { call_id: "never seen".into(), attempt: 1, ..Cancel::default() };
    connection.send(ServerFrame::Cancel(cancel)).await;
    assert!(matches!(connection.reply().await, Frame::CancelAck(a) if a.outcome() == CancelOutcome::Unknown));
}

#[tokio::test]
async fn output_is_sent_in_one_piece_and_before_the_result() {
    let (_fake, _running, _, mut connection) = connected(4).await;
    connection.send_call(call("c1", "talk", "{}")).await;
    let (mut said, mut pieces) = (Vec::new(), 0);
    let mut checkpoint = None;
    loop {
        match connection.reply().await {
            Frame::OutputChunk(chunk) => {
                pieces += 1;
                assert_eq!(chunk.chunk_seq, pieces);
                said.extend(chunk.data);
            }
            Frame::Progress(progress) => checkpoint = progress.checkpoint,
            frame => {
                assert_eq!(result(frame).1, "said");
                break;
            }
        }
    }
    assert_eq!(said, b"one two three");
    assert!(pieces < 3, "{pieces} pieces");
    assert_eq!(checkpoint.as_deref(), Some(&b"saved"[..]));
}

#[tokio::test]
async fn a_ping_is_answered() {
    let (_fake, _running, _, mut connection) = connected(1).await;
    connection.send(ServerFrame::Ping(Ping { nonce: 7 })).await;
    assert!(matches!(connection.reply().await, Frame::Pong(pong) if pong.nonce == 7));
}

#[tokio::test]
async fn a_host_that_is_told_to_go_connects_again() {
    let (hosts, gate) = (Hosts::default(), Gate::new());
    let fake = FakeServer::start(Script::default(), hosts.clone()).await;
    let _running = Running::start(host(&fake.url(), &gate));
    let mut first = hosts.welcome().await;
    first.send_call(call("c1", "wait", "{}")).await;
    first.send(ServerFrame::GoAway(GoAway::default())).await;
    let (_second, hello) = hosts.accept().await;
    assert_eq!(hello.calls_in_hand.len(), 1, "its call goes on");
    assert!(first.next().await.is_none());
}

#[tokio::test]
async fn a_host_that_shuts_down_finishes_its_calls_first() {
    let (_fake, running, gate, mut connection) = connected(4).await;
    connection.send_call(call("c1", "wait", "{}")).await;
    running.stop.cancel();
    assert!(matches!(connection.reply().await, Frame::Draining(_)));
    connection.send(ServerFrame::CallRequest(call("c2", "echo", "{}"))).await;
    assert!(
        matches!(connection.reply().await, Frame::CallRejected(r) if r.reason() == RejectReason::Draining)
    );
    gate.leave.add_permits(1);
    assert_eq!(result(connection.reply().await).1, "waited c1");
    assert!(!running.task.is_finished(), "the result is not acknowledged");
    connection.acknowledge("c1").await;
    assert!(matches!(connection.reply().await, Frame::Goodbye(_)));
    assert!(connection.next().await.is_none());
    drop(connection);
    running.ended().await.expect("a clean end");
}

#[tokio::test]
async fn heartbeats_name_the_calls_in_hand() {
    let (hosts, gate) = (Hosts::default(), Gate::new());
    let fake = FakeServer::start(Script::default(), hosts.clone()).await;
    let _running = Running::start(host(&fake.url(), &gate));
    let (mut connection, _) = hosts.accept().await;
    let interval = prost_types::Duration { seconds: 0, nanos: 100_000_000 };
    let welcome = agentloop_client::v1::Welcome {
        protocol_version: 1,
        heartbeat_interval: Some(interval),
        ..Default::default()
    };
    connection.send(ServerFrame::Welcome(welcome)).await;
    connection.send_call(call("c1", "wait", "{}")).await;
    let before = connection.heartbeats.len();
    while connection.heartbeats.len() < before + 2 {
        // The pong comes after every heartbeat that was due before it.
        connection.send(ServerFrame::Ping(Ping { nonce: 1 })).await;
        connection.reply().await;
    }
    let calls = &connection.heartbeats.last().expect("at least two").calls;
    assert_eq!(calls.iter().map(|call| call.call_id.as_str()).collect::<Vec<_>>(), ["c1"]);
}
