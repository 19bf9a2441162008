//! Tests of the services ToolHost and Tools over a real socket, with the generated client.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use agentloop_core::agent::RunSpec;
use agentloop_core::host::frame::CancelCause;
use agentloop_core::run::input::CallOutcome;
use agentloop_proto::v1::connect_request::Frame as Say;
use agentloop_proto::v1::connect_response::Frame as Told;
use agentloop_proto::v1::tool_host_client::ToolHostClient;
use agentloop_proto::v1::tools_client::ToolsClient;
use agentloop_proto::v1::{self, ConnectRequest, ConnectResponse};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::{TcpListenerStream, UnboundedReceiverStream};
use tokio_util::task::TaskTracker;
use tonic::transport::{Channel, Server};
use tonic::{Code, Status, Streaming};
use tonic_types::StatusExt as _;

use crate::engine::{Engine, EngineParts};
use crate::grpc::service::tool_host::ToolHostService;
use crate::grpc::service::tools::ToolsService;
use crate::model::ProviderRegistry;
use crate::store::sqlite::SqliteStore;
use crate::tool::tests::harness::{FakeEngine, Heard, NOW, call_id, lease, offer, owner, tenant};
use crate::tool::{CallUpdate, Disposition, HostOptions, RemoteTools, Seek, Tools as _, Verdict};

const PATIENCE: Duration = Duration::from_secs(30);

struct Harness {
    tools: Arc<RemoteTools>,
    engine: Arc<FakeEngine>,
    channel: Channel,
}

/// An engine without runs.
async fn idle_engine(tools: Arc<RemoteTools>) -> Engine {
    let store = Arc::new(SqliteStore::in_memory().await.unwrap());
    let models = Arc::new(ProviderRegistry::default());
    EngineParts::default().start(store, models, tools)
}

impl Harness {
    async fn new() -> Self {
        Self::with(HostOptions::default()).await
    }

    async fn with(options: HostOptions) -> Self {
        let tools = RemoteTools::new(options, NOW, Vec::new());
        let engine = Arc::new(FakeEngine::default());
        tokio::spawn(tools.clone().drive(engine.clone()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = Server::builder()
            .add_service(ToolHostService::server(tools.clone(), TaskTracker::new(), None))
            .add_service(ToolsService::server(
                tools.clone(),
                idle_engine(tools.clone()).await,
                Arc::default(),
            ))
            .serve_with_incoming(TcpListenerStream::new(listener));
        tokio::spawn(server);
        let channel = Channel::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
        Self { tools, engine, channel }
    }

    /// Opens a stream and waits for the response headers. The host has sent nothing yet.
    async fn dial(&self) -> Host {
        let (say, frames) = mpsc::unbounded_channel();
        let mut client = ToolHostClient::new(self.channel.clone()).max_encoding_message_size(usize::MAX);
        let told = client.connect(UnboundedReceiverStream::new(frames));
        let told = tokio::time::timeout(PATIENCE, told).await.expect("headers come at once").unwrap();
        Host { say, told: told.into_inner() }
    }

    async fn host(&self, name: &str, tools: &[&str]) -> Host {
        let mut host = self.dial().await;
        host.say(Say::Hello(hello(name, tools)));
        let Told::Welcome(_) = host.told().await else { panic!("no welcome") };
        host
    }

    fn give(&self, call: &str, attempt: u32, tool: &str) -> String {
        let Seek::Granted { host, .. } = self.tools.seek(&owner(), &call_id(call), tool) else {
            panic!("no room")
        };
        self.tools.offer(&owner(), &call_id(call), offer(call, attempt, &host, tool));
        host.to_string()
    }

    async fn complete(&self, outcome: Option<v1::complete_call_request::Outcome>) -> Result<i32, Status> {
        let mut client = ToolHostClient::new(self.channel.clone());
        let response = client.complete_call(v1::CompleteCallRequest { outcome }).await?;
        Ok(response.into_inner().verdict)
    }
}

struct Host {
    say: mpsc::UnboundedSender<ConnectRequest>,
    told: Streaming<ConnectResponse>,
}

impl Host {
    fn say(&self, frame: Say) {
        // A stream that has ended takes nothing more.
        let _ = self.say.send(ConnectRequest { frame: Some(frame) });
    }

    /// The next message that is no ping.
    async fn next(&mut self) -> Result<Option<ConnectResponse>, Status> {
        loop {
            let next = tokio::time::timeout(PATIENCE, self.told.message()).await.expect("something comes");
            match next {
                Ok(Some(ConnectResponse { frame: Some(Told::Ping(_)) })) => {}
                next => return next,
            }
        }
    }

    async fn told(&mut self) -> Told {
        self.next()
            .await
            .expect("the stream goes on")
            .expect("the stream goes on")
            .frame
            .expect("a frame is set")
    }

    async fn call(&mut self) -> v1::CallRequest {
        match self.told().await {
            Told::CallRequest(request) => request,
            other => panic!("no call: {other:?}"),
        }
    }

    async fn take(&mut self) -> v1::CallRequest {
        let request = self.call().await;
        self.say(Say::CallAccepted(v1::CallAccepted {
            call_id: request.call_id.clone(),
            attempt: request.attempt,
        }));
        request
    }

    async fn ack(&mut self) -> (String, v1::ResultVerdict) {
        match self.told().await {
            Told::ResultAck(ack) => (ack.call_id.clone(), ack.verdict()),
            other => panic!("no acknowledgement: {other:?}"),
        }
    }

    /// The protocol error, and the status that the stream ends with.
    async fn thrown_out(&mut self) -> (String, Status) {
        let Told::ProtocolError(error) = self.told().await else { panic!("no protocol error") };
        (error.message, self.next().await.expect_err("the stream ends with an error"))
    }
}

fn hello(name: &str, tools: &[&str]) -> v1::Hello {
    v1::Hello {
        protocol_version: 1,
        host_id: name.into(),
        sdk: "test/1".into(),
        capabilities: tools.iter().map(|name| tool(name)).collect(),
        initial_credit: 8,
        ..v1::Hello::default()
    }
}

fn tool(name: &str) -> v1::Capability {
    let tool = v1::ToolDeclaration {
        name: name.into(),
        description: "Does things.".into(),
        input_schema_json: r#"{"type":"object"}"#.into(),
        effect: v1::EffectClass::ReadOnly.into(),
        ..v1::ToolDeclaration::default()
    };
    v1::Capability { capability: Some(v1::capability::Capability::Tool(tool)) }
}

fn result_of(call: &str, attempt: u32) -> v1::CallResult {
    v1::CallResult {
        call_id: call.into(),
        attempt,
        lease_token: lease(call, attempt).as_str().into(),
        output: "sunny".into(),
        ..v1::CallResult::default()
    }
}

fn result(call: &str, attempt: u32) -> Say {
    Say::CallResult(result_of(call, attempt))
}

fn reason(status: &Status) -> String {
    status.get_details_error_info().expect("every error has a reason").reason
}

#[tokio::test]
async fn a_call_travels_whole() {
    let harness = Harness::new().await;
    let mut host = harness.host("h", &["weather"]).await;
    assert_eq!(harness.give("r/2.1", 3, "weather"), "h");
    let request = host.take().await;
    let expected = v1::CallRequest {
        call_id: "r/2.1".into(),
        attempt: 3,
        lease_token: lease("r/2.1", 3).as_str().into(),
        idempotency_key: "key of r/2.1".into(),
        tool: "weather".into(),
        arguments_json: r#"{"city":"Ulm"}"#.into(),
        deadline: Some(prost_types::Timestamp { seconds: 1_700_000_060, nanos: 0 }),
        checkpoint: None,
        run_id: "r".into(),
        session_id: "s".into(),
        turn_id: "r.2".into(),
        traceparent: String::new(),
        runtime_id: String::new(),
        time_left: Some(prost_types::Duration { seconds: 60, nanos: 0 }),
        resume_state: None,
        answers: Vec::new(),
        caller: Some(v1::Caller { name: "ada".into(), tenant: "local".into(), groups: Vec::new() }),
    };
    assert_eq!(request, expected);
    host.say(Say::Progress(v1::Progress {
        call_id: "r/2.1".into(),
        attempt: 3,
        message: "half".into(),
        fraction: Some(0.5),
        checkpoint: Some(b"ck".to_vec()),
        ..v1::Progress::default()
    }));
    host.say(Say::OutputChunk(v1::OutputChunk {
        call_id: "r/2.1".into(),
        attempt: 3,
        chunk_seq: 1,
        stream: v1::OutputStream::Stderr.into(),
        data: b"hm".to_vec(),
    }));
    host.say(result("r/2.1", 3));
    assert_eq!(host.ack().await, ("r/2.1".into(), v1::ResultVerdict::Recorded));
    let heard = harness.engine.all();
    let news: Vec<&CallUpdate> = heard
        .iter()
        .filter_map(|heard| match heard {
            Heard::News(_, news) => Some(news),
            Heard::Finished(..) => None,
        })
        .collect();
    assert!(
        matches!(
            news.as_slice(),
            [
                CallUpdate::Accepted { attempt: 3, .. },
                CallUpdate::Checkpoint { attempt: 3, .. },
                CallUpdate::Progress { attempt: 3, .. },
                CallUpdate::Output { chunk_seq: 1, stderr: true, .. }
            ]
        ),
        "{news:?}"
    );
    assert!(matches!(heard.last(), Some(Heard::Finished(..))));
}

#[tokio::test]
async fn a_failure_travels_too() {
    let harness = Harness::new().await;
    let mut host = harness.host("h", &["weather"]).await;
    harness.give("r/1.0", 1, "weather");
    host.take().await;
    host.say(Say::CallFailed(v1::CallFailed {
        call_id: "r/1.0".into(),
        attempt: 1,
        lease_token: lease("r/1.0", 1).as_str().into(),
        message: "clouds".into(),
        retryable: true,
        retry_delay: Some(prost_types::Duration { seconds: 2, nanos: 0 }),
        effect: v1::AttemptEffect::None.into(),
    }));
    host.ack().await;
    let heard = harness.engine.all();
    let Some(Heard::Finished(_, answer)) = heard.last() else { panic!("{heard:?}") };
    let CallOutcome::Failed { message, retryable: true, delay, ran } = &answer.outcome else {
        panic!("{answer:?}")
    };
    assert_eq!((message.as_str(), delay.0), ("clouds", 2_000));
    assert_eq!(ran, &agentloop_core::run::event::Ran::No);
}

#[tokio::test]
async fn a_host_that_begins_with_something_else_is_thrown_out() {
    let harness = Harness::new().await;
    let mut host = harness.dial().await;
    host.say(Say::Pong(v1::Pong { nonce: 1 }));
    let (message, status) = host.thrown_out().await;
    assert!(message.contains("hello"), "{message}");
    assert_eq!((status.code(), reason(&status).as_str()), (Code::InvalidArgument, "PROTOCOL_VIOLATION"));
}

#[tokio::test]
async fn a_version_that_is_not_spoken() {
    let harness = Harness::new().await;
    let mut host = harness.dial().await;
    host.say(Say::Hello(v1::Hello { protocol_version: 9, ..hello("h", &[]) }));
    let (message, status) = host.thrown_out().await;
    assert!(message.contains('9'), "{message}");
    assert_eq!(status.code(), Code::FailedPrecondition);
}

#[tokio::test]
async fn malformed_frames_are_told_and_end_the_stream() {
    let harness = Harness::new().await;
    let mut nameless = harness.dial().await;
    nameless.say(Say::Hello(hello("", &[])));
    let (message, status) = nameless.thrown_out().await;
    assert!(message.contains("hello.host_id"), "{message}");
    assert_eq!(status.code(), Code::InvalidArgument);

    let mut host = harness.host("h", &["weather"]).await;
    host.say(Say::CallAccepted(v1::CallAccepted { call_id: "made up".into(), attempt: 1 }));
    let (message, status) = host.thrown_out().await;
    assert!(message.contains("call_id"), "{message}");
    assert_eq!((status.code(), reason(&status).as_str()), (Code::InvalidArgument, "PROTOCOL_VIOLATION"));
}

#[tokio::test]
async fn a_frame_larger_than_any_is_told_and_ends_the_stream() {
    let harness = Harness::new().await;
    let mut host = harness.host("h", &["weather"]).await;
    let large = v1::CallResult { output: "x".repeat(5 * 1024 * 1024), ..result_of("r/1.0", 1) };
    host.say(Say::CallResult(large));
    let (message, status) = host.thrown_out().await;
    assert!(message.contains("larger than 4194304 bytes"), "{message}");
    assert_eq!(status.code(), Code::InvalidArgument);
    assert_eq!(harness.tools.hosts_snapshot(&tenant()), []);
}

#[tokio::test]
async fn bytes_that_are_no_frame_are_told_and_end_the_stream() {
    let harness = Harness::new().await;
    let mut client = tonic::client::Grpc::new(harness.channel.clone());
    client.ready().await.unwrap();
    // Where a frame has its hello, this has a number.
    let codec = tonic_prost::ProstCodec::<v1::Credit, ConnectResponse>::default();
    let frames = tokio_stream::iter([v1::Credit { total: 5 }]);
    let path = "/agentloop.v1.ToolHost/Connect".parse().unwrap();
    let told = client.streaming(tonic::Request::new(frames), path, codec).await.unwrap().into_inner();
    let mut host = Host { say: mpsc::unbounded_channel().0, told };
    let (message, status) = host.thrown_out().await;
    assert!(message.contains("cannot be decoded"), "{message}");
    assert_eq!(status.code(), Code::InvalidArgument);
}

#[tokio::test]
async fn unknown_calls_are_stale_and_results_given_twice_are_duplicates() {
    let harness = Harness::new().await;
    let mut host = harness.host("h", &["weather"]).await;
    harness.engine.verdict("x/1.0", Verdict::Unknown);
    host.say(result("x/1.0", 1));
    assert_eq!(host.ack().await, ("x/1.0".into(), v1::ResultVerdict::Stale));
    harness.give("r/1.0", 1, "weather");
    host.take().await;
    host.say(result("r/1.0", 1));
    assert_eq!(host.ack().await.1, v1::ResultVerdict::Recorded);
    harness.engine.verdict("r/1.0", Verdict::Duplicate);
    host.say(result("r/1.0", 1));
    assert_eq!(host.ack().await.1, v1::ResultVerdict::Duplicate);
}

#[tokio::test]
async fn a_second_connection_takes_the_firsts_place() {
    let harness = Harness::new().await;
    let mut first = harness.host("h", &["weather"]).await;
    let mut second = harness.host("h", &["weather"]).await;
    let (_, status) = first.thrown_out().await;
    assert_eq!(status.code(), Code::FailedPrecondition);
    harness.give("r/1.0", 1, "weather");
    second.take().await;
}

#[tokio::test]
async fn two_hosts_share_a_tool() {
    let harness = Harness::new().await;
    let mut hosts = [harness.host("a", &["weather"]).await, harness.host("b", &["weather"]).await];
    let mut given: Vec<String> =
        (0..4).map(|index| harness.give(&format!("r/1.{index}"), 1, "weather")).collect();
    given.sort();
    assert_eq!(given, ["a", "a", "b", "b"]);
    for host in &mut hosts {
        for call in [host.take().await, host.take().await] {
            host.say(result(&call.call_id, 1));
            assert_eq!(host.ack().await.1, v1::ResultVerdict::Recorded);
        }
    }
}

#[tokio::test]
async fn a_host_reconnects_with_calls_in_hand_and_results_that_were_not_acknowledged() {
    let harness = Harness::new().await;
    let mut host = harness.host("h", &["weather"]).await;
    for call in ["r/1.0", "r/1.1", "r/1.2"] {
        harness.give(call, 1, "weather");
        host.take().await;
    }
    harness.engine.heard(3).await;
    harness.engine.available.store(false, Ordering::SeqCst);
    host.say(result("r/1.1", 1));
    assert!(matches!(host.told().await, Told::GoAway(_)));
    let status = host.next().await.expect_err("the stream ends");
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.get_details_retry_info().is_some());

    harness.engine.available.store(true, Ordering::SeqCst);
    harness.engine.disposition("r/1.2", Disposition::Stop);
    let mut host = harness.dial().await;
    let in_hand = |call: &str, finished| v1::CallInHand {
        call_id: call.into(),
        attempt: 1,
        lease_token: lease(call, 1).as_str().into(),
        finished,
    };
    let calls_in_hand = vec![in_hand("r/1.0", false), in_hand("r/1.1", true), in_hand("r/1.2", false)];
    host.say(Say::Hello(v1::Hello { calls_in_hand, ..hello("h", &["weather"]) }));
    let Told::Welcome(welcome) = host.told().await else { panic!("no welcome") };
    let verdicts: Vec<_> = welcome.calls.iter().map(v1::CallVerdict::disposition).collect();
    let go_on = v1::CallDisposition::Continue;
    assert_eq!(verdicts, [go_on, go_on, v1::CallDisposition::Stop]);
    for call in ["r/1.1", "r/1.0"] {
        host.say(result(call, 1));
        assert_eq!(host.ack().await, (call.into(), v1::ResultVerdict::Recorded));
    }
    assert!(
        !harness.engine.all().iter().any(|heard| matches!(heard, Heard::News(_, CallUpdate::Lost { .. })))
    );
}

#[tokio::test]
async fn a_cancel_is_pushed() {
    let harness = Harness::new().await;
    let mut host = harness.host("h", &["weather"]).await;
    harness.give("r/1.0", 1, "weather");
    host.take().await;
    harness.tools.cancel(
        &tenant(),
        &call_id("r/1.0"),
        1,
        CancelCause::Aborted,
        "the user has changed their mind",
    );
    let Told::Cancel(cancel) = host.told().await else { panic!("no cancel") };
    assert_eq!((cancel.call_id.as_str(), cancel.attempt), ("r/1.0", 1));
    assert_eq!(cancel.grace_period, Some(prost_types::Duration { seconds: 5, nanos: 0 }));
    host.say(Say::CancelAck(v1::CancelAck {
        call_id: "r/1.0".into(),
        attempt: 1,
        outcome: v1::CancelOutcome::Stopped.into(),
    }));
    harness.give("r/1.1", 1, "weather");
    host.take().await;
}

#[tokio::test]
async fn a_host_drains_and_says_goodbye() {
    let harness = Harness::new().await;
    let mut host = harness.host("h", &["weather"]).await;
    harness.give("r/1.0", 1, "weather");
    host.take().await;
    host.say(Say::Draining(v1::Draining::default()));
    host.say(result("r/1.0", 1));
    host.ack().await;
    assert_eq!(harness.tools.seek(&owner(), &call_id("r/1.1"), "weather"), Seek::Queued);
    host.say(Say::Goodbye(v1::Goodbye::default()));
    assert_eq!(host.next().await.unwrap(), None, "the stream ends as it should");
}

#[tokio::test]
async fn a_host_that_hangs_up_is_lost() {
    let harness = Harness::new().await;
    let mut host = harness.host("h", &["weather"]).await;
    harness.give("r/1.0", 1, "weather");
    host.take().await;
    harness.engine.heard(1).await;
    drop(host);
    let mut tools = ToolsClient::new(harness.channel.clone());
    loop {
        let hosts = tools.list_hosts(v1::ListHostsRequest {}).await.unwrap().into_inner().hosts;
        if hosts[0].health() == v1::HostHealth::Lost {
            assert_eq!(hosts[0].calls_in_flight, 1);
            break;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn tools_change_on_a_live_stream() {
    let harness = Harness::new().await;
    let mut host = harness.host("h", &["a"]).await;
    let unknown = v1::Capability { capability: None };
    host.say(Say::UpdateTools(v1::UpdateTools {
        capabilities: vec![tool("b"), unknown, tool("not a name")],
    }));
    let Told::ToolsUpdated(updated) = host.told().await else { panic!("no verdicts") };
    let verdicts: Vec<_> = updated.capabilities.iter().map(|v| (v.name.as_str(), v.accepted)).collect();
    assert_eq!(verdicts, [("b", true), ("", false), ("not a name", false)]);
    assert!(updated.capabilities[1..].iter().all(|verdict| !verdict.reason.is_empty()));
}

#[tokio::test]
async fn the_tools_service_shows_tools_and_hosts() {
    let harness = Harness::new().await;
    let mut host = harness.host("h", &["a", "b"]).await;
    harness.give("r/1.0", 1, "a");
    host.take().await;
    harness.engine.heard(1).await;
    let mut client = ToolsClient::new(harness.channel.clone());
    let list = |name: &str| v1::ListToolsRequest { name: name.into(), ..Default::default() };
    let tools = client.list_tools(list("")).await.unwrap().into_inner().tools;
    let lines: Vec<_> = tools
        .iter()
        .map(|tool| {
            (tool.declaration.as_ref().unwrap().name.as_str(), tool.host_ids.len(), tool.calls_in_flight)
        })
        .collect();
    assert_eq!(lines, [("a", 1, 1), ("b", 1, 0)]);
    assert!(tools.iter().all(|tool| tool.digest.len() == 32 && tool.last_seen_at.is_some()));
    assert_eq!(tools[0].declaration.as_ref().unwrap().effect(), v1::EffectClass::ReadOnly);
    assert_eq!(client.list_tools(list("b")).await.unwrap().into_inner().tools.len(), 1);
    assert_eq!(client.list_tools(list("z")).await.unwrap().into_inner().tools, []);
    let hosts = client.list_hosts(v1::ListHostsRequest {}).await.unwrap().into_inner().hosts;
    assert_eq!((hosts[0].host_id.as_str(), hosts[0].sdk.as_str()), ("h", "test/1"));
    assert_eq!((hosts[0].calls_in_flight, hosts[0].free_credit), (1, 7));
    assert_eq!(hosts[0].tools, ["a", "b"]);
    assert_eq!(harness.tools.offered(&tenant(), &RunSpec::default()).tools.len(), 2);
}

#[tokio::test]
async fn too_many_hosts_are_told_to_come_back() {
    let harness = Harness::with(HostOptions { connections_max: 1, ..HostOptions::default() }).await;
    let _host = harness.host("h", &["a"]).await;
    let (_say, frames) = mpsc::unbounded_channel();
    let mut client = ToolHostClient::new(harness.channel.clone());
    let status = client.connect(UnboundedReceiverStream::new(frames)).await.expect_err("no place");
    assert_eq!((status.code(), reason(&status).as_str()), (Code::ResourceExhausted, "TOO_MANY_HOSTS"));
    assert!(status.get_details_retry_info().is_some());
}

#[tokio::test]
async fn results_come_without_a_stream_too() {
    use v1::complete_call_request::Outcome;
    let harness = Harness::new().await;
    let mut host = harness.host("h", &["a"]).await;
    harness.give("r/1.0", 1, "a");
    host.take().await;
    drop(host);
    let done = || Some(Outcome::Result(result_of("r/1.0", 1)));
    assert_eq!(harness.complete(done()).await.unwrap(), i32::from(v1::ResultVerdict::Recorded));
    harness.engine.verdict("r/1.0", Verdict::Duplicate);
    assert_eq!(harness.complete(done()).await.unwrap(), i32::from(v1::ResultVerdict::Duplicate));

    harness.engine.verdict("x/1.0", Verdict::Unknown);
    let status = harness.complete(Some(Outcome::Result(result_of("x/1.0", 1)))).await.unwrap_err();
    assert_eq!((status.code(), reason(&status).as_str()), (Code::NotFound, "CALL_NOT_FOUND"));

    let status = harness.complete(None).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    let violations = status.get_details_bad_request().unwrap().field_violations;
    assert_eq!(violations[0].field, "outcome");
    let bad = v1::CallFailed { call_id: "?".into(), ..v1::CallFailed::default() };
    let status = harness.complete(Some(Outcome::Failed(bad))).await.unwrap_err();
    assert_eq!(status.get_details_bad_request().unwrap().field_violations[0].field, "call_id");

    harness.engine.available.store(false, Ordering::SeqCst);
    let status = harness.complete(done()).await.unwrap_err();
    assert_eq!((status.code(), reason(&status).as_str()), (Code::Unavailable, "STORE_UNAVAILABLE"));
}

#[tokio::test]
async fn shutting_down_is_announced_and_ends_the_stream() {
    let harness = Harness::new().await;
    let mut host = harness.host("h", &["a"]).await;
    harness.tools.go_away();
    let Told::GoAway(go_away) = host.told().await else { panic!("no go-away") };
    assert_eq!(go_away.reconnect_after, Some(prost_types::Duration { seconds: 1, nanos: 0 }));
    harness.tools.close();
    let status = host.next().await.expect_err("the stream ends");
    assert_eq!((status.code(), reason(&status).as_str()), (Code::Unavailable, "SHUTTING_DOWN"));
}
