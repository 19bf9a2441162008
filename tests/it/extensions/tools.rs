//! Hooks around tool calls and after runs.

use agentloop_tests::events::{name, results};
use agentloop_tests::host::Host;
use agentloop_tests::raw_host::{context, failure, memory};
use serde_json::json;
use wire::HookPoint::{PostRun, PostTool, PreTool};
use wire::extension_request::Request;
use wire::{RunStatus, ToolStatus};

use super::*;

async fn world(points: &[wire::HookPoint], required: bool) -> (Model, TestServer, Host, RawHost) {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let host = Host::start(&server).await;
    let extending = RawHost::extending(&server, "x", vec![hook("guard", points, required)]).await;
    (model, server, host, extending)
}

/// The next question about a tool call: its point, the call, and its result.
async fn asked(
    host: &mut RawHost,
) -> (wire::ExtensionRequest, wire::HookPoint, wire::ToolCall, Option<wire::ToolResult>) {
    let asked = host.asked().await;
    let Some(Request::Hook(request)) = asked.request.clone() else { panic!("{asked:?}") };
    let call = request.tool_call.clone().expect("a call");
    (asked, request.point(), call, request.tool_result)
}

fn arguments(json: &str) -> Response {
    Response::Hook(wire::HookVerdict { arguments_json: Some(json.to_owned()), ..Default::default() })
}

fn output(text: &str) -> Response {
    Response::Hook(wire::HookVerdict { output: Some(text.to_owned()), ..Default::default() })
}

#[tokio::test]
async fn a_hook_changes_the_arguments_before_and_the_output_after() {
    let (model, server, host, mut extending) = world(&[PreTool, PostTool], true).await;
    model.asks("weather", json!({ "city": "Bonn" })).says("sunny");
    let events = server.stream(extended(&["guard"], &[])).await;
    let (question, point, call, _) = asked(&mut extending).await;
    assert_eq!((point, call.arguments_json.as_str()), (PreTool, r#"{"city":"Bonn"}"#));
    extending.answers(&question, arguments(r#"{"city":"Ulm"}"#));
    let (question, point, call, result) = asked(&mut extending).await;
    let result = result.expect("a result");
    assert_eq!((point, call.arguments_json.as_str()), (PostTool, r#"{"city":"Ulm"}"#));
    assert_eq!((result.status(), result.output.as_str()), (ToolStatus::Succeeded, "sunny in Ulm"));
    assert_eq!(model.requests().len(), 1, "the result is not recorded yet");
    extending.answers(&question, output("sunny in [redacted]"));
    let seen = all(events).await;
    let changed = [
        told("guard", "pre_tool: changed the arguments", ""),
        told("guard", "post_tool: changed the output", ""),
    ];
    assert_eq!(applied(&seen), changed);
    assert_eq!(host.gate.calls(), [("weather".to_owned(), json!({ "city": "Ulm" }))]);
    let [result] = &results(&seen)[..] else { panic!("one result") };
    let shown = "[a hook changed the arguments to {\"city\":\"Ulm\"}]\nsunny in [redacted]";
    assert_eq!(result.output, shown);
    assert!(model.last_request().to_string().contains("[redacted]"));
    assert!(!serde_json::to_string(&model.requests()).expect("json").contains("sunny in Ulm"));
}

#[tokio::test]
async fn a_human_is_asked_about_what_the_hook_left() {
    let (model, server, _host, mut extending) = world(&[PreTool], true).await;
    model.asks("mail", json!({ "to": "bob" })).says("sent");
    let input = wire::RunInput { run_id: Some("r1".to_owned()), ..extended(&["guard"], &[]) };
    let mut events = server.stream(input).await;
    let (question, ..) = asked(&mut extending).await;
    extending.answers(&question, arguments(r#"{"to":"bob@example.org"}"#));
    events.wait_for_name("human_requested").await;
    let [pending] = &server.pending().await[..] else { panic!("one question") };
    assert_eq!(pending.arguments_json, r#"{"to":"bob@example.org"}"#);
    let decision = wire::decision::Decision::Approve(wire::Approve {});
    server.decide(&pending.request_id, decision).await.expect("decided");
    let seen = all(events).await;
    assert!(results(&seen)[0].output.ends_with("sent to bob@example.org"));
}

/// The open questions of a run come in one message. Hooks cannot make them larger than a message may be.
#[tokio::test]
async fn calls_that_hooks_make_too_large_together_are_rejected_and_the_others_can_be_answered() {
    const CALLS: usize = 5;
    // Each is within its own bound. Three fit into a message.
    const BYTES: usize = 1_000_000;
    let (model, server, _host, mut extending) = world(&[PreTool], true).await;
    let calls: Vec<_> = (0..CALLS).map(|_| ("mail", json!({ "to": "bob" }))).collect();
    model.asks_all(&calls).says("three of them");
    let input = wire::RunInput { run_id: Some("r1".to_owned()), ..extended(&["guard"], &[]) };
    let mut events = server.stream(input.clone()).await;
    for _ in 0..CALLS {
        let (question, ..) = asked(&mut extending).await;
        extending.answers(&question, arguments(&json!({ "to": "b".repeat(BYTES) }).to_string()));
    }
    events.wait_for_name("human_requested").await;
    let waits = server.run(input).await;
    assert_eq!((waits.status(), waits.pending.len()), (RunStatus::AwaitingHuman, 3));
    for question in &waits.pending {
        assert!(question.arguments_json.len() > BYTES);
        let deny = wire::decision::Decision::Deny(wire::Deny { message: "too long".to_owned() });
        server.decide(&question.request_id, deny).await.expect("decided");
    }
    let seen = all(events).await;
    let results = results(&seen);
    let with = |status| results.iter().filter(|result| result.status() == status).collect::<Vec<_>>();
    assert_eq!(with(ToolStatus::Denied).len(), 3);
    let rejected = with(ToolStatus::Rejected);
    assert_eq!(rejected.len(), CALLS - 3);
    for result in rejected {
        let words = "the hooks changed the arguments of this message's calls to more than 3145728 bytes";
        assert!(result.output.contains(words), "{:.300}", result.output);
    }
    assert_eq!(seen.last().map(|event| event.status()), Some(RunStatus::Completed));
}

#[tokio::test]
async fn a_veto_a_required_failure_and_wrong_arguments_keep_the_call_from_running() {
    let (model, server, host, mut extending) = world(&[PreTool], true).await;
    for (answer, words) in [
        (vetoed("not that city"), "vetoed by the hook guard: not that city"),
        (failure("no rules", false), "the required hook guard gave no verdict: it failed: no rules"),
        (arguments(r#"{"town":"Ulm"}"#), "the hook guard changed the arguments to invalid ones"),
    ] {
        model.asks("weather", json!({ "city": "Bonn" })).says("then not");
        let events = server.stream(extended(&["guard"], &[])).await;
        let (question, ..) = asked(&mut extending).await;
        extending.answers(&question, answer);
        let seen = all(events).await;
        let [result] = &results(&seen)[..] else { panic!("one result") };
        assert_eq!(result.status(), ToolStatus::Rejected);
        assert!(result.output.contains(words), "{}", result.output);
        assert_eq!(seen.last().map(|event| event.status()), Some(RunStatus::Completed));
    }
    assert_eq!(host.gate.calls(), []);
}

#[tokio::test]
async fn a_hook_that_is_not_required_and_fails_changes_nothing() {
    let (model, server, _host, mut extending) = world(&[PreTool, PostTool], false).await;
    model.asks("weather", json!({ "city": "Bonn" })).says("sunny");
    let events = server.stream(extended(&["guard"], &[])).await;
    for _ in 0..2 {
        let (question, ..) = asked(&mut extending).await;
        extending.answers(&question, failure("asleep", false));
    }
    let seen = all(events).await;
    assert_eq!(results(&seen)[0].output, "sunny in Bonn");
    let failed = ["pre_tool: failed", "post_tool: failed"];
    assert_eq!(applied(&seen), failed.map(|outcome| told("guard", outcome, "it failed: asleep")));
}

#[tokio::test]
async fn a_call_that_cannot_run_is_no_matter_for_hooks() {
    let (model, server, _host, _extending) = world(&[PreTool, PostTool], true).await;
    model.asks("nothing", json!({})).says("well");
    let seen = all(server.stream(extended(&["guard"], &[])).await).await;
    assert_eq!(applied(&seen), []);
    assert_eq!(results(&seen)[0].status(), ToolStatus::Rejected);
}

#[tokio::test]
async fn a_result_that_a_hook_has_not_judged_survives_a_restart() {
    let (model, mut server, _host, mut extending) = world(&[PostTool], true).await;
    model.asks("weather", json!({ "city": "Bonn" })).says("sunny");
    let input = wire::RunInput { run_id: Some("r1".to_owned()), ..extended(&["guard"], &[]) };
    let mut events = server.stream(input).await;
    asked(&mut extending).await;
    events.wait_for_name("tool_call_offered").await;
    drop((events, extending));
    server.restart().await;
    // The host that answered was never told that its answer is recorded: the call has no result yet.
    let _host = Host::start(&server).await;
    let mut extending = RawHost::extending(&server, "x", vec![hook("guard", &[PostTool], true)]).await;
    let (question, ..) = asked(&mut extending).await;
    extending.answers(&question, output("judged"));
    let seen = all(server.subscribe("r1", 0).await).await;
    assert_eq!(results(&seen)[0].output, "judged");
    assert_eq!(seen.iter().filter(|event| name(event) == "tool_call_result").count(), 1);
}

#[tokio::test]
async fn after_the_run_a_hook_is_told_how_it_ended() {
    let (model, server, _host, mut extending) = world(&[PostRun], false).await;
    model.says("Ulm");
    let result = server.run(extended(&["guard"], &[])).await;
    let question = extending.asked().await;
    let Some(Request::Hook(request)) = question.request.clone() else { panic!("{question:?}") };
    let told = request.run_result.expect("how it ended");
    assert_eq!((request.point, told.run_id.as_str()), (PostRun.into(), result.run_id.as_str()));
    assert_eq!((told.status(), told.usage), (RunStatus::Completed, result.usage));
    assert_eq!(told.final_assistant_message, result.final_assistant_message);
    extending.answers(&question, noted("filed"));
}

#[tokio::test]
async fn a_source_that_remembers_is_handed_the_run_until_it_confirms() {
    let model = Model::start().await;
    let mut server = TestServer::start(&model).await;
    let mut host = RawHost::extending(&server, "x", vec![memory("diary")]).await;
    model.says("Ulm");
    let events = server.stream(extended(&[], &["diary"])).await;
    let asked = host.asked().await;
    host.answers(&asked, context(&[("They live in Ulm.", "")]));
    all(events).await;
    let said = |asked: &wire::ExtensionRequest| match &asked.request {
        Some(Request::Remember(remember)) => remember.messages.iter().map(text).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    // Its own contributions are not among the messages that it is to remember.
    assert_eq!(said(&host.asked().await), ["which city?", "Ulm"]);
    drop(host);
    server.restart().await;
    let mut host = RawHost::extending(&server, "x", vec![memory("diary")]).await;
    let asked = host.asked().await;
    assert_eq!(said(&asked), ["which city?", "Ulm"]);
    host.answers(&asked, Response::Remembered(wire::Remembered {}));
}
