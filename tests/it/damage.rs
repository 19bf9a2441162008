//! Damage in the database: it is named where it is, and the rest stays readable.

use std::sync::Arc;

use agentloop_client::v1 as wire;
use agentloop_server::app::ServerBuilder;
use agentloop_tests::errors::{assert_refused, metadata};
use agentloop_tests::events::results;
use agentloop_tests::host::Host;
use agentloop_tests::input::in_session;
use agentloop_tests::model::Model;
use agentloop_tests::raw_host::{RawHost, declared, hello, result_of};
use agentloop_tests::server::TestServer;
use agentloop_tests::soon;
use serde_json::json;
use tonic::Code;
use wire::complete_call_request::Outcome;
use wire::connect_request::Frame;
use wire::connect_response::Frame as ServerFrame;
use wire::decision::Decision;
use wire::{CallDisposition, EffectClass, ResultVerdict, RunStatus};

use crate::clock::{HOUR, SetClock, server_by};
use crate::metrics::METRICS;

async fn session(server: &TestServer, session: &str) -> wire::Session {
    let request = wire::GetSessionRequest { session_id: session.to_owned() };
    soon(server.sessions().get_session(request))
        .await
        .expect("found")
        .into_inner()
        .session
        .expect("a session")
}

/// Makes 9000 of each 1000 in a run's journal, while the server is stopped.
async fn change_a_digit(server: &mut TestServer, run: &str) {
    change(server, run, "payload = replace(payload, '1000', '9000')", "%1000%").await;
}

/// Changes the question of a run, which is no entry of its session, while the server is stopped.
async fn change_the_question(server: &mut TestServer, run: &str) {
    change(server, run, "at = at + 1", r#"%"kind":"human_requested"%"#).await;
}

async fn change(server: &mut TestServer, run: &str, set: &str, like: &str) {
    let of_run = format!("run_no = (SELECT run_no FROM runs WHERE run_id = '{run}')");
    let sql = format!("UPDATE run_events SET {set} WHERE {of_run} AND payload LIKE '{like}'");
    assert!(server.change_stored(&sql).await > 0);
}

#[tokio::test]
async fn an_entry_is_named_and_its_session_goes_on_in_a_fork_before_it() {
    let model = Model::start().await;
    let mut server = TestServer::start(&model).await;
    for (id, run) in [("s", "r-1"), ("s", "r-2"), ("other", "r-3")] {
        model.says("It costs 1000.");
        server.run(in_session(id, run, "What does it cost?")).await;
    }
    change_a_digit(&mut server, "r-2").await;

    let entries = server.entries("s").await;
    let damaged: Vec<_> = entries.iter().filter(|entry| entry.damaged).collect();
    assert_eq!((entries.len(), damaged.len()), (4, 1));
    assert_eq!((damaged[0].entry_no, damaged[0].run_id.as_str()), (4, "r-2"));
    assert!(damaged[0].message.is_none() && entries[2].message.is_some());
    assert_eq!(session(&server, "s").await.damaged_entry_nos, [4]);
    assert_eq!(session(&server, "other").await.damaged_entry_nos, [] as [u64; 0]);

    let refused = server.try_run(in_session("s", "r-4", "And tomorrow?")).await;
    let refused = assert_refused(refused, Code::DataLoss, "JOURNAL_CORRUPT");
    assert_eq!(
        (metadata(&refused, "session_id").as_str(), metadata(&refused, "entry_no").as_str()),
        ("s", "4")
    );
    assert!(refused.message().contains("`agentloop fork s --at 3`"), "{}", refused.message());

    let fork = wire::ForkSessionRequest {
        session_id: "s".to_owned(),
        at_entry_no: 3,
        new_session_id: Some("again".to_owned()),
    };
    soon(server.sessions().fork_session(fork)).await.expect("a fork");
    for (id, run) in [("again", "r-5"), ("other", "r-6")] {
        model.says("It costs 1000.");
        let result = server.run(in_session(id, run, "And tomorrow?")).await;
        assert_eq!(result.status(), RunStatus::Completed, "{id}");
    }
}

#[tokio::test]
async fn a_changed_amount_is_never_shown_and_no_replay_of_it_is_faithful() {
    let model = Model::start().await;
    let mut server = TestServer::start(&model).await;
    for run in ["r-1", "r-2"] {
        model.says("It costs 1000.");
        server.run(in_session(run, run, "What does it cost?")).await;
    }
    let whole = server.subscribe("r-1", 0).await.rest().await;
    change_a_digit(&mut server, "r-2").await;

    let request = wire::SubscribeRequest { run_id: "r-2".to_owned(), after_seq: 0, durable_only: false };
    let end = match soon(server.agent_loop().subscribe(request)).await {
        Err(refused) => refused,
        Ok(stream) => {
            let mut stream = stream.into_inner();
            loop {
                match soon(stream.message()).await {
                    Ok(Some(shown)) => assert!(!format!("{shown:?}").contains("9000"), "{shown:?}"),
                    Ok(None) => panic!("the stream ends well"),
                    Err(status) => break status,
                }
            }
        }
    };
    assert_refused(Err::<(), _>(end), Code::DataLoss, "JOURNAL_CORRUPT");
    let request = wire::ReplayRunRequest { run_id: "r-2".to_owned() };
    let replayed = soon(server.agent_loop().replay_run(request)).await;
    assert_refused(replayed, Code::DataLoss, "JOURNAL_CORRUPT");
    let joined = server.try_run(in_session("r-2", "r-2", "What does it cost?")).await;
    assert_refused(joined, Code::DataLoss, "JOURNAL_CORRUPT");

    assert_eq!(server.subscribe("r-1", 0).await.rest().await, whole, "the other run is as it was");
    let replayed = server.replay("r-1").await;
    assert_eq!((replayed.faithful, replayed.unverified_events), (true, 0), "{replayed:?}");
}

#[tokio::test]
async fn events_of_an_older_server_are_counted_as_unverified() {
    let model = Model::start().await;
    let mut server = TestServer::start(&model).await;
    model.says("It costs 1000.");
    server.run(in_session("s", "r-1", "What does it cost?")).await;
    change(&mut server, "r-1", "checksum = NULL", "%").await;
    let replayed = server.replay("r-1").await;
    assert!(replayed.faithful, "{replayed:?}");
    assert_eq!(replayed.unverified_events, replayed.events);
}

#[tokio::test]
async fn a_decision_on_a_run_that_waited_says_how_to_go_on() {
    let model = Model::start().await;
    let mut server = TestServer::start(&model).await;
    let _host = Host::start(&server).await;
    model.says("It costs 1000.");
    server.run(in_session("s", "r-1", "What does it cost?")).await;
    model.asks("mail", json!({ "to": "bob" }));
    let waits = Box::pin(server.run(in_session("s", "r-2", "Tell bob."))).await;
    let [question] = &waits.pending[..] else { panic!("one question: {waits:?}") };
    change_a_digit(&mut server, "r-1").await;

    let deny = Decision::Deny(wire::Deny { message: "no".to_owned() });
    let refused = server.decide(&question.request_id, deny).await;
    let refused = assert_refused(refused, Code::DataLoss, "JOURNAL_CORRUPT");
    let said = refused.message();
    assert!(said.contains("entry 2 of session s is damaged"), "{said}");
    assert!(said.contains("`agentloop fork s --at 1`"), "{said}");
    assert_eq!(session(&server, "s").await.damaged_entry_nos, [2]);

    let fork = wire::ForkSessionRequest {
        session_id: "s".to_owned(),
        at_entry_no: 1,
        new_session_id: Some("again".to_owned()),
    };
    soon(server.sessions().fork_session(fork)).await.expect("a fork, though the run still waits");
    model.says("It costs 1000.");
    let result = server.run(in_session("again", "r-3", "And?")).await;
    assert_eq!(result.status(), RunStatus::Completed);
}

#[tokio::test]
async fn a_run_that_waits_in_a_damaged_session_is_aborted_and_the_session_deleted() {
    let model = Model::start().await;
    let mut server = TestServer::start(&model).await;
    let _host = Host::start(&server).await;
    model.says("It costs 1000.");
    server.run(in_session("s", "r-1", "What does it cost?")).await;
    model.asks("mail", json!({ "to": "bob" }));
    let waits = Box::pin(server.run(in_session("s", "r-2", "Tell bob."))).await;
    assert_eq!(waits.status(), RunStatus::AwaitingHuman);
    change_a_digit(&mut server, "r-1").await;

    let delete = || wire::DeleteSessionRequest { session_id: "s".to_owned() };
    let refused = soon(server.sessions().delete_session(delete())).await;
    assert_refused(refused, Code::FailedPrecondition, "SESSION_BUSY");
    server.abort("r-2").await;
    assert_eq!(server.run(in_session("s", "r-2", "Tell bob.")).await.status(), RunStatus::Aborted);
    let deleted = soon(server.sessions().delete_session(delete())).await.expect("nothing is live in it");
    assert!(deleted.into_inner().existed);
    model.says("It costs 1000.");
    let again = server.run(in_session("s", "r-2", "And now?")).await;
    assert_eq!(again.status(), RunStatus::Completed, "both ids are free");
}

/// Nobody is there to be told of the damage when the time for an answer is over.
#[tokio::test]
async fn a_question_that_expires_in_a_damaged_session_ends_its_run() {
    let model = Model::start().await;
    let clock = SetClock::default();
    let mut server = server_by(&clock, &model).await;
    let _host = Host::start(&server).await;
    model.says("It costs 1000.");
    server.run(in_session("s", "r-1", "What does it cost?")).await;
    model.asks("mail", json!({ "to": "bob" }));
    let asks =
        wire::RunInput { approval_timeout_seconds: Some(1_800), ..in_session("s", "r-2", "Tell bob.") };
    let waits = Box::pin(server.run(asks)).await;
    assert_eq!(waits.status(), RunStatus::AwaitingHuman);
    clock.set_ahead(HOUR);
    change_a_digit(&mut server, "r-1").await;

    server.subscribe("r-2", 0).await.rest().await;
    let run = server.get_run("r-2").await;
    assert_eq!(run.status(), RunStatus::Failed);
    let error = run.last_error.expect("it says why");
    assert!(error.message.contains("entry 2 of session s is damaged"), "{error:?}");
    assert!(error.message.contains("`agentloop fork s --at 1`"), "{error:?}");
}

fn tell_bob(run: &str) -> wire::RunInput {
    wire::RunInput { approval_timeout_seconds: Some(1_800), ..in_session("s", run, "Tell bob.") }
}

/// Lets a run of session `s` ask a question. Returns the run as it waits for the answer.
async fn waits(server: &TestServer, model: &Model, run: &str) -> wire::RunResult {
    model.asks("mail", json!({ "to": "bob" }));
    let waits = Box::pin(server.run(tell_bob(run))).await;
    assert_eq!(waits.pending.len(), 1, "{waits:?}");
    waits
}

/// The run has failed, and its session takes the next message.
async fn has_failed_and_freed_its_session(server: &TestServer, model: &Model, run: &str) {
    let listed = soon(server.agent_loop().list_runs(wire::ListRunsRequest::default())).await.expect("a list");
    let row = listed.into_inner().runs.into_iter().find(|row| row.run_id == run).expect("it is listed");
    assert_eq!(row.status(), RunStatus::Failed);
    let error = row.last_error.expect("it says why");
    assert_eq!(error.message, "stored data of the run is damaged");
    let failed = "runs_finished_total{outcome=\"failed\",reason=\"internal\"}";
    assert_eq!(server.scrape().await.get(failed), 1.0);
    assert_refused(server.try_run(tell_bob(run)).await, Code::DataLoss, "JOURNAL_CORRUPT");
    model.says("It costs 1000.");
    let next = server.run(in_session("s", &format!("after-{run}"), "What does it cost?")).await;
    assert_eq!(next.status(), RunStatus::Completed);
}

#[tokio::test]
async fn a_run_whose_own_journal_is_damaged_fails_when_it_is_answered() {
    let model = Model::start().await;
    let mut server = TestServer::with(&model, METRICS).await;
    let _host = Host::start(&server).await;
    let question = waits(&server, &model, "r-1").await.pending[0].request_id.clone();
    change_the_question(&mut server, "r-1").await;

    let pending = soon(server.agent_loop().list_pending(wire::ListPendingRequest::default())).await;
    assert_eq!(pending.expect("a list").into_inner().requests, [], "the inbox of others goes on");
    let deny = Decision::Deny(wire::Deny { message: "no".to_owned() });
    assert_refused(server.decide(&question, deny).await, Code::DataLoss, "JOURNAL_CORRUPT");
    has_failed_and_freed_its_session(&server, &model, "r-1").await;
}

#[tokio::test]
async fn a_run_whose_own_journal_is_damaged_is_aborted_and_its_session_deleted() {
    let model = Model::start().await;
    let mut server = TestServer::with(&model, METRICS).await;
    let _host = Host::start(&server).await;
    waits(&server, &model, "r-1").await;
    change_the_question(&mut server, "r-1").await;
    for _ in 0..2 {
        server.abort("r-1").await;
    }
    has_failed_and_freed_its_session(&server, &model, "r-1").await;
    let delete = wire::DeleteSessionRequest { session_id: "s".to_owned() };
    assert!(soon(server.sessions().delete_session(delete)).await.expect("deleted").into_inner().existed);
}

#[tokio::test]
async fn a_run_whose_own_journal_is_damaged_fails_when_its_time_comes() {
    let model = Model::start().await;
    let clock = SetClock::default();
    let by_it = clock.clone();
    let with_clock = move |builder: ServerBuilder| builder.clock(Arc::new(by_it.clone()));
    let mut server = TestServer::built(&model, METRICS, with_clock).await;
    let _host = Host::start(&server).await;
    let last = waits(&server, &model, "r-1").await.last_seq;
    clock.set_ahead(HOUR);
    change_the_question(&mut server, "r-1").await;
    let events = server.subscribe("r-1", last).await.rest().await;
    assert_eq!(events.last().expect("the end").status(), RunStatus::Failed);
    has_failed_and_freed_its_session(&server, &model, "r-1").await;
}

/// A server that gives hosts up at once, with metrics.
const NO_GRACE: &str = "[hosts]\ngrace_period = \"0s\"\n[metrics]\nlisten = \"127.0.0.1:0\"\n";

fn payments() -> Vec<wire::ToolDeclaration> {
    vec![declared("pay", EffectClass::Unsafe)]
}

/// Lets a run of session `s` wait with a call in doubt, whose host has gone away with it.
async fn in_doubt(server: &TestServer, model: &Model, run: &str) -> wire::CallRequest {
    let mut host = RawHost::welcomed(server, "h1", payments()).await;
    model.asks("pay", json!({}));
    let mut events = server.stream(tell_bob(run)).await;
    let call = host.take_call().await;
    events.wait_for_name("tool_call_accepted").await;
    drop(host);
    events.wait_for_name("human_requested").await;
    call
}

/// Comes back with the result of the call.
async fn comes_back(server: &TestServer, call: &wire::CallRequest) -> (RawHost, CallDisposition) {
    let mut host = RawHost::open(server).await;
    let in_hand = wire::CallInHand {
        call_id: call.call_id.clone(),
        attempt: call.attempt,
        lease_token: call.lease_token.clone(),
        finished: true,
    };
    host.send(Frame::Hello(wire::Hello { calls_in_hand: vec![in_hand], ..hello("h1", payments()) }));
    let ServerFrame::Welcome(welcome) = host.wait_for(|_| true).await else { panic!("welcome comes first") };
    (host, welcome.calls[0].disposition())
}

/// Otherwise its host would be sent away and bring the result again, for ever.
#[tokio::test]
async fn a_result_is_recorded_though_the_session_of_its_run_is_damaged() {
    let model = Model::start().await;
    let mut server = TestServer::with(&model, NO_GRACE).await;
    model.says("It costs 1000.");
    server.run(in_session("s", "r-1", "What does it cost?")).await;
    let call = in_doubt(&server, &model, "r-2").await;
    change_a_digit(&mut server, "r-1").await;

    let (mut host, disposition) = comes_back(&server, &call).await;
    assert_eq!(disposition, CallDisposition::Continue);
    host.send(Frame::CallResult(result_of(&call, "paid")));
    let ServerFrame::ResultAck(ack) = host.wait_for(|_| true).await else { panic!("it is told at once") };
    assert_eq!(ack.verdict(), ResultVerdict::Recorded);
    let events = server.subscribe("r-2", 0).await.rest().await;
    assert_eq!(results(&events)[0].output, "paid");
    let run = server.get_run("r-2").await;
    assert_eq!(run.status(), RunStatus::Failed);
    let error = run.last_error.expect("it says why");
    assert!(error.message.contains("entry 2 of session s is damaged"), "{error:?}");
}

#[tokio::test]
async fn a_host_is_told_to_stop_the_call_of_a_run_whose_own_journal_is_damaged() {
    let model = Model::start().await;
    let mut server = TestServer::with(&model, NO_GRACE).await;
    let call = in_doubt(&server, &model, "r-1").await;
    change_the_question(&mut server, "r-1").await;

    let (_host, disposition) = comes_back(&server, &call).await;
    assert_eq!(disposition, CallDisposition::Stop);
    has_failed_and_freed_its_session(&server, &model, "r-1").await;
}

#[tokio::test]
async fn a_result_of_a_run_whose_own_journal_is_damaged_is_stale() {
    let model = Model::start().await;
    let mut server = TestServer::with(&model, NO_GRACE).await;
    let call = in_doubt(&server, &model, "r-1").await;
    change_the_question(&mut server, "r-1").await;

    for _ in 0..2 {
        let request = wire::CompleteCallRequest { outcome: Some(Outcome::Result(result_of(&call, "paid"))) };
        let response = soon(server.tool_host().complete_call(request)).await.expect("it is known");
        assert_eq!(response.into_inner().verdict(), ResultVerdict::Stale);
    }
    has_failed_and_freed_its_session(&server, &model, "r-1").await;
}
