//! `Run`: to the end, to a human, through failures and limits.

use agentloop_client::v1 as wire;
use agentloop_tests::errors::assert_refused;
use agentloop_tests::events::{name, text};
use agentloop_tests::host::Host;
use agentloop_tests::input::{in_session, named, prompt};
use agentloop_tests::model::{Answer, Model};
use agentloop_tests::server::TestServer;
use agentloop_tests::soon;
use serde_json::json;
use tonic::Code;
use wire::{RunErrorCode, RunStatus};

#[tokio::test]
async fn returns_at_the_end_with_the_answer_and_what_it_cost() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    model.says("hello there");
    let result = server.run(prompt("hi")).await;
    assert_eq!(result.status(), RunStatus::Completed);
    assert_eq!(text(result.final_assistant_message.as_ref().expect("an answer")), "hello there");
    assert_eq!((result.finish_reason(), &result.last_error), (wire::FinishReason::Stop, &None));
    let usage = result.usage.expect("usage");
    assert_eq!((usage.input_tokens, usage.output_tokens), (10, 5));
    assert_eq!(server.get_run(&result.run_id).await.last_seq, result.last_seq);
}

/// A caller of a typed answer sees that it has a part only.
#[tokio::test]
async fn an_answer_that_reached_its_limit_is_told_as_one() {
    let model = Model::start().await;
    let mut server = TestServer::start(&model).await;
    let speech = model.speaks();
    speech.say("{\"city\": \"Par");
    speech.end_at_limit();
    let result = server.run(named("r1", "Where?")).await;
    assert_eq!((result.status(), result.finish_reason()), (RunStatus::Completed, wire::FinishReason::Length));
    assert_eq!(server.get_run("r1").await.finish_reason(), wire::FinishReason::Length);
    server.restart().await;
    assert_eq!(server.run(named("r1", "Where?")).await, result);
}

#[tokio::test]
async fn returns_when_a_human_is_needed_and_waits_on_after_the_decision() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let host = Host::start(&server).await;
    model.asks("mail", json!({ "to": "bob" })).says("it is sent");
    let input = named("r1", "write to bob");
    let waits = server.run(input.clone()).await;
    assert_eq!(waits.status(), RunStatus::AwaitingHuman);
    assert_eq!(waits.final_assistant_message, None);
    assert_eq!(waits.finish_reason(), wire::FinishReason::Unspecified);
    let [question] = &waits.pending[..] else { panic!("one question: {waits:?}") };
    assert_eq!((question.tool.as_str(), question.arguments_json.as_str()), ("mail", r#"{"to":"bob"}"#));
    assert_eq!(server.run(input.clone()).await, waits, "nothing has changed");
    assert_eq!(host.gate.count("mail"), 0);

    let decision = wire::decision::Decision::Approve(wire::Approve {});
    server.decide(&question.request_id, decision).await.expect("decided");
    let done = server.run(input).await;
    assert_eq!(done.status(), RunStatus::Completed);
    assert_eq!(done.pending, []);
    assert_eq!(host.gate.calls(), [("mail".to_owned(), json!({ "to": "bob" }))]);
}

async fn fails_with(answers: Vec<Answer>, code: RunErrorCode, http_status: u32) -> wire::RunResult {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let calls = answers.len();
    for answer in answers {
        model.then(answer);
    }
    let result = server.run(prompt("hi")).await;
    let error = result.last_error.clone().expect("an error");
    assert_eq!((result.status(), error.code(), error.http_status), (RunStatus::Failed, code, http_status));
    assert_eq!(model.requests().len(), calls);
    assert!(!error.message.is_empty());
    result
}

fn failing(status: u16) -> Answer {
    Answer::Fails(status, None, "the provider's words".to_owned())
}

#[tokio::test]
async fn errors_that_retries_cannot_help_fail_at_once() {
    for (status, code) in [
        (400, RunErrorCode::ModelBadRequest),
        (401, RunErrorCode::ModelUnauthorized),
        (403, RunErrorCode::ModelUnauthorized),
        (404, RunErrorCode::ModelBadRequest),
    ] {
        let result = fails_with(vec![failing(status)], code, u32::from(status)).await;
        assert!(result.last_error.expect("an error").message.contains("the provider's words"), "{status}");
    }
}

#[tokio::test]
async fn a_failing_provider_is_tried_again_and_then_the_run_fails() {
    let three = || vec![failing(500), failing(503), failing(500)];
    fails_with(three(), RunErrorCode::ModelUnavailable, 500).await;
    let three = vec![failing(429), failing(429), failing(429)];
    fails_with(three, RunErrorCode::ModelRateLimited, 429).await;
}

#[tokio::test]
async fn a_cut_stream_is_a_lost_connection() {
    let cut = || Answer::Cut("he".to_owned());
    fails_with(vec![cut(), cut(), cut()], RunErrorCode::ModelConnection, 0).await;
}

#[tokio::test]
async fn a_stream_that_is_none_is_malformed() {
    let half =
        || Answer::Raw(b"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"he\"}}]}\n\n".to_vec());
    fails_with(vec![half(), half(), half()], RunErrorCode::ModelMalformed, 0).await;
    let nonsense = || Answer::Raw(b"data: {nonsense\n\n".to_vec());
    fails_with(vec![nonsense(), nonsense(), nonsense()], RunErrorCode::ModelMalformed, 0).await;
}

#[tokio::test]
async fn retry_after_is_honoured() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    model.then(Answer::Fails(429, Some(1), "slow down".to_owned())).says("done");
    let events = server.stream(prompt("hi")).await.rest().await;
    let failed = events.iter().find_map(|event| match &event.event {
        Some(wire::run_event::Event::ModelCallFailed(failed)) => Some((event.at, failed.clone())),
        _ => None,
    });
    let (at, failed) = failed.expect("the first try failed");
    assert_eq!(failed.error.expect("why").code(), RunErrorCode::ModelRateLimited);
    let (at, again) = (at.expect("a time"), failed.retry_at.expect("another try"));
    let waited = (again.seconds - at.seconds) * 1_000 + i64::from(again.nanos - at.nanos) / 1_000_000;
    assert!((1_000..1_500).contains(&waited), "waits for {waited} ms");
    assert_eq!(events.last().map(wire::RunEvent::status), Some(RunStatus::Completed));
}

fn pausing(run: &str) -> wire::RunInput {
    wire::RunInput {
        retry_policy: Some(wire::RetryPolicy {
            max_retries: Some(0),
            pause_when_exhausted: Some(true),
            ..Default::default()
        }),
        ..named(run, "hi")
    }
}

#[tokio::test]
async fn a_run_whose_model_stays_away_pauses_and_is_resumed() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    model.fails(500).says("back again");
    let paused = server.run(pausing("r1")).await;
    assert_eq!(paused.status(), RunStatus::Paused);
    assert_eq!(paused.last_error.expect("why").code(), RunErrorCode::ModelUnavailable);
    assert_eq!(server.get_run("r1").await.waiting_on.expect("waits").kind(), wire::WaitKind::Operator);

    let resume = |request: &str| wire::ResumeRunRequest {
        run_id: "r1".to_owned(),
        request_id: request.to_owned(),
        resumed_by: "ada".to_owned(),
    };
    soon(server.agent_loop().resume_run(resume("q1"))).await.expect("resumed");
    let done = server.run(pausing("r1")).await;
    assert_eq!(done.status(), RunStatus::Completed);
    soon(server.agent_loop().resume_run(resume("q1"))).await.expect("the same again is confirmed");
    let other = soon(server.agent_loop().resume_run(resume("q2"))).await;
    assert_refused(other, Code::FailedPrecondition, "WRONG_STATE");
}

fn limited(limits: wire::LoopLimits) -> wire::RunInput {
    wire::RunInput { loop_limits: Some(limits), ..prompt("what is the weather?") }
}

/// A model that asks for the weather again and again, each time somewhere else.
async fn never_done() -> (Model, TestServer, Host) {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let host = Host::start(&server).await;
    model.answers(|request| {
        let city = request["messages"].as_array().map_or(0, Vec::len);
        Answer::Asks(vec![("weather".to_owned(), json!({ "city": format!("city {city}") }))])
    });
    (model, server, host)
}

#[track_caller]
fn assert_limit(result: &wire::RunResult, code: RunErrorCode) {
    let error = result.last_error.as_ref().expect("an error");
    assert_eq!((result.status(), error.code()), (RunStatus::Failed, code), "{}", error.message);
}

#[tokio::test]
async fn limits_end_a_run_with_a_code_that_names_them() {
    let (model, server, host) = never_done().await;
    let none = wire::LoopLimits::default();

    let limits = wire::LoopLimits { max_iterations: Some(2), ..none };
    let result = server.run(limited(limits)).await;
    assert_limit(&result, RunErrorCode::LimitIterations);
    assert_eq!(server.get_run(&result.run_id).await.iterations, 2);

    let limits = wire::LoopLimits { max_tool_rounds: Some(1), ..none };
    assert_limit(&server.run(limited(limits)).await, RunErrorCode::LimitToolRounds);

    let limits = wire::LoopLimits { max_tokens: Some(20), ..none };
    assert_limit(&server.run(limited(limits)).await, RunErrorCode::LimitTokens);

    let policy = wire::ToolPolicy { max_calls_per_run: Some(2), ..Default::default() };
    let before = host.gate.count("weather");
    let input = wire::RunInput { tool_policy: Some(policy), ..prompt("go") };
    assert_limit(&server.run(input).await, RunErrorCode::LimitToolCalls);
    assert_eq!(host.gate.count("weather") - before, 2);

    model.answers(|_| Answer::Asks(vec![("weather".to_owned(), json!({ "city": "Rome" }))]));
    let limits = wire::LoopLimits { max_repeated_calls: Some(2), ..none };
    assert_limit(&server.run(limited(limits)).await, RunErrorCode::LimitRepeatedCalls);

    model.answers(|_| Answer::Asks(vec![("fail".to_owned(), json!({ "why": "broken" }))]));
    let limits = wire::LoopLimits { max_consecutive_failures: Some(3), ..none };
    assert_limit(&server.run(limited(limits)).await, RunErrorCode::LimitConsecutiveFailures);
}

/// An answer whose end has no usage, as some servers leave it out, or has no count of the request.
fn uncounted(usage: &str) -> Answer {
    let chunk = |json: String| format!("data: {json}\n\n");
    let call = r#"{"index":0,"id":"c","type":"function","function":{"name":"weather","arguments":"{\"city\":\"Rome\"}"}}"#;
    let said = chunk(format!(
        r#"{{"choices":[{{"index":0,"delta":{{"tool_calls":[{call}]}},"finish_reason":null}}]}}"#
    ));
    let end =
        chunk(format!(r#"{{"choices":[{{"index":0,"delta":{{}},"finish_reason":"tool_calls"}}]{usage}}}"#));
    Answer::Raw(format!("{said}{end}data: [DONE]\n\n").into_bytes())
}

#[tokio::test]
async fn a_limit_on_tokens_holds_where_the_model_does_not_count() {
    let (model, server, _host) = never_done().await;
    model.answers(|_| uncounted(""));
    let limits = wire::LoopLimits { max_tokens: Some(500), max_iterations: Some(90), ..Default::default() };
    let result = server.run(limited(limits)).await;
    assert_limit(&result, RunErrorCode::LimitTokens);
    let usage = result.usage.expect("what was used");
    assert!(usage.input_tokens > 0 && usage.output_tokens > 0, "{usage:?}");

    // Without a limit nobody estimates: what is shown is what the model said.
    let limits = wire::LoopLimits { max_iterations: Some(1), ..Default::default() };
    let result = server.run(limited(limits)).await;
    assert_limit(&result, RunErrorCode::LimitIterations);
    assert_eq!(result.usage.unwrap_or_default().input_tokens, 0);
}

#[tokio::test]
async fn a_run_that_takes_too_long_ends_wherever_it_is() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let mut speech = model.speaks();
    let limits = wire::LoopLimits {
        max_run_duration: Some(prost_types::Duration { seconds: 0, nanos: 100_000_000 }),
        ..Default::default()
    };
    assert_limit(&server.run(limited(limits)).await, RunErrorCode::LimitDuration);
    speech.hung_up().await;
}

#[tokio::test]
async fn a_request_may_name_another_model() {
    let (model, other) = (Model::start().await, Model::start().await);
    let more = format!("[providers.other]\nkind = \"openai\"\nbase_url = \"{}\"\n", other.base_url());
    let server = TestServer::with(&model, &more).await;
    other.says("from elsewhere");
    model.says("from here");
    let named = wire::RunInput { model: Some("other/o".to_owned()), ..in_session("s", "r1", "hi") };
    server.run(named).await;
    assert_eq!(other.last_request()["model"], "o");
    server.run(in_session("s", "r2", "hi")).await;
    assert_eq!(model.last_request()["model"], "m", "the next run has the agent's model again");
    assert_eq!(other.requests().len(), 1);
}

#[tokio::test]
async fn events_name_the_turn_that_they_belong_to() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    model.asks("nothing", json!({})).says("well");
    let mut events = server.stream(named("r1", "hi")).await;
    events.wait_for_name("run_finished").await;
    let turn = |wanted: &str| -> Vec<String> {
        let fitting = events.seen.iter().filter(|event| name(event) == wanted);
        fitting.map(|event| event.turn_id.clone()).collect()
    };
    assert_eq!(turn("run_started"), [""]);
    assert_eq!(turn("assistant_message"), ["r1.1", "r1.2"]);
    assert_eq!(turn("tool_call_result"), ["r1.1"], "a call belongs to the turn that asked for it");
}
