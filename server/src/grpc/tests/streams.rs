//! Tests of a host's stream: how it begins, the frames that end it, its tools, and its end.

use agentloop_core::agent::RunSpec;
use agentloop_proto::v1::tools_client::ToolsClient;
use tonic::Code;

use super::*;
use crate::tool::tests::harness::tenant;

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
    // It has a number in the place of a hello.
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
async fn a_host_drains_and_says_goodbye() {
    let harness = Harness::new().await;
    let mut host = harness.host("h", &["weather"]).await;
    harness.give("r/1.0", 1, "weather");
    host.take().await;
    host.say(Say::Draining(v1::Draining::default()));
    host.say(result("r/1.0", 1));
    host.ack().await;
    assert_eq!(harness.tools.seek(&origin(), &call_id("r/1.1"), "weather", None), Seek::Queued);
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
        let hosts = tools.list_hosts(v1::ListHostsRequest::default()).await.unwrap().into_inner().hosts;
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
    let ServerFrame::ToolsUpdated(updated) = host.told().await else { panic!("no verdicts") };
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
    let hosts = client.list_hosts(v1::ListHostsRequest::default()).await.unwrap().into_inner().hosts;
    assert_eq!((hosts[0].host_id.as_str(), hosts[0].sdk.as_str()), ("h", "test/1"));
    assert_eq!((hosts[0].calls_in_flight, hosts[0].free_credit), (1, 7));
    assert_eq!(hosts[0].tools, ["a", "b"]);
    assert_eq!(harness.tools.offered(&tenant(), &RunSpec::default()).tools.len(), 2);
}

#[tokio::test]
async fn too_many_hosts_are_told_to_come_back() {
    let harness = Harness::with(RemoteToolsOptions { max_hosts: 1, ..RemoteToolsOptions::default() }).await;
    let _host = harness.host("h", &["a"]).await;
    let (_say, frames) = mpsc::unbounded_channel();
    let mut client = ToolHostClient::new(harness.channel.clone());
    let status = client.connect(UnboundedReceiverStream::new(frames)).await.expect_err("no place");
    assert_eq!((status.code(), reason(&status).as_str()), (Code::ResourceExhausted, "TOO_MANY_HOSTS"));
    assert!(status.get_details_retry_info().is_some());
}

#[tokio::test]
async fn shutting_down_is_announced_and_ends_the_stream() {
    let harness = Harness::new().await;
    let mut host = harness.host("h", &["a"]).await;
    harness.tools.go_away();
    let ServerFrame::GoAway(go_away) = host.told().await else { panic!("no go-away") };
    assert_eq!(go_away.reconnect_after, Some(prost_types::Duration { seconds: 1, nanos: 0 }));
    // A host that comes now is refused before its stream begins: a replica in between may take it to the next owner.
    let (_say, frames) = mpsc::unbounded_channel();
    let mut client = ToolHostClient::new(harness.channel.clone());
    let status = client.connect(UnboundedReceiverStream::new(frames)).await.expect_err("it stops");
    assert_eq!((status.code(), reason(&status).as_str()), (Code::Unavailable, "SHUTTING_DOWN"));
    harness.tools.close();
    let status = host.next().await.expect_err("the stream ends");
    assert_eq!((status.code(), reason(&status).as_str()), (Code::Unavailable, "SHUTTING_DOWN"));
}
