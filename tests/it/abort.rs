//! Ending a run, at whatever moment, leaves a session that takes the next message.

use std::sync::{Arc, mpsc};

use agentloop_client::v1 as wire;
use agentloop_core::id::{RunId, SessionId};
use agentloop_server::ids::{Ids, RandomIds};
use agentloop_tests::errors::{assert_refused, metadata};
use agentloop_tests::events::{assert_dense, name, results};
use agentloop_tests::host::Host;
use agentloop_tests::input::{in_session, named};
use agentloop_tests::model::{Answer, Model};
use agentloop_tests::server::TestServer;
use agentloop_tests::soon;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tonic::Code;
use tonic::transport::Channel;
use wire::agent_loop_client::AgentLoopClient;
use wire::run_event::Event;
use wire::{RunErrorCode, RunStatus, ToolStatus};

fn approve() -> wire::decision::Decision {
    wire::decision::Decision::Approve(wire::Approve {})
}

/// The conversation of every run: two tools together, then a mail that needs leave, then the answer.
fn conversation(request: &Value) -> Answer {
    let messages = request["messages"].as_array().expect("messages");
    let prompt = messages.iter().rposition(|message| message["role"] == "user").expect("a prompt");
    let results = messages[prompt..].iter().filter(|message| message["role"] == "tool").count();
    let call = |tool: &str, field: &str, value: &str| (tool.to_owned(), json!({ field: value }));
    match results {
        0 if messages[prompt]["content"] == "again" => Answer::Says("back".to_owned()),
        0 => Answer::Asks(vec![call("weather", "city", "Rome"), call("fail", "why", "broken")]),
        1 | 2 => Answer::Asks(vec![call("mail", "to", "bob")]),
        _ => Answer::Says("done".to_owned()),
    }
}

/// Plays the conversation up to the event `stop`, and aborts there. Returns whether the run had got that far, and how
/// it ended.
async fn stop_at(server: &TestServer, stop: u64) -> (bool, RunStatus) {
    let (session, run) = (format!("s{stop}"), format!("r{stop}"));
    let mut events = server.stream(in_session(&session, &run, "go")).await;
    let mut reached = false;
    while let Some(event) = events.event().await.expect("the stream goes on") {
        if event.seq == stop {
            reached = true;
            server.abort(&run).await;
        }
        if let Some(Event::HumanRequested(asked)) = &event.event
            && !reached
        {
            let question = asked.request.as_ref().expect("a question");
            server.decide(&question.request_id, approve()).await.expect("decided");
        }
    }
    assert_dense(&events.seen, 1);
    let last = events.seen.last().expect("events");
    assert_eq!(name(last), "run_finished");
    (reached, last.status())
}

#[tokio::test]
async fn at_every_event_leaves_a_session_that_goes_on() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let _host = Host::start(&server).await;
    model.answers(conversation);
    let (mut stop, mut aborted) = (0, 0);
    loop {
        stop += 1;
        let (reached, status) = stop_at(&server, stop).await;
        let next = server.run(in_session(&format!("s{stop}"), &format!("next{stop}"), "again")).await;
        assert_eq!(next.status(), RunStatus::Completed, "after an abort at event {stop}");
        if !reached || status == RunStatus::Completed {
            assert_eq!(status, RunStatus::Completed);
            break;
        }
        assert_eq!(status, RunStatus::Aborted);
        aborted += 1;
    }
    assert!(aborted >= 15, "the whole conversation was gone through: {aborted}");
    assert_eq!(server.pending().await, [], "no question outlives its run");
}

#[tokio::test]
async fn while_the_model_speaks_hangs_up_on_it() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let mut speech = model.speaks();
    let mut events = server.stream(in_session("s1", "r1", "hi")).await;
    speech.say("I was about to \n");
    events.wait_for_speech().await;
    assert_eq!(server.abort("r1").await.status(), RunStatus::Aborted);
    speech.hung_up().await;
    let events = events.rest().await;
    let kept = events.iter().find_map(|event| match &event.event {
        Some(Event::AssistantMessage(message)) => Some(message.clone()),
        _ => None,
    });
    assert_eq!(kept.expect("the answer so far").finish_reason(), wire::FinishReason::CutOff);
    let Some(Event::RunFinished(finished)) = &events[events.len() - 1].event else { panic!("{events:?}") };
    let error = finished.error.as_ref().expect("why");
    assert_eq!(error.code(), RunErrorCode::AbortedByCaller);
    assert!(error.message.contains("enough"), "{}", error.message);
    assert_goes_on_after(&model, &server, "I was about to", "the run was aborted").await;
    assert!(server.replay("r1").await.faithful);
}

/// Checks that the session has the answer as far as it came, and that the model reads it with a note before the next
/// message.
async fn assert_goes_on_after(model: &Model, server: &TestServer, answer: &str, why: &str) {
    let entries = server.entries("s1").await;
    let said: Vec<String> =
        entries.iter().map(|entry| text(entry.message.as_ref().expect("a message"))).collect();
    let note = format!("[The answer above was cut off before its end: {why}]");
    assert_eq!(said, ["hi", answer, note.as_str()]);
    model.says("back");
    assert_eq!(server.run(in_session("s1", "r2", "again")).await.status(), RunStatus::Completed);
    let sent = model.last_request();
    let sent = sent["messages"].as_array().expect("messages");
    let sent: Vec<_> = sent.iter().map(|message| (&message["role"], &message["content"])).collect();
    let pair = |role: &str, text: &str| (json!(role), json!(text));
    let expected =
        [pair("user", "hi"), pair("assistant", answer), pair("user", &note), pair("user", "again")];
    let expected: Vec<_> = expected.iter().map(|(role, text)| (role, text)).collect();
    assert!(sent.ends_with(&expected), "{sent:?}");
}

fn text(message: &wire::Message) -> String {
    let texts = message.parts.iter().filter_map(|part| match &part.content {
        Some(wire::part::Content::Text(text)) => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}

#[tokio::test]
async fn what_an_interrupt_cuts_off_is_kept() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let mut speech = model.speaks();
    let mut events = server.stream(in_session("s1", "r1", "hi")).await;
    speech.think("let me see");
    speech.say("Once upon");
    events.wait_for_speech().await;
    model.says("so be it");
    let interrupts = wire::BusySessionPolicy::Interrupt.into();
    let input = wire::RunInput { on_busy_session: interrupts, ..in_session("s1", "r2", "shorter") };
    assert_eq!(server.run(input).await.status(), RunStatus::Completed);
    speech.hung_up().await;
    let entries = server.entries("s1").await;
    let said: Vec<String> =
        entries.iter().map(|entry| text(entry.message.as_ref().expect("a message"))).collect();
    assert_eq!(said[..2], ["hi", "Once upon"]);
    assert!(said[2].starts_with("[The answer above was cut off"), "{said:?}");
    assert_eq!(said[3..], ["shorter", "so be it"]);
}

#[tokio::test]
async fn what_a_limit_on_duration_cuts_off_is_kept() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let mut speech = model.speaks();
    let second = prost_types::Duration { seconds: 1, nanos: 0 };
    let limits = wire::LoopLimits { max_run_duration: Some(second), ..Default::default() };
    let mut events =
        server.stream(wire::RunInput { loop_limits: Some(limits), ..in_session("s1", "r1", "hi") }).await;
    speech.say("Once upon");
    events.wait_for_speech().await;
    let events = events.rest().await;
    assert_eq!(events.last().map(wire::RunEvent::status), Some(RunStatus::Failed));
    speech.hung_up().await;
    assert_goes_on_after(&model, &server, "Once upon", "ran for longer than 1 s").await;
}

#[tokio::test]
async fn while_tools_run_tells_their_host_and_settles_each_call() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let host = Host::start(&server).await;
    model.asks_all(&[("hold", json!({ "x": "1" })), ("hold_unsafe", json!({ "x": "2" }))]);
    let policy = wire::ToolPolicy { max_parallel: Some(2), ..Default::default() };
    let input = wire::RunInput { tool_policy: Some(policy), ..in_session("s1", "r1", "go") };
    let events = server.stream(input).await;
    host.gate.began(2).await;
    server.abort("r1").await;
    host.gate.cancelled(2).await;
    let results = results(&events.rest().await);
    assert_eq!(results.len(), 2);
    assert!(results.iter().all(|result| result.status() == ToolStatus::Aborted), "{results:?}");
    model.says("back");
    assert_eq!(server.run(in_session("s1", "r2", "again")).await.status(), RunStatus::Completed);
}

#[tokio::test]
async fn while_it_waits_for_a_human_withdraws_the_question() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let host = Host::start(&server).await;
    model.asks("mail", json!({ "to": "bob" }));
    let waits = server.run(in_session("s1", "r1", "write")).await;
    server.abort("r1").await;
    assert_eq!(server.pending().await, []);
    let late = server.decide(&waits.pending[0].request_id, approve()).await;
    let refused = assert_refused(late, Code::FailedPrecondition, "ALREADY_RESOLVED");
    assert_eq!(metadata(&refused, "decision"), "withdrawn");
    assert_eq!(host.gate.calls(), []);
    model.says("back");
    assert_eq!(server.run(in_session("s1", "r2", "again")).await.status(), RunStatus::Completed);
}

fn retrying(run: &str, policy: wire::RetryPolicy) -> wire::RunInput {
    wire::RunInput { retry_policy: Some(policy), ..in_session("s1", run, "hi") }
}

#[tokio::test]
async fn while_it_backs_off_or_is_paused() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    model.then(Answer::Fails(429, Some(60), "much later".to_owned()));
    let mut events = server.stream(retrying("r1", wire::RetryPolicy::default())).await;
    events.wait_for_name("model_call_failed").await;
    assert_eq!(server.get_run("r1").await.status(), RunStatus::BackingOff);
    assert_eq!(server.abort("r1").await.status(), RunStatus::Aborted);
    events.rest().await;

    model.fails(500);
    let policy =
        wire::RetryPolicy { max_retries: Some(0), pause_when_exhausted: Some(true), ..Default::default() };
    assert_eq!(server.run(retrying("r2", policy)).await.status(), RunStatus::Paused);
    assert_eq!(server.abort("r2").await.status(), RunStatus::Aborted);
    model.says("back");
    assert_eq!(server.run(in_session("s1", "r3", "again")).await.status(), RunStatus::Completed);
}

#[tokio::test]
async fn by_session() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let abort = || {
        let target = Some(wire::abort_request::Target::SessionId("s1".to_owned()));
        let mut client = server.agent_loop();
        async move {
            let request = wire::AbortRequest { target, reason: String::new() };
            soon(client.abort(request)).await.expect("aborted").into_inner()
        }
    };
    let mut speech = model.speaks();
    let events = server.stream(in_session("s1", "r1", "hi")).await;
    speech.asked().await;
    let aborted = abort().await;
    assert_eq!((aborted.run_id.as_str(), aborted.status()), ("r1", RunStatus::Aborted));
    assert_eq!(events.rest().await.last().map(wire::RunEvent::status), Some(RunStatus::Aborted));
    assert_eq!(abort().await, wire::AbortResponse::default(), "there is none any more");
}

fn on_disconnect(policy: wire::DisconnectPolicy) -> wire::RunInput {
    wire::RunInput { on_disconnect: policy.into(), ..in_session("s1", "r1", "hi") }
}

async fn assert_cancelled(server: &TestServer, speech: &mut agentloop_tests::model::Speech) {
    let events = server.subscribe("r1", 0).await.rest().await;
    let Some(Event::RunFinished(finished)) = &events[events.len() - 1].event else { panic!("{events:?}") };
    assert_eq!(finished.status(), RunStatus::Aborted);
    assert_eq!(finished.error.as_ref().map(wire::RunError::code), Some(RunErrorCode::AbortedByDisconnect));
    speech.hung_up().await;
}

#[tokio::test]
async fn a_client_that_goes_away_takes_its_run_with_it_if_it_said_so() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let mut speech = model.speaks();
    let mut events = server.stream(on_disconnect(wire::DisconnectPolicy::Cancel)).await;
    speech.say("hello");
    events.wait_for_speech().await;
    drop(events);
    assert_cancelled(&server, &mut speech).await;
    assert_goes_on_after(&model, &server, "hello", "the run was aborted").await;
}

#[tokio::test]
async fn so_does_one_that_waited_without_a_stream() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let mut speech = model.speaks();
    let input = Some(on_disconnect(wire::DisconnectPolicy::Cancel));
    let mut client = server.agent_loop();
    let waiting = tokio::spawn(async move { client.run(wire::RunRequest { input }).await });
    speech.asked().await;
    waiting.abort();
    assert!(waiting.await.is_err_and(|error| error.is_cancelled()));
    assert_cancelled(&server, &mut speech).await;
}

/// Calls of one run: the first by a client that is gone, the second by one that came back.
#[tokio::test]
async fn a_client_that_goes_away_leaves_the_run_to_the_other_callers() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    for other in [wire::DisconnectPolicy::Cancel, wire::DisconnectPolicy::Continue] {
        let run_id = format!("r-{}", other.as_str_name());
        let of = |policy: wire::DisconnectPolicy| wire::RunInput {
            on_disconnect: policy.into(),
            ..in_session("s1", &run_id, "hi")
        };
        let mut speech = model.speaks();
        let stays = server.stream(of(other)).await;
        speech.asked().await;
        let leaves = wire::RunInput {
            run_id: Some(run_id.clone()),
            on_disconnect: wire::DisconnectPolicy::Cancel.into(),
            ..Default::default()
        };
        drop(server.stream(leaves).await);
        // When this one is aborted, the server has seen the call before it leave, too.
        let mut control = model.speaks();
        let input = wire::RunInput {
            on_disconnect: wire::DisconnectPolicy::Cancel.into(),
            ..in_session("s2", &format!("control-{run_id}"), "hi")
        };
        let events = server.stream(input).await;
        control.asked().await;
        drop(events);
        control.hung_up().await;
        speech.say("hello");
        speech.end();
        let last = stays.rest().await.pop().expect("it ends");
        assert_eq!(last.status(), RunStatus::Completed, "{last:?}");
    }
}

/// Ids of which a run's seed, which is drawn right before the run is written, comes when the test wants it.
struct Held {
    asked: Notify,
    leave: Mutex<mpsc::Receiver<u64>>,
}

impl Ids for Held {
    fn run(&self) -> RunId {
        RandomIds.run()
    }

    fn session(&self) -> SessionId {
        RandomIds.session()
    }

    fn seed(&self) -> u64 {
        self.asked.notify_one();
        let leave = self.leave.lock();
        tokio::task::block_in_place(|| leave.recv().expect("the test stays"))
    }
}

/// Starts the run by this call, which goes away before the run is there; how the run ends.
async fn leave_at_the_start<T>(call: impl FnOnce(AgentLoopClient<Channel>, wire::RunInput) -> T) -> wire::Run
where
    T: Future<Output: Send> + Send + 'static,
{
    let model = Model::start().await;
    let _speech = model.speaks();
    let (give_leave, leave) = mpsc::channel();
    let ids = Arc::new(Held { asked: Notify::new(), leave: Mutex::new(leave) });
    let given = ids.clone();
    let server = TestServer::built(&model, "", move |builder| builder.ids(given.clone())).await;
    let input = on_disconnect(wire::DisconnectPolicy::Cancel);
    let calling = tokio::spawn(call(server.agent_loop(), input));
    soon(ids.asked.notified()).await;
    calling.abort();
    assert!(calling.await.is_err_and(|error| error.is_cancelled()));
    // A call on the same connection after this one's end is answered after the server has heard of the end.
    assert_eq!(server.pending().await, []);
    give_leave.send(7).expect("the server waits");
    // A call that waits for the run would keep it.
    loop {
        let request = wire::GetRunRequest { run_id: "r1".to_owned() };
        if let Ok(found) = soon(server.agent_loop().get_run(request)).await {
            let run = found.into_inner().run.expect("a run");
            if run.status() == RunStatus::Aborted {
                return run;
            }
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn also_one_that_goes_away_while_its_run_begins() {
    let unary = leave_at_the_start(|mut client, input| async move {
        client.run(wire::RunRequest { input: Some(input) }).await
    });
    let streaming = leave_at_the_start(|mut client, input| async move {
        client.run_stream(wire::RunStreamRequest { input: Some(input), after_seq: 0 }).await
    });
    for ended in [unary.await, streaming.await] {
        assert_eq!(ended.status(), RunStatus::Aborted);
        assert_eq!(ended.last_error.map(|error| error.code()), Some(RunErrorCode::AbortedByDisconnect));
    }
}

#[tokio::test]
async fn after_a_restart_a_run_ends_unless_its_caller_comes_back() {
    let model = Model::start().await;
    let mut server = TestServer::with(&model, "[runs]\ncaller_grace = \"2s\"").await;
    let _host = Host::start(&server).await;
    let cancel = wire::DisconnectPolicy::Cancel.into();
    let input = |run: &str| wire::RunInput { on_disconnect: cancel, ..named(run, "hi") };
    model.asks("mail", json!({ "to": "bob" }));
    let asked = server.run(input("asks")).await;
    assert_eq!(asked.status(), RunStatus::AwaitingHuman, "its caller has its response");
    let (mut left, mut cut) = (Vec::new(), Vec::new());
    for run in ["comes_back", "stays_away"] {
        let mut speech = model.speaks();
        left.push(server.stream(input(run)).await);
        speech.asked().await;
        // An answer that ends before the server does would be asked for again at once.
        cut.push(speech);
    }
    let mut speeches = [model.speaks(), model.speaks()];
    server.restart().await;
    drop((left, cut));
    let back = server.stream(input("comes_back")).await;
    for speech in &mut speeches {
        speech.asked().await;
    }
    let mut ended = server.get_run("stays_away").await;
    while ended.status() != RunStatus::Aborted {
        tokio::task::yield_now().await;
        ended = server.get_run("stays_away").await;
    }
    let why = ended.last_error.expect("why");
    assert_eq!(why.code(), RunErrorCode::AbortedByDisconnect);
    for speech in speeches {
        speech.say("here");
        speech.end();
    }
    assert_eq!(back.rest().await.last().map(wire::RunEvent::status), Some(RunStatus::Completed));
    assert_eq!(server.get_run("asks").await.status(), RunStatus::AwaitingHuman, "it waits for a human");
}

#[tokio::test]
async fn otherwise_the_run_goes_on() {
    for policy in [wire::DisconnectPolicy::Unspecified, wire::DisconnectPolicy::Continue] {
        let model = Model::start().await;
        let server = TestServer::start(&model).await;
        let speech = model.speaks();
        let mut events = server.stream(on_disconnect(policy)).await;
        speech.say("hel");
        events.wait_for_speech().await;
        drop(events);
        speech.say("lo");
        speech.end();
        assert_eq!(server.run(on_disconnect(policy)).await.status(), RunStatus::Completed);
    }
}

#[tokio::test]
async fn a_late_result_of_a_host_changes_nothing() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let host = Host::start(&server).await;
    model.asks("hold", json!({ "x": "1" }));
    let events = server.stream(named("r1", "go")).await;
    host.gate.began(1).await;
    server.abort("r1").await;
    let before = events.rest().await;
    host.gate.open(1);
    host.gate.cancelled(1).await;
    host.leave().await;
    let after = server.subscribe("r1", 0).await.rest().await;
    assert_eq!(after.len() as u64, before.last().map_or(0, |event| event.seq));
}
