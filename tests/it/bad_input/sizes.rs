//! An error is as small as every client accepts, whatever was sent: clients refuse headers of more than 8 KiB, and would show
//! an error of their own in place of ours.

use agentloop_client::v1 as wire;
use agentloop_tests::errors::{assert_invalid, assert_refused, fields, metadata};
use agentloop_tests::input::prompt;
use agentloop_tests::model::Model;
use agentloop_tests::server::TestServer;
use agentloop_tests::soon;
use tonic::{Code, Status};

/// Bytes that an error may take in the headers, beside the names of the headers.
const HEADER_BYTES_MAX: usize = 7_500;

/// Asserts that an error fits into the headers: the message takes up to three bytes there for each of its own, and the details
/// four for three.
#[track_caller]
fn assert_small(status: &Status) {
    let (message, details) = (status.message().len(), status.details().len());
    assert!(message * 3 + details.div_ceil(3) * 4 < HEADER_BYTES_MAX, "{message} and {details} bytes");
}

#[tokio::test]
async fn of_many_invalid_fields_the_first_are_named() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let filter = wire::RunFilter { statuses: vec![99; 200_000], ..Default::default() };
    let request = wire::ListRunsRequest { filter: Some(filter), ..Default::default() };
    let listed = soon(server.agent_loop().list_runs(request)).await;
    let status = assert_refused(listed, Code::InvalidArgument, "INVALID_FIELD");
    assert_small(&status);
    let named = fields(&status);
    assert_eq!(named[..2], ["filter.statuses[0]", "filter.statuses[1]"]);
    assert_eq!(named.last().map(String::as_str), Some(""), "there are more");

    let nobody = wire::Message { role: 77, parts: Vec::new() };
    let request = wire::ImportEntriesRequest { messages: vec![nobody; 1_024], ..Default::default() };
    let imported = soon(server.sessions().import_entries(request)).await;
    let status = assert_refused(imported, Code::InvalidArgument, "INVALID_FIELD");
    assert_small(&status);
    assert_eq!(fields(&status)[0], "messages[0].role");
}

#[tokio::test]
async fn long_names_are_cut() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let agent = wire::RunInput { agent: Some("ü".repeat(2_000)), ..prompt("hi") };
    let run = soon(server.agent_loop().run(wire::RunRequest { input: Some(agent) })).await;
    let status = assert_refused(run, Code::NotFound, "AGENT_NOT_FOUND");
    assert_small(&status);
    assert!(metadata(&status, "agent").starts_with("üüü"), "{status:?}");
    let provider = wire::RunInput { model: Some(format!("{}/m", "ü".repeat(2_000))), ..prompt("hi") };
    let run = soon(server.agent_loop().run(wire::RunRequest { input: Some(provider) })).await;
    assert_small(&assert_refused(run, Code::FailedPrecondition, "MODEL_NOT_CONFIGURED"));
}

#[tokio::test]
async fn times_of_the_audit_log_are_named_as_they_are_called() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let time = Some(prost_types::Timestamp { seconds: 0, nanos: -1 });
    let filter = wire::AuditFilter { from_time: time, to_time: time, ..Default::default() };
    let request = wire::ListAuditRecordsRequest { filter: Some(filter), ..Default::default() };
    let listed = soon(server.server_service().list_audit_records(request)).await;
    assert_invalid(listed, &["filter.from_time", "filter.to_time"]);
}
