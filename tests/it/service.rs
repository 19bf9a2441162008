//! The services for health and reflection, and answers to calls that end before a service answers.

use agentloop_client::v1::RunRequest;
use agentloop_tests::input::prompt;
use agentloop_tests::model::Model;
use agentloop_tests::server::TestServer;
use agentloop_tests::soon;
use bytes::{BufMut as _, Bytes, BytesMut};
use prost::Message as _;
use tokio::net::TcpStream;
use tokio_stream::StreamExt as _;
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

#[tokio::test]
async fn health_serves_while_the_server_does() {
    let model = Model::start().await;
    let mut server = TestServer::start(&model).await;
    let mut client = HealthClient::new(server.channel());
    let request = |service: &str| HealthCheckRequest { service: service.to_owned() };
    let services = ["AgentLoop", "Blobs", "Server", "Sessions", "ToolHost", "Tools"]
        .map(|name| format!("agentloop.v1.{name}"));
    for service in services.iter().map(String::as_str).chain(["", "liveness"]) {
        let health = soon(client.check(request(service))).await.expect("known").into_inner();
        assert_eq!(health.status(), ServingStatus::Serving, "{service:?}");
    }
    let unknown = soon(client.check(request("nobody"))).await.expect_err("unknown");
    assert_eq!(unknown.code(), Code::NotFound);

    let mut watched = soon(client.watch(request("agentloop.v1.ToolHost"))).await.expect("known").into_inner();
    let first = soon(watched.next()).await.expect("a status").expect("a status");
    assert_eq!(first.status(), ServingStatus::Serving);
    let stopping = tokio::spawn(async move {
        server.stop().await;
        server
    });
    // The first look at the store may tell once more that all is well.
    let ended = watched.map(|status| status.expect("a status").status());
    let mut ended = std::pin::pin!(ended.skip_while(|status| *status == ServingStatus::Serving));
    assert_eq!(soon(ended.next()).await, Some(ServingStatus::NotServing));
    soon(stopping).await.expect("it stops");
}

async fn reflect(
    client: &mut ServerReflectionClient<tonic::transport::Channel>,
    ask: MessageRequest,
) -> MessageResponse {
    let request = ServerReflectionRequest { host: String::new(), message_request: Some(ask) };
    let answers = soon(client.server_reflection_info(tokio_stream::iter([request]))).await.expect("served");
    let answer = soon(answers.into_inner().next()).await.expect("an answer").expect("an answer");
    answer.message_response.expect("an answer")
}

#[tokio::test]
async fn reflection_lists_every_service_and_describes_it() {
    const SERVICES: [&str; 8] = [
        "agentloop.v1.AgentLoop",
        "agentloop.v1.Blobs",
        "agentloop.v1.Server",
        "agentloop.v1.Sessions",
        "agentloop.v1.ToolHost",
        "agentloop.v1.Tools",
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
    ];
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let mut client = ServerReflectionClient::new(server.channel());
    let listed = reflect(&mut client, MessageRequest::ListServices(String::new())).await;
    let MessageResponse::ListServicesResponse(listed) = listed else { panic!("{listed:?}") };
    let mut names: Vec<_> = listed.service.into_iter().map(|service| service.name).collect();
    names.sort();
    assert_eq!(names, SERVICES);
    for name in SERVICES {
        let described = reflect(&mut client, MessageRequest::FileContainingSymbol(name.to_owned())).await;
        assert!(matches!(described, MessageResponse::FileDescriptorResponse(_)), "{name}: {described:?}");
    }
    // Clients without proto files read the details of an error by these.
    for detail in ["Status", "ErrorInfo", "BadRequest", "RetryInfo"] {
        let name = format!("google.rpc.{detail}");
        let described = reflect(&mut client, MessageRequest::FileContainingSymbol(name.clone())).await;
        assert!(matches!(described, MessageResponse::FileDescriptorResponse(_)), "{name}: {described:?}");
    }
    for import in ["google/protobuf/any.proto", "google/protobuf/duration.proto"] {
        let described = reflect(&mut client, MessageRequest::FileByFilename(import.to_owned())).await;
        assert!(matches!(described, MessageResponse::FileDescriptorResponse(_)), "{import}: {described:?}");
    }
}

/// Makes a call of `Run` by hand, which nothing on this side ends, and returns its status.
async fn call_by_hand(server: &TestServer, message: &[u8], timeout: &str) -> Status {
    let address = server.url().trim_start_matches("http://");
    let socket = TcpStream::connect(address).await.expect("it listens");
    let (send, connection) = soon(h2::client::handshake(socket)).await.expect("it shakes hands");
    tokio::spawn(async move {
        // Its stream shows how it ends.
        let _ended = connection.await;
    });
    let request = http::Request::post(format!("http://{address}/agentloop.v1.AgentLoop/Run"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("grpc-timeout", timeout)
        .body(())
        .expect("a request");
    let mut framed = BytesMut::new();
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.len()).expect("it is short"));
    framed.put_slice(message);
    let mut send = soon(send.ready()).await.expect("room for a stream");
    let (response, mut stream) = send.send_request(request, false).expect("sent");
    stream.send_data(Bytes::from(framed), true).expect("sent");
    let response = soon(response).await.expect("a response");
    Status::from_header_map(response.headers()).expect("a status")
}

#[tokio::test]
async fn a_deadline_that_passes_on_the_server_is_answered_as_such() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let _waits = model.speaks();
    let message = RunRequest { input: Some(prompt("hi")) }.encode_to_vec();
    let passed = call_by_hand(&server, &message, "50m").await;
    assert_eq!(passed.code(), Code::DeadlineExceeded, "{passed:?}");
}

#[tokio::test]
async fn bytes_that_are_no_message_have_an_error_without_a_field() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let refused = call_by_hand(&server, &[0xFF; 100], "1M").await;
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused:?}");
    assert!(refused.message().starts_with("failed to decode"), "{refused:?}");
}
