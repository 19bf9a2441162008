//! The two loops, one in the other: the outer one plans, executes and observes, the inner one calls the model, streams,
//! retries and runs tools.

use agentloop_client::v1 as wire;
use agentloop_tests::host::Host;
use agentloop_tests::input::in_session;
use agentloop_tests::model::{Answer, Model};
use agentloop_tests::server::TestServer;
use serde_json::{Value, json};
use wire::run_event::Event;
use wire::{ObserveDecision, RunErrorCode, RunStatus};

use super::{answer, answering, read, tool};

/// The places of a run, each once in a row, as `PHASE PROCESS`. The decision stands after a message of the model, the number
/// of the iteration where a model call is planned.
fn places(events: &[wire::RunEvent]) -> Vec<String> {
    let mut calls = 0;
    let mut places = Vec::new();
    for event in events {
        let short = |name: &str, prefix| name.strip_prefix(prefix).unwrap_or(name).to_owned();
        let phase = short(event.phase().as_str_name(), "LOOP_PHASE_");
        let process = short(event.process().as_str_name(), "PROCESS_STATE_");
        if let Some(Event::ModelCallStarted(call)) = &event.event {
            calls = call.model_call;
        }
        let place = match &event.event {
            Some(Event::AssistantMessage(message)) => {
                let decision = short(message.decision().as_str_name(), "OBSERVE_DECISION_");
                format!("{phase} {process}: {decision}")
            }
            _ if event.phase() == wire::LoopPhase::Planning => format!("{phase} {}", calls + 1),
            _ => format!("{phase} {process}"),
        };
        if places.last() != Some(&place) {
            places.push(place);
        }
    }
    places
}

async fn world(tools: &[(&str, &str, Value)]) -> (Model, TestServer, Option<Host>) {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let tools: Vec<_> =
        tools.iter().map(|(name, field, output)| answering(tool(name, field), output)).collect();
    let host = match tools.is_empty() {
        true => None,
        false => Some(Host::serving(&server, "host-1", tools).await),
    };
    (model, server, host)
}

async fn places_of(server: &TestServer, input: wire::RunInput) -> Vec<String> {
    places(&server.stream(input).await.rest().await)
}

#[tokio::test]
async fn a_typical_run_plans_executes_and_observes_in_turn() {
    let (model, server, _host) = world(&[("calculator", "expression", json!("4"))]).await;
    model.asks("calculator", json!({ "expression": "2+2" })).says("It is 4.");
    let places = places_of(&server, in_session("my-session", "r1", "What is 2+2?")).await;
    let table = [
        "INIT IDLE",
        "PLANNING 1",
        "EXECUTING CALLING",
        "EXECUTING STREAMING",
        "OBSERVING SUCCESS: CONTINUE",
        "EXECUTING TOOL_EXECUTING",
        "OBSERVING TOOL_EXECUTING",
        "PLANNING 2",
        "EXECUTING CALLING",
        "EXECUTING STREAMING",
        "OBSERVING SUCCESS: STOP",
        "COMPLETED SUCCESS",
    ];
    assert_eq!(places, table);
}

#[tokio::test]
async fn a_model_call_is_tried_again_until_it_answers() {
    let (model, server, _host) = world(&[]).await;
    model.then(Answer::Cut("It".to_owned())).fails(503).says("It is 4.");
    let policy = wire::RetryPolicy {
        initial_backoff: Some(prost_types::Duration { seconds: 0, nanos: 1_000_000 }),
        max_retries: Some(3),
        ..Default::default()
    };
    let input = wire::RunInput { retry_policy: Some(policy), ..in_session("s1", "r1", "What is 2+2?") };
    let events = server.stream(input).await.rest().await;
    let table = [
        "INIT IDLE",
        "PLANNING 1",
        "EXECUTING CALLING",
        "EXECUTING STREAMING",
        "EXECUTING RETRYING",
        "EXECUTING CALLING",
        "EXECUTING RETRYING",
        "EXECUTING CALLING",
        "EXECUTING STREAMING",
        "OBSERVING SUCCESS: STOP",
        "COMPLETED SUCCESS",
    ];
    assert_eq!(places(&events), table);
    let failed = events.iter().filter_map(|event| match &event.event {
        Some(Event::ModelCallFailed(failed)) => Some((
            failed.attempt,
            failed.error.as_ref().map(wire::RunError::code).expect("a reason"),
            failed.retry_at.is_some(),
        )),
        _ => None,
    });
    let wanted = [(1, RunErrorCode::ModelConnection, true), (2, RunErrorCode::ModelUnavailable, true)];
    assert_eq!(failed.collect::<Vec<_>>(), wanted);
}

#[tokio::test]
async fn an_error_that_does_not_pass_is_not_tried_again() {
    let (model, server, _host) = world(&[]).await;
    model.fails(400);
    let places = places_of(&server, in_session("s1", "r1", "What is 2+2?")).await;
    let table = ["INIT IDLE", "PLANNING 1", "EXECUTING CALLING", "OBSERVING ERROR", "FAILED ERROR"];
    assert_eq!(places, table);
    assert_eq!(model.requests().len(), 1);
}

fn user(text: String) -> wire::Message {
    let part = wire::Part { content: Some(wire::part::Content::Text(text)) };
    wire::Message { role: wire::Role::User.into(), parts: vec![part] }
}

#[tokio::test]
async fn a_conversation_beyond_the_threshold_is_compacted_before_the_call() {
    let (model, server, _host) = world(&[]).await;
    model.says("Understood.");
    let policy = wire::ContextPolicy {
        max_messages: Some(20),
        keep_recent: Some(14),
        strategy: Some("truncate".to_owned()),
        ..Default::default()
    };
    let input = wire::RunInput {
        input_messages: (1..=20).map(|at| user(format!("message {at}"))).collect(),
        system_prompt_override: Some("Take notes.".to_owned()),
        context_policy: Some(policy),
        ..in_session("s1", "r1", "message 21")
    };
    let places = places_of(&server, input).await;
    let table = [
        "INIT IDLE",
        "PLANNING 1",
        "EXECUTING CALLING",
        "COMPACTING IDLE",
        "COMPACTING SUCCESS",
        "PLANNING 2",
        "EXECUTING CALLING",
        "EXECUTING STREAMING",
        "OBSERVING SUCCESS: STOP",
        "COMPLETED SUCCESS",
    ];
    assert_eq!(places, table);
    assert_eq!(model.requests().len(), 1, "what is too long was not sent");
    let read = read(&model.last_request());
    assert_eq!(read[0].1, "Take notes.", "the system prompt stays");
    let kept: Vec<&str> =
        read.iter().map(|(_, text)| text.as_str()).filter(|text| text.starts_with("message")).collect();
    let recent: Vec<String> = (8..=21).map(|at| format!("message {at}")).collect();
    assert_eq!(kept, recent, "and the 14 messages at the end");
}

#[tokio::test]
async fn the_last_iteration_ends_the_run() {
    let (model, server, _host) = world(&[("calculator", "expression", json!("4"))]).await;
    for _ in 0..10 {
        model.asks("calculator", json!({ "expression": "2+2" }));
    }
    let result = server.run(in_session("s1", "r1", "Count on.")).await;
    assert_eq!(result.status(), RunStatus::Failed);
    assert_eq!(result.last_error.expect("a reason").code(), RunErrorCode::LimitIterations);
    assert_eq!(
        (model.requests().len(), server.get_run("r1").await.iterations),
        (10, 10),
        "10 if nothing is said"
    );
}

/// Plays a run whose model calls these tools one after another, and then answers. Returns the decisions and the answer.
async fn scenario(
    prompt: &str,
    calls: &[(&str, Value, &str)],
    report: &str,
) -> (Vec<ObserveDecision>, String) {
    let tools: Vec<(&str, &str, Value)> =
        calls.iter().map(|(name, _, output)| (*name, "of", json!(output))).collect();
    let (model, server, _host) = world(&tools).await;
    for (name, arguments, _) in calls {
        model.asks(name, arguments.clone());
    }
    model.says(report);
    let events = server.stream(in_session("s1", "r1", prompt)).await.rest().await;
    let decisions = events.iter().filter_map(|event| match &event.event {
        Some(Event::AssistantMessage(message)) => Some(message.decision()),
        _ => None,
    });
    let outputs = calls.iter().map(|(_, _, output)| *output);
    let read = read(&model.last_request());
    let tools = read.iter().filter(|(role, _)| role == "tool").map(|(_, text)| text.as_str());
    assert!(tools.eq(outputs), "the model reads each result: {read:?}");
    (decisions.collect(), answer(&server.run(in_session("s1", "r1", prompt)).await))
}

#[tokio::test]
async fn code_is_analysed_and_data_becomes_a_chart() {
    use ObserveDecision::{Continue, Stop};
    let calls = [
        ("code_analyzer", json!({ "of": "main.rs" }), "two loops without a bound"),
        ("search_docs", json!({ "of": "bounded loops" }), "bound every loop"),
    ];
    let prompt = "Analyse this code and find what may go wrong.";
    let report = "Two loops have no bound; give each a bound.";
    let (decisions, answer) = scenario(prompt, &calls, report).await;
    assert_eq!((decisions, answer.as_str()), (vec![Continue, Continue, Stop], report));

    let calls = [
        ("database_query", json!({ "of": "sales" }), "[3, 4, 5]"),
        ("calculator", json!({ "of": "mean of 3, 4, 5" }), "4"),
        ("chart_generator", json!({ "of": "3, 4, 5" }), "chart.svg"),
    ];
    let prompt = "Read the sales, compute their mean, and draw a chart.";
    let (decisions, answer) = scenario(prompt, &calls, "The mean is 4; see chart.svg.").await;
    let wanted = (vec![Continue, Continue, Continue, Stop], "The mean is 4; see chart.svg.");
    assert_eq!((decisions, answer.as_str()), wanted);
}

#[tokio::test]
async fn a_long_conversation_keeps_its_beginning_out_and_its_end_in() {
    let (model, server, _host) = world(&[]).await;
    let policy = || wire::ContextPolicy {
        max_messages: Some(20),
        keep_recent: Some(14),
        strategy: Some("truncate".to_owned()),
        ..Default::default()
    };
    for round in 1..=15 {
        model.says(&format!("answer {round}"));
        let input = wire::RunInput {
            context_policy: Some(policy()),
            ..in_session("s1", &format!("r{round}"), &format!("question {round}"))
        };
        assert_eq!(server.run(input).await.status(), RunStatus::Completed);
        let shown = read(&model.last_request());
        let spoken =
            shown.iter().filter(|(_, text)| text.starts_with("question") || text.starts_with("answer"));
        assert!(spoken.count() <= 20, "round {round}: {shown:?}");
        assert_eq!(shown.last().expect("messages").1, format!("question {round}"));
    }
    let entries = server.entries("s1").await;
    let messages = entries.iter().filter(|entry| entry.message.is_some()).count();
    let compactions = entries.iter().filter(|entry| entry.compaction.is_some()).count();
    assert_eq!(messages, 30, "the session keeps everything");
    assert!(compactions >= 1);
}
