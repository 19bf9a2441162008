//! The services for health and reflection.

use agentloop_tests::model::Model;
use agentloop_tests::server::TestServer;
use agentloop_tests::soon;
use tokio_stream::StreamExt as _;
use tonic::Code;
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
