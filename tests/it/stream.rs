//! `RunStream` and `Subscribe`: every durable event once and in order, then what happens live.

use agentloop_client::v1 as wire;
use agentloop_tests::errors::{assert_refused, metadata};
use agentloop_tests::events::{Events, assert_dense, durable, name, names, text};
use agentloop_tests::host::Host;
use agentloop_tests::input::{in_session, named};
use agentloop_tests::model::{Answer, Model};
use agentloop_tests::server::TestServer;
use agentloop_tests::soon;
use serde_json::json;
use tonic::Code;
use wire::run_event::Event;
use wire::{LoopPhase, RunStatus};

async fn durable_only(server: &TestServer, run: &str) -> Events {
    let request = wire::SubscribeRequest { run_id: run.to_owned(), after_seq: 0, durable_only: true };
    Events::of_subscription(soon(server.agent_loop().subscribe(request)).await.expect("the call succeeds"))
}

#[tokio::test]
async fn tells_a_whole_run_in_order() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let _host = Host::start(&server).await;
    model.asks("weather", json!({ "city": "Rome" })).says("sunny");
    let events = server.stream(named("r1", "how is Rome?")).await.rest().await;
    assert_dense(&events, 1);
    let durable = durable(&events);
    assert_eq!(
        names(&durable),
        [
            "run_started",
            "input_message",
            "model_call_started",
            "assistant_message",
            "tool_call_proposed",
            "tool_call_offered",
            "tool_call_accepted",
            "tool_call_result",
            "model_call_started",
            "assistant_message",
            "run_finished",
        ]
    );
    assert!(events.iter().all(|event| event.run_id == "r1" && !event.session_id.is_empty()));
    assert!(durable.is_sorted_by_key(|event| event.at.map(|at| (at.seconds, at.nanos))));
    let last = durable.last().expect("events");
    assert_eq!((last.status(), last.phase()), (RunStatus::Completed, wire::LoopPhase::Completed));
    let Some(Event::RunFinished(finished)) = &last.event else { panic!("{last:?}") };
    assert_eq!((finished.iterations, finished.tool_calls), (2, 1));
    assert_eq!(finished.usage.map(|usage| usage.output_tokens), Some(10));
}

/// The text of a stream: its snapshot, if any, with the deltas after it.
#[track_caller]
fn spoken(events: &[wire::RunEvent]) -> String {
    let mut said = String::new();
    let mut last = 0;
    for event in events {
        match &event.event {
            Some(Event::PartialMessage(partial)) => {
                said = partial.message.as_ref().map(text).unwrap_or_default();
                last = partial.delta_seq;
            }
            Some(Event::ModelDelta(delta)) => {
                assert_eq!(delta.delta_seq, last + 1, "no delta is missing or told twice");
                last = delta.delta_seq;
                if let Some(wire::model_delta::Delta::Text(text)) = &delta.delta {
                    said.push_str(text);
                }
            }
            _ => {}
        }
    }
    said
}

#[tokio::test]
async fn a_subscriber_that_joins_in_the_middle_of_a_message_misses_nothing() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let speech = model.speaks();
    let mut first = server.stream(named("r1", "count")).await;
    let mut joined = Vec::new();
    let mut whole = String::new();
    for piece in 0..40 {
        let piece = format!("{piece} ");
        whole.push_str(&piece);
        speech.say(&piece);
        first.wait_for_speech().await;
        let mut late = server.subscribe("r1", 0).await;
        late.wait_for_speech().await;
        joined.push(late);
    }
    speech.end();
    let first = first.rest().await;
    assert_eq!(spoken(&first), whole);
    for (at, late) in joined.into_iter().enumerate() {
        let events = late.rest().await;
        assert_dense(&events, 1);
        assert_eq!(spoken(&events), whole, "joined after piece {at}");
        let snapshots = names(&events).iter().filter(|name| **name == "partial_message").count();
        assert_eq!(snapshots, 1, "joined after piece {at}");
        assert_eq!(names(&events)[3], "partial_message", "after the durable events so far");
        let Some(Event::AssistantMessage(message)) = &events[events.len() - 2].event else {
            panic!("{:?}", names(&events))
        };
        assert_eq!(message.message.as_ref().map(text), Some(whole.clone()));
        assert_eq!(durable(&events), durable(&first));
    }
}

#[tokio::test]
async fn begins_after_any_event_also_when_the_run_is_over_or_the_server_was_restarted() {
    let model = Model::start().await;
    let mut server = TestServer::start(&model).await;
    let _host = Host::start(&server).await;
    model.asks("weather", json!({ "city": "Rome" })).says("sunny");
    let all = durable(&server.stream(named("r1", "how is Rome?")).await.rest().await);
    let last = all.len() as u64;
    for _ in 0..2 {
        for after in 0..=last {
            let events = server.subscribe("r1", after).await.rest().await;
            let from = usize::try_from(after).expect("small");
            assert_eq!(events, all[from..], "after {after}");
        }
        let request =
            wire::SubscribeRequest { run_id: "r1".to_owned(), after_seq: last + 1, durable_only: false };
        let ahead = soon(server.agent_loop().subscribe(request)).await.map(|_| ());
        let refused = assert_refused(ahead, Code::OutOfRange, "SEQ_AHEAD");
        assert_eq!(metadata(&refused, "last_seq"), last.to_string());
        server.restart().await;
    }
}

#[tokio::test]
async fn stays_open_while_a_human_is_awaited_and_goes_on_after_a_restart() {
    let model = Model::start().await;
    let mut server = TestServer::start(&model).await;
    let host = Host::start(&server).await;
    model.asks("mail", json!({ "to": "bob" })).says("sent");
    let mut before = server.stream(named("r1", "write")).await;
    let asked = before.wait_for_name("human_requested").await;
    assert_eq!(asked.status(), RunStatus::AwaitingHuman);
    drop(host);
    server.stop().await;
    assert_refused(Err::<(), _>(before.failure().await), Code::Unavailable, "SHUTTING_DOWN");
    server.restart().await;
    let _host = Host::start(&server).await;
    let mut after = server.subscribe("r1", asked.seq).await;
    let Some(Event::HumanRequested(asked)) = asked.event else { unreachable!("it was waited for") };
    let question = asked.request.expect("a question").request_id;
    let approve = wire::decision::Decision::Approve(wire::Approve {});
    server.decide(&question, approve).await.expect("decided");
    assert_eq!(name(&after.event().await.expect("goes on").expect("goes on")), "human_resolved");
    let after = after.rest().await;
    assert_dense(&[before.seen, after].concat(), 1);
}

#[tokio::test]
async fn a_failed_try_is_taken_back() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let cut = model.speaks();
    let speech = model.speaks();
    let mut events = server.stream(named("r1", "hi")).await;
    cut.say("wrong");
    events.wait_for_speech().await;
    drop(cut);
    let failed = events.wait_for_name("model_call_failed").await;
    let Some(Event::ModelCallFailed(failed)) = failed.event else { unreachable!("it was waited for") };
    assert_eq!((failed.model_call, failed.attempt), (1, 1));
    events.wait_for_name("model_call_started").await;
    let mut late = server.subscribe("r1", 0).await;
    late.wait_for_name("model_call_failed").await;
    late.wait_for_name("model_call_started").await;
    speech.say("right");
    speech.end();
    let events = events.rest().await;
    let from_try = |wanted| {
        let said = events.iter().filter(|event| match &event.event {
            Some(Event::ModelDelta(delta)) => delta.attempt == wanted,
            Some(Event::PartialMessage(partial)) => partial.attempt == wanted,
            _ => false,
        });
        spoken(&said.cloned().collect::<Vec<_>>())
    };
    assert_eq!((from_try(1), from_try(2)), ("wrong".to_owned(), "right".to_owned()));
    let late = late.rest().await;
    assert_eq!(spoken(&late), "right", "what was taken back is not shown to those who come later");
    assert_dense(&late, 1);
}

#[tokio::test]
async fn leaves_out_what_is_transient_on_request() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let speech = model.speaks();
    let mut all = server.stream(named("r1", "hi")).await;
    let only = durable_only(&server, "r1").await;
    speech.say("hello");
    all.wait_for_speech().await;
    speech.end();
    let all = all.rest().await;
    assert_eq!(only.rest().await, durable(&all));
    assert_eq!(durable_only(&server, "r1").await.rest().await, durable(&all));
}

const FLOOD: usize = 2_500;

/// A model that says more than any window of the transport takes.
fn flood(speech: &agentloop_tests::model::Speech) {
    let piece = "x".repeat(1_000);
    (0..FLOOD).for_each(|_| speech.say(&piece));
}

#[tokio::test]
async fn a_subscriber_that_does_not_read_neither_slows_the_run_nor_loses_durable_events() {
    let model = Model::start().await;
    let server = TestServer::with(&model, "[runs]\nsubscriber_buffer = 16").await;
    let mut speech = model.speaks();
    let idle = server.stream(named("r1", "hi")).await;
    speech.asked().await;
    flood(&speech);
    speech.end();
    let result = server.run(named("r1", "hi")).await;
    assert_eq!(text(&result.final_assistant_message.expect("an answer")).len(), FLOOD * 1_000);
    let events = idle.rest().await;
    assert_dense(&events, 1);
    assert_eq!(events.last().map(name), Some("run_finished"));
    assert_eq!(events.last().map(|event| event.seq), Some(result.last_seq));
}

#[tokio::test]
async fn a_stalled_subscriber_is_ended_and_comes_back_without_loss() {
    let model = Model::start().await;
    let more = "[runs]\nsubscriber_buffer = 16\nsubscriber_stall = \"1s\"";
    let server = TestServer::with(&model, more).await;
    let mut speech = model.speaks();
    // The stall is shorter than the wait that the provider asks for.
    model.then(Answer::Fails(429, Some(2), "slow down".to_owned())).says("done");
    let mut idle = server.stream(named("r1", "hi")).await;
    speech.asked().await;
    flood(&speech);
    drop(speech);
    let result = server.run(named("r1", "hi")).await;
    assert_eq!(result.status(), RunStatus::Completed);
    let ended = idle.failure().await;
    assert_refused(Err::<(), _>(ended), Code::ResourceExhausted, "SUBSCRIBER_TOO_SLOW");
    let last = idle.seen.iter().map(|event| event.seq).max().unwrap_or_default();
    let rest = server.subscribe("r1", last).await.rest().await;
    let all = [durable(&idle.seen), rest].concat();
    assert_dense(&all, 1);
    assert_eq!(all.last().map(|event| event.seq), Some(result.last_seq));
}

#[tokio::test]
async fn a_subscriber_ended_for_not_reading_has_not_disconnected() {
    let model = Model::start().await;
    let more = "[runs]\nsubscriber_buffer = 16\nsubscriber_stall = \"1s\"";
    let server = TestServer::with(&model, more).await;
    let mut speech = model.speaks();
    model.then(Answer::Fails(429, Some(2), "slow down".to_owned()));
    let mut late = model.speaks();
    let policy = wire::DisconnectPolicy::Cancel.into();
    let mut idle = server.stream(wire::RunInput { on_disconnect: policy, ..named("r1", "hi") }).await;
    speech.asked().await;
    flood(&speech);
    drop(speech);
    late.asked().await;
    let ended = idle.failure().await;
    assert_refused(Err::<(), _>(ended), Code::ResourceExhausted, "SUBSCRIBER_TOO_SLOW");
    late.say("done");
    late.end();
    let rest = server.subscribe("r1", 0).await.rest().await;
    assert_eq!(rest.last().map(wire::RunEvent::status), Some(RunStatus::Completed));
}

#[tokio::test]
async fn planning_is_seen_before_every_model_call() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let _host = Host::start(&server).await;
    let failed = || Answer::Fails(503, None, "busy".to_owned());
    model.asks("weather", json!({ "city": "Rome" })).then(failed()).says("sunny");
    let retry_policy = Some(wire::RetryPolicy {
        initial_backoff: Some(prost_types::Duration { seconds: 0, nanos: 1_000_000 }),
        ..Default::default()
    });
    let input = wire::RunInput { retry_policy, ..in_session("s1", "r1", "go") };
    let events = server.stream(input).await.rest().await;
    let mut phases: Vec<LoopPhase> = events.iter().map(wire::RunEvent::phase).collect();
    phases.dedup();
    let expected = [
        LoopPhase::Init,
        LoopPhase::Planning,
        LoopPhase::Executing,
        LoopPhase::Observing,
        LoopPhase::Executing,
        LoopPhase::Observing,
        LoopPhase::Planning,
        LoopPhase::Executing,
        LoopPhase::Observing,
        LoopPhase::Completed,
    ];
    assert_eq!(phases, expected);
    let shown: Vec<&wire::RunEvent> =
        events.iter().filter(|event| name(event) == "instruction_planned").collect();
    let [planned] = shown[..] else { panic!("one, and none for a retry: {:?}", names(&events)) };
    assert_eq!((planned.seq, planned.turn_id.as_str()), (0, "r1.2"));
    assert_eq!(planned.process(), wire::ProcessState::Idle);
    let journal = durable_only(&server, "r1").await.rest().await;
    assert_eq!(journal, durable(&events), "one who wants the journal gets the journal");
    assert_eq!(
        server.subscribe("r1", 0).await.rest().await,
        journal,
        "and of a run that is over there is no other"
    );
}
