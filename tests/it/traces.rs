//! Traces and metrics that an OpenTelemetry collector gets, and the trace parents that tool hosts get.

use agentloop_client::v1 as wire;
use agentloop_tests::collector::{Collector, Span, is_error, number_of, text_of};
use agentloop_tests::host::Host;
use agentloop_tests::input::named;
use agentloop_tests::model::Model;
use agentloop_tests::raw_host::{RawHost, declared, result_of};
use agentloop_tests::server::TestServer;
use agentloop_tests::soon;
use serde_json::json;
use wire::RunStatus;
use wire::connect_request::Frame;
use wire::decision::Decision;

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The only span of this name.
#[track_caller]
fn only(collector: &Collector, name: &str) -> Span {
    let spans = collector.spans();
    match spans.get(name).map(Vec::as_slice) {
        Some([span]) => span.clone(),
        other => panic!("{name}: {other:?} of {:?}", spans.keys()),
    }
}

async fn run_with_parent(server: &TestServer, input: wire::RunInput, parent: &str) -> wire::RunResult {
    let mut request = tonic::Request::new(wire::RunRequest { input: Some(input) });
    request.metadata_mut().insert("traceparent", parent.parse().expect("ASCII"));
    let response = soon(server.agent_loop().run(request)).await.expect("the call succeeds");
    response.into_inner().result.expect("a result")
}

#[tokio::test]
async fn a_run_is_a_trace_of_its_model_and_tool_calls() {
    let (model, collector) = (Model::start().await, Collector::start().await);
    let mut server = TestServer::with(&model, &collector.section()).await;
    let host = Host::start(&server).await;
    model.fails(503).asks_all(&[("weather", json!({ "city": "Ulm" })), ("fail", json!({ "why": "secret" }))]);
    model.says("secret answer");
    let result = server.run(named("r1", "secret prompt")).await;
    assert_eq!(result.status(), RunStatus::Completed);
    let usage = server.get_run("r1").await.usage.expect("tokens were counted");
    drop(host);
    server.stop().await;
    let run = only(&collector, "invoke_agent default");
    assert_eq!(run.parent_span_id, Vec::<u8>::new());
    assert_eq!(text_of(&run, "gen_ai.operation.name").as_deref(), Some("invoke_agent"));
    assert_eq!(text_of(&run, "gen_ai.conversation.id"), Some(result.session_id));
    assert_eq!(number_of(&run, "gen_ai.usage.input_tokens"), i64::try_from(usage.input_tokens).ok());
    assert_eq!(number_of(&run, "gen_ai.usage.output_tokens"), i64::try_from(usage.output_tokens).ok());
    let chats = &collector.spans()["chat m"];
    assert_eq!(chats.iter().map(is_error).collect::<Vec<_>>(), [true, false, false]);
    assert_eq!(text_of(&chats[0], "error.type").as_deref(), Some("unavailable"));
    assert_eq!(text_of(&chats[1], "gen_ai.provider.name").as_deref(), Some("fake"));
    assert!(number_of(&chats[1], "gen_ai.usage.input_tokens").is_some_and(|tokens| tokens > 0));
    let (weather, fail) = (only(&collector, "execute_tool weather"), only(&collector, "execute_tool fail"));
    assert_eq!((is_error(&weather), is_error(&fail)), (false, true));
    assert_eq!(text_of(&fail, "error.type").as_deref(), Some("failed"));
    for span in chats.iter().chain([&weather, &fail]) {
        assert_eq!((&span.trace_id, &span.parent_span_id), (&run.trace_id, &run.span_id), "{}", span.name);
        assert!(run.start_time_unix_nano <= span.start_time_unix_nano, "{}", span.name);
        assert!(span.start_time_unix_nano <= span.end_time_unix_nano, "{}", span.name);
        assert!(span.end_time_unix_nano <= run.end_time_unix_nano, "{}", span.name);
    }
    assert!(chats[1].end_time_unix_nano <= weather.start_time_unix_nano);
    assert!(weather.end_time_unix_nano <= chats[2].start_time_unix_nano);
    let all = format!("{:?}", collector.spans());
    assert!(!all.contains("secret") && !all.contains("Ulm"), "{all}");
    assert!(collector.services().iter().all(|name| name == "agentloop"));
    for metric in
        ["gen_ai.client.operation.duration", "gen_ai.client.token.usage", "gen_ai.execute_tool.duration"]
    {
        assert!(collector.metrics().iter().any(|name| name == metric), "{metric}: {:?}", collector.metrics());
    }
}

#[tokio::test]
async fn the_callers_trace_goes_through_to_the_host() {
    let (model, collector) = (Model::start().await, Collector::start().await);
    let mut server = TestServer::with(&model, &collector.section()).await;
    let mut host = RawHost::welcomed(&server, "h1", vec![declared("t", wire::EffectClass::ReadOnly)]).await;
    model.asks("t", json!({})).says("done");
    let running = run_with_parent(&server, named("r1", "go"), PARENT);
    let working = async {
        let call = host.take_call().await;
        host.send(Frame::CallResult(result_of(&call, "fine")));
        call.traceparent
    };
    let (result, told) = tokio::join!(running, working);
    assert_eq!(result.status(), RunStatus::Completed);
    server.stop().await;
    let (run, call) = (only(&collector, "invoke_agent default"), only(&collector, "execute_tool t"));
    assert_eq!(hex(&run.trace_id), &PARENT[3..35]);
    assert_eq!(hex(&run.parent_span_id), &PARENT[36..52]);
    assert_eq!(told, format!("00-{}-{}-01", hex(&run.trace_id), hex(&call.span_id)));
}

#[tokio::test]
async fn without_a_collector_the_host_is_told_of_the_callers_span() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let mut host = RawHost::welcomed(&server, "h1", vec![declared("t", wire::EffectClass::ReadOnly)]).await;
    for (run, parent, expected) in [("r1", PARENT, PARENT), ("r2", "no traceparent", "")] {
        model.asks("t", json!({})).says("done");
        let running = run_with_parent(&server, named(run, "go"), parent);
        let working = async {
            let call = host.take_call().await;
            host.send(Frame::CallResult(result_of(&call, "fine")));
            call.traceparent
        };
        let (_, told) = tokio::join!(running, working);
        assert_eq!(told, expected);
    }
}

#[tokio::test]
async fn a_caller_who_records_nothing_is_heeded() {
    let (model, collector) = (Model::start().await, Collector::start().await);
    let mut server = TestServer::with(&model, &collector.section()).await;
    model.says("unseen").says("seen");
    run_with_parent(&server, named("r1", "go"), &PARENT.replace("-01", "-00")).await;
    server.run(named("r2", "go")).await;
    server.stop().await;
    let run = only(&collector, "invoke_agent default");
    assert_eq!(text_of(&run, "agentloop.run.id").as_deref(), Some("r2"));
}

#[tokio::test]
async fn a_trace_survives_a_restart() {
    let (model, collector) = (Model::start().await, Collector::start().await);
    let mut server = TestServer::with(&model, &collector.section()).await;
    let host = Host::start(&server).await;
    model.asks("mail", json!({ "to": "bob" })).says("done");
    let waits = server.run(named("r", "write")).await;
    host.leave().await;
    server.restart().await;
    let _host = Host::start(&server).await;
    let approve = Decision::Approve(wire::Approve {});
    server.decide(&waits.pending[0].request_id, approve).await.expect("decided");
    server.subscribe("r", 0).await.rest().await;
    server.stop().await;
    let run = only(&collector, "invoke_agent default");
    let chats = &collector.spans()["chat m"];
    assert_eq!(chats.len(), 2, "one before the restart and one after");
    let (mail, human) = (only(&collector, "execute_tool mail"), only(&collector, "await_human"));
    assert_eq!(text_of(&human, "agentloop.human.decision").as_deref(), Some("approve"));
    for span in chats.iter().chain([&mail, &human]) {
        assert_eq!((&span.trace_id, &span.parent_span_id), (&run.trace_id, &run.span_id), "{}", span.name);
        assert!(run.start_time_unix_nano <= span.start_time_unix_nano, "{}", span.name);
    }
}

#[tokio::test]
async fn content_is_sent_only_if_it_is_turned_on() {
    let (model, collector) = (Model::start().await, Collector::start().await);
    let section = format!("{}\ncapture_content = true\nservice_name = \"here\"", collector.section());
    let mut server = TestServer::with(&model, &section).await;
    let host = Host::start(&server).await;
    model.asks("weather", json!({ "city": "Ulm" })).says("bring a hat");
    server.run(named("r", "how is it there?")).await;
    drop(host);
    server.stop().await;
    let text = |name: &str, key: &str| text_of(&only(&collector, name), key).expect("the attribute");
    assert!(text("invoke_agent default", "gen_ai.input.messages").contains("how is it there?"));
    assert_eq!(text("execute_tool weather", "gen_ai.tool.call.arguments"), r#"{"city":"Ulm"}"#);
    assert_eq!(text("execute_tool weather", "gen_ai.tool.call.result"), "sunny in Ulm");
    let said = text_of(&collector.spans()["chat m"][1], "gen_ai.output.messages").expect("the answer");
    assert!(said.contains("bring a hat") && said.contains("\"finish_reason\":\"stop\""), "{said}");
    assert!(collector.services().iter().all(|name| name == "here"));
}

#[tokio::test]
async fn a_collector_that_is_away_holds_nothing_up() {
    let model = Model::start().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    let section = format!("[telemetry]\notlp_endpoint = \"http://{address}\"");
    let mut server = TestServer::with(&model, &section).await;
    model.says("done");
    assert_eq!(server.run(named("r", "go")).await.status(), RunStatus::Completed);
    server.stop().await;
}
