//! The loop as a state machine: one session whose runs pass through every transition of the table, and no others.

use std::collections::BTreeSet;

use agentloop_client::v1 as wire;
use agentloop_tests::events::{durable, name, results};
use agentloop_tests::host::Host;
use agentloop_tests::input::in_session;
use agentloop_tests::model::{Answer, Model};
use agentloop_tests::server::TestServer;
use serde_json::json;
use wire::RunStatus::{
    Aborted, AwaitingHuman, BackingOff, Compacting, Completed, Failed, ModelRunning, Preparing, ToolRunning,
};
use wire::decision::Decision;
use wire::run_event::Event;
use wire::{RunErrorCode, RunStatus, ToolStatus};

use super::{answer, offered, read, said};

/// Every transition that a run may make, and what makes it. What a person denies, or an abort ends, settles its call first: the
/// run is at its tools then, for one event.
const TRANSITIONS: [(RunStatus, RunStatus, &str); 14] = [
    (Preparing, ModelRunning, "the context is built"),
    (ModelRunning, Completed, "no tool is called"),
    (ModelRunning, ToolRunning, "tools are called"),
    (ToolRunning, ModelRunning, "all calls have results"),
    (ToolRunning, AwaitingHuman, "a call needs approval"),
    (AwaitingHuman, ToolRunning, "the call is approved, denied or aborted"),
    (ModelRunning, BackingOff, "the model fails for a while"),
    (BackingOff, ModelRunning, "the wait is over"),
    (ModelRunning, Compacting, "the context is too long"),
    (Compacting, ModelRunning, "the context is smaller"),
    (ModelRunning, Failed, "the model refuses the request"),
    (ToolRunning, Failed, "a limit is reached"),
    (ModelRunning, Aborted, "a caller aborts the run"),
    (ToolRunning, Aborted, "a caller aborts the run"),
];

const OVERFLOW: &str = "This model's maximum context length is 8192 tokens.";

fn approve() -> Decision {
    Decision::Approve(wire::Approve {})
}

fn names(names: &[&str]) -> wire::ToolNames {
    wire::ToolNames { names: names.iter().map(|name| (*name).to_owned()).collect() }
}

/// Every field of a run's input that this conversation has a use for.
fn first_input() -> wire::RunInput {
    let part = wire::Part { content: Some(wire::part::Content::Text("I am Ada.".to_owned())) };
    wire::RunInput {
        input_messages: vec![wire::Message { role: wire::Role::User.into(), parts: vec![part] }],
        system_prompt_override: Some("Be brief.".to_owned()),
        allowed_tools: Some(names(&["weather", "mail", "fail"])),
        tool_order: vec!["weather".to_owned(), "mail".to_owned()],
        tool_policy: Some(wire::ToolPolicy {
            enabled: Some(true),
            allow_list: Some(names(&["mail", "weather", "hold"])),
            max_parallel: Some(1),
            max_calls_per_run: Some(5),
            require_approval_by_default: Some(false),
            ..Default::default()
        }),
        loop_limits: Some(wire::LoopLimits {
            max_iterations: Some(5),
            max_tool_rounds: Some(3),
            max_run_duration: Some(prost_types::Duration { seconds: 3600, nanos: 0 }),
            ..Default::default()
        }),
        runtime_init_data_json: Some("{}".to_owned()),
        runtime_hints_json: Some("{}".to_owned()),
        agent: Some("default".to_owned()),
        ..in_session("s1", "r1", "Is it sunny in Rome? Tell bob.")
    }
}

/// Plays one run to its end, and does `decide` with its questions.
async fn played(
    server: &TestServer,
    input: wire::RunInput,
    decide: impl Fn() -> Decision,
) -> Vec<wire::RunEvent> {
    let mut events = server.stream(input).await;
    while let Some(event) = events.event().await.expect("the stream goes on") {
        if let Some(Event::HumanRequested(asked)) = &event.event {
            let question = asked.request.as_ref().expect("a question");
            server.decide(&question.request_id, decide()).await.expect("decided");
        }
    }
    events.seen
}

/// Plays one run up to an event of this name, and aborts it there.
async fn aborted(server: &TestServer, input: wire::RunInput, at: &str) -> Vec<wire::RunEvent> {
    let run = input.run_id.clone().expect("it is named");
    let mut events = server.stream(input).await;
    events.wait_for_name(at).await;
    assert_eq!(server.abort(&run).await.status(), Aborted);
    events.rest().await
}

fn statuses(events: &[wire::RunEvent]) -> Vec<RunStatus> {
    let mut statuses: Vec<RunStatus> = durable(events).iter().map(wire::RunEvent::status).collect();
    statuses.dedup();
    statuses
}

fn error(events: &[wire::RunEvent]) -> Option<RunErrorCode> {
    match events.last().and_then(|event| event.event.as_ref()) {
        Some(Event::RunFinished(end)) => end.error.as_ref().map(wire::RunError::code),
        other => panic!("not over: {other:?}"),
    }
}

#[tokio::test]
async fn one_session_makes_every_transition_of_the_table() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let host = Host::start(&server).await;
    let mut runs = Vec::new();

    // A conversation with a tool, an approval and an answer.
    let rome = json!({ "city": "Rome" });
    model
        .asks("weather", rome.clone())
        .asks("mail", json!({ "to": "bob" }))
        .says("It is sunny, and bob knows.");
    let events = played(&server, first_input(), approve).await;
    let wanted =
        [Preparing, ModelRunning, ToolRunning, ModelRunning, ToolRunning, AwaitingHuman, ToolRunning];
    assert_eq!(statuses(&events), [&wanted[..], &[ModelRunning, Completed]].concat());
    assert_eq!(offered(&model.requests()[0]), ["weather", "mail"], "both lists allow these, in this order");
    let first =
        said(&[("system", "Be brief."), ("user", "I am Ada."), ("user", "Is it sunny in Rome? Tell bob.")]);
    assert_eq!(read(&model.requests()[0]), first);
    let outputs: Vec<String> = results(&events).into_iter().map(|result| result.output).collect();
    assert_eq!(outputs, ["sunny in Rome", "sent to bob"]);
    runs.push(events);

    // The same call again is the same run, with its result.
    let result = server.run(first_input()).await;
    assert_eq!((result.session_id.as_str(), result.run_id.as_str()), ("s1", "r1"));
    assert_eq!((result.status(), answer(&result).as_str()), (Completed, "It is sunny, and bob knows."));
    let usage = result.usage.expect("usage");
    assert_eq!((usage.input_tokens, usage.output_tokens, result.last_error), (30, 15, None));

    // A denied call: the model reads the reason and continues.
    model.asks("mail", json!({ "to": "eve" })).says("Then I do not.");
    let deny = || Decision::Deny(wire::Deny { message: "not to eve".to_owned() });
    let events = played(&server, in_session("s1", "denied", "Tell eve."), deny).await;
    assert_eq!(results(&events)[0].status(), ToolStatus::Denied);
    assert!(read(&model.last_request()).last().expect("messages").1.contains("not to eve"));
    runs.push(events);

    // A model that is busy for a while, and one that has too much to read.
    model.then(Answer::Fails(503, None, "busy".to_owned())).says("Here I am.");
    runs.push(played(&server, in_session("s1", "busy", "Hello?"), approve).await);
    model
        .then(Answer::Fails(400, None, OVERFLOW.to_owned()))
        .says("They spoke of the weather.")
        .says("Go on.");
    let policy = wire::ContextPolicy { keep_recent: Some(2), ..Default::default() };
    let input = wire::RunInput { context_policy: Some(policy), ..in_session("s1", "long", "Where were we?") };
    runs.push(played(&server, input, approve).await);
    assert!(read(&model.last_request())[0].1.contains("They spoke of the weather."));

    // Failures: of the model, and by a limit.
    model.fails(401);
    runs.push(played(&server, in_session("s1", "refused", "Hello?"), approve).await);
    assert_eq!(error(runs.last().expect("runs")), Some(RunErrorCode::ModelUnauthorized));
    model.asks("weather", rome.clone()).asks("weather", rome.clone());
    let limits = wire::LoopLimits { max_tool_rounds: Some(1), ..Default::default() };
    let input = wire::RunInput { loop_limits: Some(limits), ..in_session("s1", "limited", "Rome, twice.") };
    runs.push(played(&server, input, approve).await);
    assert_eq!(error(runs.last().expect("runs")), Some(RunErrorCode::LimitToolRounds));
    model.asks("weather", rome).asks("weather", json!({ "city": "Oslo" }));
    let policy = wire::ToolPolicy { max_calls_per_run: Some(1), ..Default::default() };
    let input = wire::RunInput { tool_policy: Some(policy), ..in_session("s1", "counted", "Two towns.") };
    runs.push(played(&server, input, approve).await);
    assert_eq!(error(runs.last().expect("runs")), Some(RunErrorCode::LimitToolCalls));

    // Aborts, from each running status.
    let speech = model.speaks();
    speech.say("Well");
    runs.push(aborted(&server, in_session("s1", "stop-1", "Talk."), "model_delta").await);
    model.asks("hold", json!({ "x": "1" }));
    runs.push(aborted(&server, in_session("s1", "stop-2", "Hold."), "tool_call_accepted").await);
    model.asks("mail", json!({ "to": "bob" }));
    runs.push(aborted(&server, in_session("s1", "stop-3", "Write."), "human_requested").await);
    drop(speech);

    // The session has taken every message, and takes the next one.
    model.says("Good bye.");
    runs.push(played(&server, in_session("s1", "last", "Bye."), approve).await);
    assert_eq!(host.gate.count("mail"), 1, "only the approved one was sent");

    let made: BTreeSet<(RunStatus, RunStatus)> = runs
        .iter()
        .flat_map(|events| {
            let statuses = statuses(events);
            statuses.windows(2).map(|pair| (pair[0], pair[1])).collect::<Vec<_>>()
        })
        .collect();
    let table: BTreeSet<(RunStatus, RunStatus)> =
        TRANSITIONS.iter().map(|(from, to, _)| (*from, *to)).collect();
    assert_eq!(made, table);
    assert!(runs.iter().all(|events| statuses(events)[0] == Preparing));

    // Each piece of an answer once, by run, model call and number.
    let mut pieces = BTreeSet::new();
    for event in runs.iter().flatten() {
        if let Some(Event::ModelDelta(delta)) = &event.event {
            assert!(pieces.insert((event.run_id.clone(), delta.model_call, delta.attempt, delta.delta_seq)));
        }
    }
    assert!(!pieces.is_empty());
    for events in &runs {
        assert_eq!(name(events.last().expect("events")), "run_finished");
        let replay = server.replay(&events[0].run_id).await;
        assert_eq!((replay.faithful, replay.difference.as_str()), (true, ""));
    }
}
