//! Metrics for Prometheus: exact counts of events, and no content of messages.

use agentloop_client::v1 as wire;
use agentloop_tests::host::Host;
use agentloop_tests::input::{in_session, named};
use agentloop_tests::model::{Answer, Model};
use agentloop_tests::server::TestServer;
use agentloop_tests::soon;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tonic::Code;
use wire::RunStatus;
use wire::decision::Decision;

pub(crate) const METRICS: &str = "[metrics]\nlisten = \"127.0.0.1:0\"";
const OVERFLOW: &str =
    "This model's maximum context length is 8192 tokens. However, your messages resulted in more.";

#[tokio::test]
async fn runs_are_counted_by_how_they_went() {
    let model = Model::start().await;
    let server = TestServer::with(&model, METRICS).await;
    let _host = Host::start(&server).await;
    // A provider that fails once, two tools that run and one of which fails, and a name that the model made up.
    model
        .fails(503)
        .asks_all(&[("weather", json!({ "city": "Ulm" })), ("fail", json!({ "why": "secret-why" }))]);
    model.asks("conjure_secret_name", json!({})).says("secret-answer");
    assert_eq!(server.run(named("secret-run", "secret-prompt")).await.status(), RunStatus::Completed);
    model.asks("flaky", json!({ "x": "y" })).says("done");
    assert_eq!(server.run(in_session("secret-session", "r2", "again")).await.status(), RunStatus::Completed);
    model.asks("mail", json!({ "to": "bob" })).says("done");
    let waits = server.run(named("r3", "write")).await;
    let approve = Decision::Approve(wire::Approve {});
    server.decide(&waits.pending[0].request_id, approve).await.expect("decided");
    server.subscribe("r3", 0).await.rest().await;
    model.fails(401);
    assert_eq!(server.run(named("r4", "fails")).await.status(), RunStatus::Failed);
    let scrape = server.scrape().await;
    scrape.assert(&[
        ("runs_started_total", 4.0),
        ("runs_finished_total{outcome=\"completed\",reason=\"none\"}", 3.0),
        ("runs_finished_total{outcome=\"failed\",reason=\"unauthorised\"}", 1.0),
        ("run_iterations_count", 4.0),
        ("run_iterations_bucket{le=\"1.0\"}", 1.0),
        ("run_iterations_bucket{le=\"2.0\"}", 3.0),
        ("run_iterations_sum", 8.0),
        ("run_duration_seconds_count", 4.0),
        ("model_calls_total{provider=\"fake\",model=\"m\",outcome=\"succeeded\"}", 7.0),
        ("model_calls_total{provider=\"fake\",model=\"m\",outcome=\"unavailable\"}", 1.0),
        ("model_calls_total{provider=\"fake\",model=\"m\",outcome=\"unauthorised\"}", 1.0),
        ("model_retries_total{provider=\"fake\",model=\"m\"}", 1.0),
        ("model_call_duration_seconds_count{provider=\"fake\",model=\"m\"}", 7.0),
        ("model_first_token_seconds_count{provider=\"fake\",model=\"m\"}", 7.0),
        ("tool_calls_total{tool=\"weather\",outcome=\"succeeded\"}", 1.0),
        ("tool_calls_total{tool=\"fail\",outcome=\"failed\"}", 1.0),
        ("tool_calls_total{tool=\"flaky\",outcome=\"succeeded\"}", 1.0),
        ("tool_calls_total{tool=\"mail\",outcome=\"succeeded\"}", 1.0),
        ("tool_calls_total{tool=\"unknown\",outcome=\"rejected\"}", 1.0),
        ("tool_retries_total{tool=\"flaky\"}", 1.0),
        ("tool_call_duration_seconds_count{tool=\"weather\"}", 1.0),
        ("human_requests_total{kind=\"approve\"}", 1.0),
        ("human_answers_total{decision=\"approve\"}", 1.0),
        ("human_wait_seconds_count", 1.0),
        ("tool_hosts", 1.0),
        ("tool_calls_in_flight", 0.0),
    ]);
    let (appends, commits) = (scrape.get("store_appends_total"), scrape.get("store_commits_total"));
    assert_eq!(scrape.get("append_duration_seconds_count"), appends);
    assert!(appends > 10.0 && commits > 10.0, "{appends} in {commits}");
    assert!(scrape.get("store_appended_bytes_total") > 100.0 * appends, "events have some size");
    for said in ["secret", "r2", "r3", "Ulm", "bob", "host-1"] {
        assert!(!scrape.text.contains(said), "{said} is in {}", scrape.text);
    }
}

#[tokio::test]
async fn tokens_and_compactions_are_counted() {
    let model = Model::start().await;
    let server = TestServer::with(&model, METRICS).await;
    for at in 0..6 {
        model.says(&format!("answer {at}"));
        server.run(in_session("s", &format!("chat-{at}"), "question")).await;
    }
    model.then(Answer::Fails(400, None, OVERFLOW.to_owned())).says("summed up").says("here you are");
    let policy = wire::ContextPolicy {
        strategy: Some("summarize".to_owned()),
        keep_recent: Some(4),
        ..Default::default()
    };
    let input = wire::RunInput { context_policy: Some(policy), ..in_session("s", "r", "and now?") };
    let result = server.run(input).await;
    assert_eq!(result.status(), RunStatus::Completed);
    let mut sums = (0, 0);
    for run in (0..6).map(|at| format!("chat-{at}")).chain(["r".to_owned()]) {
        let usage = server.get_run(&run).await.usage.expect("tokens were counted");
        sums = (sums.0 + usage.input_tokens, sums.1 + usage.output_tokens);
    }
    assert!(sums.0 > 0 && sums.1 > 0);
    server.scrape().await.assert(&[
        ("compactions_total{reason=\"overflow\",outcome=\"succeeded\"}", 1.0),
        ("model_calls_total{provider=\"fake\",model=\"m\",outcome=\"context_overflow\"}", 1.0),
        ("tokens_total{provider=\"fake\",model=\"m\",kind=\"input\"}", sums.0 as f64),
        ("tokens_total{provider=\"fake\",model=\"m\",kind=\"output\"}", sums.1 as f64),
    ]);
}

#[tokio::test]
async fn gauges_show_work_in_progress() {
    let model = Model::start().await;
    let server = TestServer::configured(&model, "max_live_runs = 1", METRICS).await;
    let host = Host::start(&server).await;
    model.asks("hold", json!({ "x": "y" })).says("done");
    let events = server.stream(named("r1", "hold it")).await;
    host.gate.began(1).await;
    let refused = server.try_run(named("r2", "no room")).await.expect_err("there is no room");
    assert_eq!(refused.code(), Code::ResourceExhausted);
    server.scrape().await.assert(&[
        ("live_runs", 1.0),
        ("tool_calls_in_flight", 1.0),
        ("runs_started_total", 1.0),
        ("refusals_total{reason=\"TOO_MANY_RUNS\"}", 1.0),
    ]);
    host.gate.open(1);
    events.rest().await;
    server.scrape().await.assert(&[
        ("tool_calls_in_flight", 0.0),
        ("runs_finished_total{outcome=\"completed\",reason=\"none\"}", 1.0),
    ]);
}

#[tokio::test]
async fn a_run_that_outlives_a_restart_is_counted_once() {
    let model = Model::start().await;
    let mut server = TestServer::with(&model, METRICS).await;
    let host = Host::start(&server).await;
    model.asks("mail", json!({ "to": "bob" })).says("done");
    let waits = server.run(named("r", "write")).await;
    host.leave().await;
    server.restart().await;
    let _host = Host::start(&server).await;
    let approve = Decision::Approve(wire::Approve {});
    server.decide(&waits.pending[0].request_id, approve).await.expect("decided");
    server.subscribe("r", 0).await.rest().await;
    server.scrape().await.assert(&[
        ("runs_started_total", 0.0),
        ("human_requests_total{kind=\"approve\"}", 0.0),
        ("human_answers_total{decision=\"approve\"}", 1.0),
        ("human_wait_seconds_count", 1.0),
        ("tool_calls_total{tool=\"mail\",outcome=\"succeeded\"}", 1.0),
        ("model_calls_total{provider=\"fake\",model=\"m\",outcome=\"succeeded\"}", 1.0),
        ("runs_finished_total{outcome=\"completed\",reason=\"none\"}", 1.0),
    ]);
}

/// The status line and body of `GET /metrics` with these headers.
async fn scraped_with(server: &TestServer, headers: &str) -> (String, String) {
    let address = server.metrics_address();
    let mut stream = tokio::net::TcpStream::connect(address).await.expect("someone listens");
    let request = format!("GET /metrics HTTP/1.1\r\n{headers}connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("the request is taken");
    let mut answer = String::new();
    soon(stream.read_to_string(&mut answer)).await.expect("an answer in text");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    (head.lines().next().unwrap_or_default().to_owned(), body.to_owned())
}

#[tokio::test]
async fn the_endpoint_answers_to_its_names_and_no_other() {
    let model = Model::start().await;
    let server = TestServer::with(&model, METRICS).await;
    for (headers, status, words) in [
        ("host: localhost:9464\r\n", "200", "agentloop_"),
        ("host: 127.0.0.1\r\norigin: http://localhost:3000\r\n", "200", "agentloop_"),
        ("host: evil.example:9464\r\n", "421", "metrics.allowed_hosts"),
        ("host: 10.0.0.1\r\n", "421", "metrics.allowed_hosts"),
        ("host: localhost\r\nhost: evil.example\r\n", "4", ""),
        ("host: localhost\r\norigin: http://evil.example\r\n", "403", "metrics.allowed_origins"),
        ("host: localhost\r\norigin: null\r\n", "403", "metrics.allowed_origins"),
    ] {
        let (line, body) = scraped_with(&server, headers).await;
        assert!(line.starts_with(&format!("HTTP/1.1 {status}")), "{line} for {headers}");
        assert!(body.contains(words) && (status == "200" || !body.contains("agentloop_runs")), "{body}");
    }
    let lists =
        format!("{METRICS}\nallowed_hosts = [\"*.internal\"]\nallowed_origins = [\"https://g.internal\"]");
    let server = TestServer::with(&model, &lists).await;
    let (line, _) = scraped_with(&server, "host: a.internal:1\r\norigin: https://g.internal\r\n").await;
    assert!(line.starts_with("HTTP/1.1 200"), "{line}");
    let (line, _) = scraped_with(&server, "host: localhost\r\n").await;
    assert!(line.starts_with("HTTP/1.1 421"), "{line}");
}
