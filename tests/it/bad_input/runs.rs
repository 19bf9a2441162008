//! Invalid requests about runs, and answers to their questions.

use agentloop_client::v1 as wire;
use agentloop_tests::errors::{assert_invalid, assert_refused};
use agentloop_tests::model::Model;
use agentloop_tests::server::TestServer;
use agentloop_tests::soon;
use tonic::Code;
use wire::decision::Decision;

use super::{BAD_PAGES, long, long_id};

#[tokio::test]
async fn ids_of_runs() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let mut client = server.agent_loop();
    for run_id in [String::new(), "a b".to_owned(), long_id()] {
        let request = wire::GetRunRequest { run_id: run_id.clone() };
        assert_invalid(soon(client.get_run(request)).await, &["run_id"]);
        let request = wire::SubscribeRequest { run_id: run_id.clone(), ..Default::default() };
        assert_invalid(soon(client.subscribe(request)).await.map(|_| ()), &["run_id"]);
        let target = Some(wire::abort_request::Target::RunId(run_id.clone()));
        let request = wire::AbortRequest { target, reason: String::new() };
        assert_invalid(soon(client.abort(request)).await, &["run_id"]);
        let request =
            wire::ResumeRunRequest { run_id, request_id: "q".to_owned(), resumed_by: String::new() };
        assert_invalid(soon(client.resume_run(request)).await, &["run_id"]);
    }
    let run_id = || "nobody".to_owned();
    let got = soon(client.get_run(wire::GetRunRequest { run_id: run_id() })).await;
    assert_refused(got, Code::NotFound, "RUN_NOT_FOUND");
    let request = wire::SubscribeRequest { run_id: run_id(), ..Default::default() };
    let subscribed = soon(client.subscribe(request)).await.map(|_| ());
    assert_refused(subscribed, Code::NotFound, "RUN_NOT_FOUND");
    let target = Some(wire::abort_request::Target::RunId(run_id()));
    let aborted = soon(client.abort(wire::AbortRequest { target, reason: String::new() })).await;
    assert_refused(aborted, Code::NotFound, "RUN_NOT_FOUND");
    let request =
        wire::ResumeRunRequest { run_id: run_id(), request_id: "q".to_owned(), resumed_by: String::new() };
    assert_refused(soon(client.resume_run(request)).await, Code::NotFound, "RUN_NOT_FOUND");
}

#[tokio::test]
async fn abort_and_resume() {
    use wire::abort_request::Target;
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let mut client = server.agent_loop();
    let abort = |target, reason| wire::AbortRequest { target, reason };
    let session = |id: &str| Some(Target::SessionId(id.to_owned()));
    for (request, field) in [
        (abort(None, String::new()), "target"),
        (abort(session(""), String::new()), "session_id"),
        (abort(session("a/b"), String::new()), "session_id"),
        (abort(session("s1"), long()), "reason"),
    ] {
        assert_invalid(soon(client.abort(request)).await, &[field]);
    }
    let nowhere = soon(client.abort(abort(session("s1"), String::new()))).await;
    assert_refused(nowhere, Code::NotFound, "SESSION_NOT_FOUND");

    let resume = |request_id: String, resumed_by| wire::ResumeRunRequest {
        run_id: "r1".to_owned(),
        request_id,
        resumed_by,
    };
    for (request, field) in [
        (resume(String::new(), String::new()), "request_id"),
        (resume("a b".to_owned(), String::new()), "request_id"),
        (resume("q".to_owned(), long()), "resumed_by"),
    ] {
        assert_invalid(soon(client.resume_run(request)).await, &[field]);
    }
}

#[tokio::test]
async fn approvals() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let mut client = server.agent_loop();
    let good = || wire::SubmitApprovalRequest {
        request_id: "r1:1.0:0".to_owned(),
        decision: Some(wire::Decision { decision: Some(Decision::Approve(wire::Approve {})) }),
        ..Default::default()
    };
    let with =
        |decision| wire::SubmitApprovalRequest { decision: Some(wire::Decision { decision }), ..good() };
    let edits = |json: &str| {
        with(Some(Decision::ApproveWithEdits(wire::ApproveWithEdits { arguments_json: json.to_owned() })))
    };
    let cases = [
        (wire::SubmitApprovalRequest { request_id: String::new(), ..good() }, "request_id"),
        (wire::SubmitApprovalRequest { request_id: "a b".to_owned(), ..good() }, "request_id"),
        (wire::SubmitApprovalRequest { decision: None, ..good() }, "decision"),
        (wire::SubmitApprovalRequest { remember: 99, ..good() }, "remember"),
        (wire::SubmitApprovalRequest { decided_by: long(), ..good() }, "decided_by"),
        (with(None), "decision"),
        (with(Some(Decision::Expired(wire::Expired {}))), "decision"),
        (with(Some(Decision::Withdrawn(wire::Withdrawn {}))), "decision"),
        (edits("{"), "decision.approve_with_edits.arguments_json"),
        (edits("[]"), "decision.approve_with_edits.arguments_json"),
        (with(Some(Decision::Deny(wire::Deny { message: long() }))), "decision.deny.message"),
        (
            with(Some(Decision::DenyAndStop(wire::DenyAndStop { message: long() }))),
            "decision.deny_and_stop.message",
        ),
        (
            with(Some(Decision::AnswerInPlace(wire::AnswerInPlace {
                output: "x".repeat(2 * 1024 * 1024 + 1),
            }))),
            "decision.answer_in_place.output",
        ),
    ];
    for (request, field) in cases {
        assert_invalid(soon(client.submit_approval(request)).await, &[field]);
    }
    let nobody = soon(client.submit_approval(good())).await;
    assert_refused(nobody, Code::NotFound, "REQUEST_NOT_FOUND");
    let edited = soon(client.submit_approval(edits("{}"))).await;
    assert_refused(edited, Code::NotFound, "REQUEST_NOT_FOUND");
    for scope in [wire::RememberScope::Run, wire::RememberScope::Session, wire::RememberScope::Rule] {
        let request = wire::SubmitApprovalRequest { remember: scope.into(), ..good() };
        let remembered = soon(client.submit_approval(request)).await;
        assert_refused(remembered, Code::NotFound, "REQUEST_NOT_FOUND");
    }
    let ages = wire::SubmitApprovalRequest { remember: 17, ..good() };
    assert_invalid(soon(client.submit_approval(ages)).await, &["remember"]);
}

#[tokio::test]
async fn lists() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let mut client = server.agent_loop();
    for (page_size, page_token, field) in BAD_PAGES {
        let page_token = page_token.to_owned();
        let runs = wire::ListRunsRequest { page_size, page_token: page_token.clone(), ..Default::default() };
        assert_invalid(soon(client.list_runs(runs)).await, &[field]);
        let pending = wire::ListPendingRequest { page_size, page_token, ..Default::default() };
        assert_invalid(soon(client.list_pending(pending)).await, &[field]);
    }
    let statuses = vec![wire::RunStatus::Failed.into(), 99, 0];
    let runs = wire::ListRunsRequest { statuses, ..Default::default() };
    assert_invalid(soon(client.list_runs(runs)).await, &["statuses[1]", "statuses[2]"]);
    let filter = wire::RunFilter {
        session_id: "no id".to_owned(),
        statuses: vec![99],
        agents: vec![String::new(); 65],
        created_after: Some(prost_types::Timestamp { seconds: 0, nanos: -1 }),
        text: "x".repeat(257),
        ..Default::default()
    };
    let fields =
        ["filter.created_after", "filter.session_id", "filter.statuses[0]", "filter.agents", "filter.text"];
    let runs = wire::ListRunsRequest { filter: Some(filter), ..Default::default() };
    assert_invalid(soon(client.list_runs(runs)).await, &fields);
    let filter = wire::PendingFilter { kinds: vec![0, 99], text: "x".repeat(257), ..Default::default() };
    let pending = wire::ListPendingRequest { filter: Some(filter), ..Default::default() };
    let fields = ["filter.kinds[0]", "filter.kinds[1]", "filter.text"];
    assert_invalid(soon(client.list_pending(pending)).await, &fields);
    let runs = wire::ListRunsRequest { session_id: "a/b".to_owned(), ..Default::default() };
    assert_invalid(soon(client.list_runs(runs)).await, &["session_id"]);
    let pending = wire::ListPendingRequest { session_id: "a/b".to_owned(), ..Default::default() };
    assert_invalid(soon(client.list_pending(pending)).await, &["session_id"]);
    let pending = wire::ListPendingRequest { run_id: "a/b".to_owned(), ..Default::default() };
    assert_invalid(soon(client.list_pending(pending)).await, &["run_id"]);
}
