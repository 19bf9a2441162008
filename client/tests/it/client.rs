//! Calls are retried, and streams reopened, without the caller's help.

use agentloop_client::{
    Client, Error, EventStream, StreamUpdate,
    v1::{
        DisconnectPolicy, ErrorReason, ModelDelta, RunEvent, RunFinished, RunInput, RunStarted,
        SubmitApprovalRequest, run_event::Event,
    },
};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use crate::proxy::Proxy;
use agentloop_client_testing::{
    agent_loop::{End, ReceivedCall, Script},
    server::{FakeServer, client},
    timeout::soon,
    tool_host::Hosts,
};

fn durable(seq: u64) -> RunEvent {
    RunEvent { seq, event: Some(Event::RunStarted(RunStarted::default())), ..RunEvent::default() }
}

fn finished(seq: u64) -> RunEvent {
    RunEvent { seq, event: Some(Event::RunFinished(RunFinished::default())), ..RunEvent::default() }
}

fn delta(delta_seq: u64) -> RunEvent {
    let delta = ModelDelta { model_call: 1, attempt: 1, delta_seq, delta: None };
    RunEvent { event: Some(Event::ModelDelta(delta)), ..RunEvent::default() }
}

fn too_slow() -> Status {
    let details = ErrorDetails::with_error_info("SUBSCRIBER_TOO_SLOW", "agentloop.v1", []);
    Status::with_error_details(Code::ResourceExhausted, "read faster", details)
}

async fn start(script: &Script) -> (FakeServer, Client) {
    let fake = FakeServer::start(script.clone(), Hosts::default()).await;
    let client = client(&fake.url());
    (fake, client)
}

fn input() -> RunInput {
    RunInput { prompt: "hello".into(), ..RunInput::default() }
}

/// Reads a stream to its end: `seq` of durable events, `-delta_seq` of transient ones, and the error if there is one.
fn read(mut stream: EventStream) -> impl Future<Output = (Vec<i64>, Option<Error>)> + Unpin {
    Box::pin(async move {
        let mut seen = Vec::new();
        while let Some(event) = soon(stream.next()).await {
            match event {
                Ok(RunEvent { event: Some(Event::ModelDelta(delta)), .. }) => {
                    seen.push(-(delta.delta_seq as i64))
                }
                Ok(event) => seen.push(event.seq as i64),
                Err(error) => return (seen, Some(error)),
            }
        }
        (seen, None)
    })
}

#[tokio::test]
async fn a_stream_goes_on_after_an_error_with_each_event_once() {
    let script = Script::default()
        .scene(vec![durable(1), delta(1), delta(2)], End::Error(Status::unavailable("restarting")))
        .scene(vec![durable(1), delta(2), delta(3), durable(2)], End::Error(too_slow()))
        .scene(vec![durable(3), finished(4)], End::Ok);
    let (_fake, client) = start(&script).await;

    let stream = client.run_stream(input()).await.expect("started");
    let run_id = stream.run_id().to_owned();
    let (seen, error) = read(stream).await;

    assert_eq!(seen, [1, -1, -2, -3, 2, 3, 4]);
    assert!(error.is_none(), "{error:?}");
    let subscribed = |after_seq| ReceivedCall::Subscribe { run_id: run_id.clone(), after_seq };
    assert_eq!(
        script.calls(),
        [ReceivedCall::RunStream { run_id: run_id.clone(), after_seq: 0 }, subscribed(1), subscribed(2)]
    );
}

#[tokio::test]
async fn a_stream_is_read_to_its_end_and_not_reset_after_the_last_event() {
    let script = Script::default().scene(vec![finished(1)], End::Hang).scene(vec![finished(1)], End::Ok);
    let (_fake, client) = start(&script).await;
    let mut hangs = client.run_stream(input()).await.expect("started");
    assert_eq!(soon(hangs.next()).await.expect("an event").expect("no error").seq, 1);
    assert!(futures_util::poll!(Box::pin(hangs.next())).is_pending(), "its end has not come");
    assert!(soon(hangs.next()).await.is_none(), "the wait for it is short");
    let (seen, error) = read(client.run_stream(input()).await.expect("started")).await;
    assert_eq!(seen, [1]);
    assert!(error.is_none(), "{error:?}");
}

#[tokio::test]
async fn a_run_without_a_first_event_is_started_again_with_the_same_id() {
    let script = Script::default()
        .scene(vec![], End::Error(Status::unavailable("restarting")))
        .scene(vec![durable(1), finished(2)], End::Ok);
    let (_fake, client) = start(&script).await;

    let stream = client.run_stream(input()).await.expect("started");
    let run_id = stream.run_id().to_owned();
    assert_eq!(read(stream).await.0, [1, 2]);

    let call = ReceivedCall::RunStream { run_id, after_seq: 0 };
    assert_eq!(script.calls(), [call.clone(), call]);
    assert_eq!(script.inputs()[0], script.inputs()[1]);
}

#[tokio::test]
async fn a_stream_goes_on_after_its_connection_was_cut() {
    let script =
        Script::default().scene(vec![durable(1)], End::Hang).scene(vec![durable(2), finished(3)], End::Ok);
    let fake = FakeServer::start(script.clone(), Hosts::default()).await;
    let proxy = Proxy::start(fake.address).await;

    let mut stream = client(&proxy.url()).run_stream(input()).await.expect("started");
    let first = soon(stream.next()).await.expect("an event").expect("no error");
    assert_eq!(first.seq, 1);
    proxy.cut();

    let (seen, error) = read(stream).await;
    assert_eq!(seen, [2, 3]);
    assert!(error.is_none(), "{error:?}");
    assert!(matches!(script.calls()[1], ReceivedCall::Subscribe { after_seq: 1, .. }));
}

#[tokio::test]
async fn a_run_that_ends_with_its_caller_is_joined_again_after_a_cut() {
    let script = Script::default()
        .scene(vec![durable(1)], End::Hang)
        .scene(vec![durable(2)], End::Hang)
        .scene(vec![finished(3)], End::Ok);
    let fake = FakeServer::start(script.clone(), Hosts::default()).await;
    let proxy = Proxy::start(fake.address).await;
    let input = RunInput { on_disconnect: DisconnectPolicy::Cancel.into(), ..input() };
    let mut stream = client(&proxy.url()).run_stream(input).await.expect("started");
    let run_id = stream.run_id().to_owned();
    for seq in [1, 2] {
        assert_eq!(soon(stream.next()).await.expect("an event").expect("no error").seq, seq);
        proxy.cut();
    }
    assert_eq!(read(stream).await.0, [3]);

    let called = |after_seq| ReceivedCall::RunStream { run_id: run_id.clone(), after_seq };
    assert_eq!(script.calls(), [called(0), called(1), called(2)]);
    // Any other field could differ from the run's and be refused.
    let on_disconnect = DisconnectPolicy::Cancel.into();
    let joining = RunInput { run_id: Some(run_id.clone()), on_disconnect, ..RunInput::default() };
    assert_eq!(script.inputs()[1..], [joining.clone(), joining]);
}

#[tokio::test]
async fn a_steered_run_is_subscribed_to_after_a_cut() {
    let steered = |event: RunEvent| RunEvent { run_id: "live".into(), ..event };
    let script = Script::default()
        .scene(vec![steered(durable(1))], End::Error(Status::unavailable("restarting")))
        .scene(vec![steered(finished(2))], End::Ok);
    let (_fake, client) = start(&script).await;
    let input = RunInput { on_disconnect: DisconnectPolicy::Cancel.into(), ..input() };
    let stream = client.run_stream(input).await.expect("started");
    assert_eq!(read(stream).await.0, [1, 2]);
    assert_eq!(script.calls()[1], ReceivedCall::Subscribe { run_id: "live".into(), after_seq: 1 });
}

#[tokio::test]
async fn updates_report_the_state_of_the_connection() {
    let script =
        Script::default().scene(vec![durable(1)], End::Hang).scene(vec![durable(2), finished(3)], End::Ok);
    let fake = FakeServer::start(script.clone(), Hosts::default()).await;
    let proxy = Proxy::start(fake.address).await;

    let mut stream = client(&proxy.url()).run_stream(input()).await.expect("started");
    let mut seen = Vec::new();
    while let Some(progress) = soon(stream.next_update()).await {
        let progress = progress.expect("no error");
        seen.push(match &progress {
            StreamUpdate::Event(event) => event.seq.to_string(),
            other => format!("{other:?}"),
        });
        if seen.len() == 1 {
            proxy.cut();
        }
    }
    assert_eq!(seen, ["1", "Lost", "Resumed", "2", "3"]);
}

#[tokio::test]
async fn a_stream_that_ends_early_or_has_a_gap_is_reopened() {
    let script = Script::default()
        .scene(vec![durable(1)], End::Ok)
        .scene(vec![durable(3)], End::Hang)
        .scene(vec![durable(2), finished(3)], End::Ok);
    let (_fake, client) = start(&script).await;
    let stream = client.subscribe("run-1", 0).await.expect("subscribed");
    assert_eq!(read(stream).await.0, [1, 2, 3]);
}

#[tokio::test]
async fn a_server_without_progress_uses_up_the_retries() {
    let script = Script::default().scene(vec![durable(1)], End::Ok);
    let (_fake, client) = start(&script).await;
    let (seen, error) = read(client.subscribe("run-1", 0).await.expect("subscribed")).await;
    assert_eq!(seen, [1]);
    assert!(error.expect("an error").is_unreachable());
    assert_eq!(script.calls().len(), 1 + 5, "as many retries as the backoff has");
}

#[tokio::test]
async fn a_lasting_error_ends_a_stream_at_once() {
    let details = ErrorDetails::with_error_info("JOURNAL_CORRUPT", "agentloop.v1", []);
    let corrupt = Status::with_error_details(Code::DataLoss, "cannot be read", details);
    let script = Script::default().scene(vec![durable(1)], End::Error(corrupt));
    let (_fake, client) = start(&script).await;
    let (seen, error) = read(client.subscribe("run-1", 0).await.expect("subscribed")).await;
    assert_eq!(seen, [1]);
    assert_eq!(error.expect("an error").reason(), Some(ErrorReason::JournalCorrupt));
    assert_eq!(script.calls().len(), 1);
}

#[tokio::test]
async fn an_error_of_the_first_call_is_returned_by_it() {
    let script = Script::default().scene(vec![], End::Error(Status::not_found("no such run")));
    let (_fake, client) = start(&script).await;
    let mut stream = client.subscribe("run-1", 0).await.expect("the stream itself opens");
    let error = soon(stream.next()).await.expect("an item").expect_err("an error");
    assert_eq!(error.code(), Some(Code::NotFound));
    assert!(soon(stream.next()).await.is_none(), "it is over");
}

#[tokio::test]
async fn a_call_is_repeated_with_the_same_id() {
    let script =
        Script::default().scene(vec![], End::Error(Status::unavailable("restarting"))).scene(vec![], End::Ok);
    let (_fake, client) = start(&script).await;
    let result = soon(client.run(input())).await.expect("the second try succeeds");
    assert!(!result.run_id.is_empty());
    let call = ReceivedCall::Run { run_id: result.run_id };
    assert_eq!(script.calls(), [call.clone(), call]);
}

#[tokio::test]
async fn a_call_that_is_refused_is_not_repeated() {
    let script = Script::default().scene(vec![], End::Error(Status::not_found("no such run")));
    let (_fake, client) = start(&script).await;
    let error = soon(client.get_run("r")).await.expect_err("refused");
    assert_eq!(error.code(), Some(Code::NotFound));
    assert_eq!(script.calls(), [ReceivedCall::GetRun]);
}

/// A second one would end the session's next run.
#[tokio::test]
async fn an_abort_of_a_session_is_not_repeated_once_a_server_may_have_it() {
    let script =
        Script::default().scene(vec![], End::Error(Status::unavailable("lost"))).scene(vec![], End::Ok);
    let (_fake, client) = start(&script).await;
    let error = soon(client.abort_session("s", "enough")).await.expect_err("nobody knows if it was done");
    assert_eq!(error.code(), Some(Code::Unavailable));
    assert_eq!(script.calls(), [ReceivedCall::AbortSession { session_id: "s".into() }]);
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unreachable() {
    let (fake, _) = start(&Script::default()).await;
    let url = fake.url();
    drop(fake);
    let error = soon(client(&url).get_run("r")).await.expect_err("nobody listens");
    assert!(matches!(error, Error::Unreachable(_)), "{error:?}");
}

#[tokio::test]
async fn a_decision_moves_the_run_that_waits_for_it() {
    let script = Script::default().scene(vec![durable(1)], End::AfterDecision(vec![durable(2), finished(3)]));
    let (_fake, client) = start(&script).await;
    let mut stream = client.run_stream(input()).await.expect("started");
    assert_eq!(soon(stream.next()).await.expect("an event").expect("no error").seq, 1);

    let unknown = SubmitApprovalRequest { request_id: "unknown".into(), ..SubmitApprovalRequest::default() };
    let error = soon(client.submit_approval(unknown)).await.expect_err("no such question");
    assert_eq!(error.code(), Some(Code::NotFound));
    let answer = SubmitApprovalRequest { request_id: "q".into(), ..SubmitApprovalRequest::default() };
    assert_eq!(soon(client.submit_approval(answer)).await.expect("taken").request_id, "q");

    assert_eq!(read(stream).await.0, [2, 3]);
}

#[tokio::test]
async fn an_abort_names_its_run() {
    let script = Script::default();
    let (_fake, client) = start(&script).await;
    assert_eq!(soon(client.abort_run("r", "enough")).await.expect("aborted").run_id, "r");
    assert_eq!(script.calls(), [ReceivedCall::Abort { run_id: "r".into() }]);
}
