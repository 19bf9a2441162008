//! The same id with the same content is the same thing, now and after a restart.

use agentloop_client::v1 as wire;
use agentloop_tests::errors::{assert_invalid, assert_refused, metadata};
use agentloop_tests::events::{assert_dense, durable};
use agentloop_tests::host::Host;
use agentloop_tests::input::{in_session, named};
use agentloop_tests::model::Model;
use agentloop_tests::server::TestServer;
use agentloop_tests::soon;
use futures_util::future::join_all;
use serde_json::json;
use tonic::Code;
use wire::RunStatus;
use wire::decision::Decision;

fn labelled(text: &str) -> wire::RunInput {
    let labels = (0..20).map(|at| (format!("label{at}"), format!("{at}"))).collect();
    wire::RunInput { labels, ..in_session("s1", "r1", text) }
}

#[tokio::test]
async fn a_run_with_the_same_id_is_the_same_run() {
    let model = Model::start().await;
    let mut server = TestServer::start(&model).await;
    model.says("hello");
    let first = server.run(labelled("hi")).await;
    let streamed = server.stream(labelled("hi")).await.rest().await;
    assert_dense(&streamed, 1);
    for _ in 0..2 {
        assert_eq!(server.run(labelled("hi")).await, first);
        assert_eq!(durable(&server.stream(labelled("hi")).await.rest().await), durable(&streamed));
        for other in [labelled("hello"), named("r1", "hi")] {
            assert_refused(server.try_run(other).await, Code::AlreadyExists, "ID_REUSED");
        }
        assert_eq!(server.entries("s1").await.len(), 2);
        server.restart().await;
    }
    assert_eq!(model.requests().len(), 1);
}

#[tokio::test]
async fn many_who_ask_at_once_get_one_run() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    model.says("hello");
    let results = join_all((0..16).map(|_| server.run(labelled("hi")))).await;
    assert!(results.iter().all(|result| *result == results[0]), "{results:?}");
    assert_eq!(results[0].status(), RunStatus::Completed);
    assert_eq!(model.requests().len(), 1);
}

#[tokio::test]
async fn concurrent_equal_requests_join_one_run() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let speech = model.speaks();
    let streams = join_all((0..16).map(|_| server.stream(labelled("hi")))).await;
    speech.end();
    for stream in streams {
        assert_dense(&stream.rest().await, 1);
    }
    assert_eq!(model.requests().len(), 1);
}

#[tokio::test]
async fn a_run_that_a_restart_interrupted_is_joined() {
    let model = Model::start().await;
    let mut server = TestServer::start(&model).await;
    let mut cut = model.speaks();
    model.says("hello");
    let mut events = server.stream(labelled("hi")).await;
    events.wait_for_name("model_call_started").await;
    cut.asked().await;
    server.restart().await;
    assert_eq!(server.run(labelled("hi")).await.status(), RunStatus::Completed);
    assert_refused(server.try_run(labelled("other")).await, Code::AlreadyExists, "ID_REUSED");
    assert_eq!(model.requests().len(), 2, "the call that was cut is made again");
}

#[tokio::test]
async fn a_run_is_joined_whatever_is_configured_by_then() {
    const SECOND: &str = "[agents.second]\nmodel = \"fake/m\"";
    let model = Model::start().await;
    let other = format!("[providers.other]\nkind = \"openai\"\nbase_url = \"{}\"", model.base_url());
    let mut server = TestServer::with(&model, &format!("{other}\n{SECOND}")).await;
    let _host = Host::start(&server).await;
    model.asks("mail", json!({ "to": "bob" }));
    let input = |text: &str| wire::RunInput {
        agent: Some("second".to_owned()),
        model: Some("other/m".to_owned()),
        ..in_session("s1", "r1", text)
    };
    let waits = server.run(input("hi")).await;
    assert_eq!(waits.status(), RunStatus::AwaitingHuman);
    // First the provider goes, then the agent.
    for (old, new) in [(other.as_str(), ""), (SECOND, "")] {
        server.reconfigure(old, new).await;
        assert_eq!(server.run(input("hi")).await, waits);
        let mut events = server.stream(input("hi")).await;
        events.wait_for_name("human_requested").await;
        let refused = assert_refused(server.try_run(input("hello")).await, Code::AlreadyExists, "ID_REUSED");
        assert_eq!(metadata(&refused, "field"), "", "without its agent the request cannot be compared");
    }
    let unknown = wire::RunInput { run_id: Some("r2".to_owned()), ..input("hi") };
    assert_refused(server.try_run(unknown).await, Code::NotFound, "AGENT_NOT_FOUND");
}

#[tokio::test]
async fn the_first_answer_to_a_question_counts() {
    let model = Model::start().await;
    let mut server = TestServer::start(&model).await;
    let host = Host::start(&server).await;
    model.asks("mail", json!({ "to": "bob" })).says("sent");
    let waits = server.run(named("r1", "write")).await;
    let question = waits.pending[0].request_id.clone();
    let approve = || Decision::Approve(wire::Approve {});
    let deny = || Decision::Deny(wire::Deny { message: "no".to_owned() });
    let first = server.decide(&question, approve()).await.expect("decided");
    assert_eq!(first.answer.as_ref().expect("an answer").decided_by, "ada");
    assert_eq!(server.run(named("r1", "write")).await.status(), RunStatus::Completed);
    for _ in 0..2 {
        assert_eq!(server.decide(&question, approve()).await.expect("confirmed"), first);
        let other = server.decide(&question, deny()).await;
        let refused = assert_refused(other, Code::FailedPrecondition, "ALREADY_RESOLVED");
        assert_eq!(metadata(&refused, "decision"), "approve");
        assert_eq!(metadata(&refused, "decided_by"), "ada");
        server.restart().await;
    }
    assert_eq!(host.gate.count("mail"), 1);
}

/// The run has no task while it waits. So the repetition is taken for a new run, until its write is refused.
#[tokio::test]
async fn a_repetition_does_not_disturb_those_who_follow_a_run_that_waits() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let _host = Host::start(&server).await;
    model.asks("mail", json!({ "to": "bob" })).says("sent");
    let mut events = server.stream(named("r1", "write")).await;
    events.wait_for_name("human_requested").await;
    let waits = server.run(named("r1", "write")).await;
    assert_eq!(waits.status(), RunStatus::AwaitingHuman);
    server.decide(&waits.pending[0].request_id, Decision::Approve(wire::Approve {})).await.expect("decided");
    assert_dense(&events.rest().await, 1);
    assert_eq!(server.run(named("r1", "write")).await.status(), RunStatus::Completed);
}

#[tokio::test]
async fn a_run_is_joined_by_its_id_alone() {
    let model = Model::start().await;
    let mut server = TestServer::start(&model).await;
    let alone = |run: &str| wire::RunInput { run_id: Some(run.to_owned()), ..Default::default() };
    assert_refused(server.try_run(alone("r1")).await, Code::NotFound, "RUN_NOT_FOUND");
    model.says("hello");
    let first = server.run(labelled("hi")).await;
    for _ in 0..2 {
        assert_eq!(server.run(alone("r1")).await, first);
        let joined = server.stream(alone("r1")).await.rest().await;
        assert_dense(&joined, 1);
        assert_refused(server.try_run(alone("r2")).await, Code::NotFound, "RUN_NOT_FOUND");
        server.restart().await;
    }
    let bad = server.try_run(alone("a b")).await;
    assert_invalid(bad, &["input.run_id"]);
    let more = wire::RunInput { model: Some("fake/m".to_owned()), ..alone("r1") };
    assert_refused(server.try_run(more).await, Code::AlreadyExists, "ID_REUSED");
}

#[tokio::test]
async fn a_request_that_is_not_the_same_is_told_its_field() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    model.says("hello");
    let first = labelled("hi");
    server.run(first.clone()).await;
    let text = |text: &str| wire::Message {
        role: wire::Role::User.into(),
        parts: vec![wire::Part { content: Some(wire::part::Content::Text(text.to_owned())) }],
    };
    let cases = [
        ("input.prompt", wire::RunInput { prompt: "ho".to_owned(), ..first.clone() }),
        ("input.input_messages", wire::RunInput { input_messages: vec![text("also")], ..first.clone() }),
        ("input.session_id", wire::RunInput { session_id: Some("s2".to_owned()), ..first.clone() }),
        ("input.labels", wire::RunInput { labels: [].into(), ..first.clone() }),
        ("input.stepped", wire::RunInput { stepped: true, ..first.clone() }),
        (
            "input.system_prompt_override",
            wire::RunInput { system_prompt_override: Some("Be brief.".to_owned()), ..first.clone() },
        ),
        (
            "input.loop_limits",
            wire::RunInput {
                loop_limits: Some(wire::LoopLimits { max_iterations: Some(7), ..Default::default() }),
                ..first.clone()
            },
        ),
        ("", wire::RunInput { on_busy_session: wire::BusySessionPolicy::Enqueue.into(), ..first.clone() }),
    ];
    for (field, other) in cases {
        let refused = assert_refused(server.try_run(other).await, Code::AlreadyExists, "ID_REUSED");
        assert_eq!(metadata(&refused, "field"), field, "{refused:?}");
        assert!(refused.message().contains(field), "{refused:?}");
    }
}

#[tokio::test]
async fn an_answer_without_a_name_is_called_anonymous() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let _host = Host::start(&server).await;
    model.asks("mail", json!({ "to": "bob" })).says("sent");
    let waits = server.run(named("r1", "write")).await;
    let request_id = waits.pending[0].request_id.clone();
    let decide = async |decision| {
        let decision = Some(wire::Decision { decision: Some(decision) });
        let request =
            wire::SubmitApprovalRequest { request_id: request_id.clone(), decision, ..Default::default() };
        soon(server.agent_loop().submit_approval(request)).await
    };
    decide(Decision::Approve(wire::Approve {})).await.expect("decided");
    let other = decide(Decision::Deny(wire::Deny::default())).await;
    let refused = assert_refused(other, Code::FailedPrecondition, "ALREADY_RESOLVED");
    assert_eq!(metadata(&refused, "decided_by"), "anonymous");
}

#[tokio::test]
async fn of_many_different_answers_one_counts() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let _host = Host::start(&server).await;
    model.asks("mail", json!({ "to": "bob" })).says("sent");
    let question = server.run(named("r1", "write")).await.pending[0].request_id.clone();
    let deny = |message: String| Decision::Deny(wire::Deny { message });
    let answers = join_all((0..8).map(|at| server.decide(&question, deny(format!("no {at}"))))).await;
    let taken: Vec<_> = answers.iter().filter(|answer| answer.is_ok()).collect();
    assert_eq!(taken.len(), 1, "{answers:?}");
    for refused in answers.into_iter().filter(Result::is_err) {
        assert_refused(refused, Code::FailedPrecondition, "ALREADY_RESOLVED");
    }
    assert_eq!(server.run(named("r1", "write")).await.status(), RunStatus::Completed);
}

#[tokio::test]
async fn creating_and_deleting_a_session() {
    let model = Model::start().await;
    let mut server = TestServer::start(&model).await;
    let request = |title: &str| wire::CreateSessionRequest {
        session_id: Some("s1".to_owned()),
        title: title.to_owned(),
        labels: [("team".to_owned(), "search".to_owned())].into(),
    };
    let first = soon(server.sessions().create_session(request("mine"))).await.expect("created").into_inner();
    for _ in 0..2 {
        let again = soon(server.sessions().create_session(request("mine"))).await.expect("confirmed");
        assert_eq!(again.into_inner(), first);
        let other = soon(server.sessions().create_session(request("yours"))).await;
        assert_refused(other, Code::AlreadyExists, "ID_REUSED");
        server.restart().await;
    }
    for existed in [true, false] {
        let request = wire::DeleteSessionRequest { session_id: "s1".to_owned() };
        let deleted = soon(server.sessions().delete_session(request)).await.expect("confirmed");
        assert_eq!(deleted.into_inner().existed, existed);
    }
}

#[tokio::test]
async fn aborting() {
    let model = Model::start().await;
    let mut server = TestServer::start(&model).await;
    let mut speech = model.speaks();
    let events = server.stream(named("r1", "hi")).await;
    speech.asked().await;
    let first = server.abort("r1").await;
    assert_eq!((first.status(), first.run_id.as_str()), (RunStatus::Aborted, "r1"));
    let events = events.rest().await;
    for _ in 0..2 {
        assert_eq!(server.abort("r1").await, first);
        assert_eq!(durable(&server.subscribe("r1", 0).await.rest().await), durable(&events));
        server.restart().await;
    }
    model.says("done");
    server.run(named("r2", "hi")).await;
    assert_eq!(server.abort("r2").await.status(), RunStatus::Completed);
}
