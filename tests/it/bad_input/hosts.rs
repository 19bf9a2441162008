//! Invalid requests to the services `ToolHost` and `Tools`.

use agentloop_client::v1 as wire;
use agentloop_tests::errors::{assert_invalid, assert_refused, reason};
use agentloop_tests::model::Model;
use agentloop_tests::raw_host::{RawHost, hello};
use agentloop_tests::server::TestServer;
use agentloop_tests::soon;
use tonic::Code;
use wire::complete_call_request::Outcome;
use wire::connect_request::Frame;

use super::long_id;

#[tokio::test]
async fn completing_a_call() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let good = wire::CallResult { call_id: "r1/1.0".to_owned(), attempt: 1, ..Default::default() };
    let result = |result| Some(Outcome::Result(result));
    let picture = |source, media_type: &str| wire::Image { source, media_type: media_type.to_owned() };
    let with = |image| result(wire::CallResult { images: vec![image], ..good.clone() });
    for (outcome, field) in [
        (None, "outcome"),
        (result(wire::CallResult { call_id: String::new(), ..good.clone() }), "call_id"),
        (result(wire::CallResult { call_id: "r1".to_owned(), ..good.clone() }), "call_id"),
        (result(wire::CallResult { attempt: 0, ..good.clone() }), "attempt"),
        (result(wire::CallResult { lease_token: long_id(), ..good.clone() }), "lease_token"),
        (
            result(wire::CallResult { output: "x".repeat(3 * 1024 * 1024 + 1), ..good.clone() }),
            "call_result.output",
        ),
        (with(picture(None, "image/png")), "call_result.images.source"),
        (with(picture(Some(wire::image::Source::Data(vec![1])), "")), "call_result.images.media_type"),
        (
            with(picture(Some(wire::image::Source::Data(vec![1])), "text/html")),
            "call_result.images.media_type",
        ),
        (with(picture(Some(wire::image::Source::Data(vec![])), "image/png")), "call_result.images.data"),
        (
            with(picture(Some(wire::image::Source::Url("ftp://there".to_owned())), "")),
            "call_result.images.url",
        ),
        (
            Some(Outcome::Failed(wire::CallFailed {
                call_id: "r1/1.0".to_owned(),
                attempt: 1,
                retry_delay: Some(prost_types::Duration { seconds: -1, nanos: 0 }),
                ..Default::default()
            })),
            "call_failed.retry_delay",
        ),
    ] {
        let request = wire::CompleteCallRequest { outcome };
        assert_invalid(soon(server.tool_host().complete_call(request)).await, &[field]);
    }
    let request = wire::CompleteCallRequest { outcome: result(good) };
    let nobody = soon(server.tool_host().complete_call(request)).await;
    assert_refused(nobody, Code::NotFound, "CALL_NOT_FOUND");
}

async fn assert_violation(server: &TestServer, frames: Vec<Frame>, code: Code, words: &str) {
    let mut host = RawHost::open(server).await;
    frames.into_iter().for_each(|frame| host.send(frame));
    let (told, status) = host.failure().await;
    assert_eq!((status.code(), reason(&status).as_str()), (code, "PROTOCOL_VIOLATION"), "{status:?}");
    let told = told.expect("it is told inside the stream");
    assert!(told.message.contains(words), "{words}: {}", told.message);
    assert!(status.message().contains(&told.message), "the status says why, too: {status:?}");
}

#[tokio::test]
async fn frames_that_break_the_protocol() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let hello = |id: &str| hello(id, Vec::new());
    let invalid = Code::InvalidArgument;
    let early = vec![Frame::Credit(wire::Credit { total: 1 })];
    assert_violation(&server, early, invalid, "hello").await;
    assert_violation(&server, vec![Frame::Hello(hello("a b"))], invalid, "hello.host_id").await;
    let twice = vec![Frame::Hello(hello("h1")), Frame::Hello(hello("h1"))];
    assert_violation(&server, twice, invalid, "hello").await;
    let version = wire::Hello { protocol_version: 99, ..hello("h1") };
    assert_violation(&server, vec![Frame::Hello(version)], Code::FailedPrecondition, "version").await;
    let call = wire::CallAccepted { call_id: "nonsense".to_owned(), attempt: 1 };
    let malformed = vec![Frame::Hello(hello("h1")), Frame::CallAccepted(call)];
    assert_violation(&server, malformed, invalid, "call_id").await;
    let large = wire::CallResult {
        call_id: "r1/1.0".to_owned(),
        attempt: 1,
        output: "x".repeat(5 * 1024 * 1024),
        ..Default::default()
    };
    let large = vec![Frame::Hello(hello("h1")), Frame::CallResult(large)];
    assert_violation(&server, large, invalid, "larger than").await;
    let hosts = soon(server.tools().list_hosts(wire::ListHostsRequest::default())).await.expect("listed");
    assert_eq!(hosts.into_inner().hosts, []);
}
