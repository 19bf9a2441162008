//! The session processor: a prompt becomes messages with parts, everything is told as it happens, and the rows say the same
//! afterwards.

use agentloop_client::v1 as wire;
use agentloop_tests::events::{results, text};
use agentloop_tests::host::Host;
use agentloop_tests::input::in_session;
use agentloop_tests::model::{Answer, Model};
use agentloop_tests::server::TestServer;
use agentloop_tests::soon;
use serde_json::json;
use tonic::Streaming;
use wire::run_event::Event;
use wire::subscribe_session_response::Item;
use wire::{FinishReason, RunErrorCode, RunStatus, TodoStatus, ToolStatus};

use super::{answering, offered, read, said, tool};

/// The name that the design gives to an event, with the state of the part that it is about. Pieces of text stand for
/// themselves, so that several in a row are one line.
fn told(event: &wire::RunEvent) -> Option<String> {
    Some(match event.event.as_ref()? {
        Event::InputMessage(_) => "message created: user".to_owned(),
        Event::ModelCallStarted(_) => "message created: assistant".to_owned(),
        Event::ModelDelta(delta) => match delta.delta {
            Some(wire::model_delta::Delta::Text(_)) => "part delta".to_owned(),
            _ => return None,
        },
        Event::AssistantMessage(message) => {
            let finish = message.finish_reason();
            format!("message updated: {}", finish.as_str_name().trim_start_matches("FINISH_REASON_"))
        }
        Event::ToolCallProposed(call) => format!("part updated: {} pending, {:?}", call.tool, call.title),
        Event::ToolCallAccepted(_) => "part updated: running".to_owned(),
        Event::ToolCallResult(result) => {
            assert!(result.duration.is_some());
            let result = result.result.as_ref()?;
            let status = result.status();
            format!("part updated: {}", status.as_str_name().trim_start_matches("TOOL_STATUS_"))
        }
        Event::TodosUpdated(_) => "todos updated".to_owned(),
        Event::RunFinished(end) => match &end.error {
            Some(error) => format!("session error: {}", error.code().as_str_name()),
            None => "session idle".to_owned(),
        },
        _ => return None,
    })
}

async fn created(server: &TestServer) -> Streaming<wire::SubscribeSessionResponse> {
    let request = wire::CreateSessionRequest { session_id: Some("s1".to_owned()), ..Default::default() };
    soon(server.sessions().create_session(request)).await.expect("created");
    let request = wire::SubscribeSessionRequest { session_id: "s1".to_owned(), ..Default::default() };
    let mut bus = soon(server.sessions().subscribe_session(request)).await.expect("subscribed").into_inner();
    loop {
        let message = soon(bus.message()).await.expect("it goes on").expect("it goes on");
        if let Some(Item::Synced(_)) = message.item {
            return bus;
        }
    }
}

/// Everything that the bus tells up to the end of this run.
async fn until_end(bus: &mut Streaming<wire::SubscribeSessionResponse>, run: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    loop {
        let message = soon(bus.message()).await.expect("it goes on").expect("it goes on");
        let Some(Item::Event(event)) = message.item else { continue };
        if let Some(line) = told(&event)
            && lines.last() != Some(&line)
        {
            lines.push(line);
        }
        if event.run_id == run && matches!(event.event, Some(Event::RunFinished(_))) {
            return lines;
        }
    }
}

/// Everything that the bus tells up to this line.
async fn until_line(bus: &mut Streaming<wire::SubscribeSessionResponse>, wanted: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    while lines.last().is_none_or(|line| line != wanted) {
        let message = soon(bus.message()).await.expect("it goes on").expect("it goes on");
        let Some(Item::Event(event)) = message.item else { continue };
        if let Some(line) = told(&event)
            && lines.last() != Some(&line)
        {
            lines.push(line);
        }
    }
    lines
}

async fn session(server: &TestServer) -> wire::Session {
    let request = wire::GetSessionRequest { session_id: "s1".to_owned() };
    soon(server.sessions().get_session(request))
        .await
        .expect("there")
        .into_inner()
        .session
        .expect("a session")
}

#[tokio::test]
async fn a_prompt_is_told_as_it_goes_on_and_read_back_afterwards() {
    let model = Model::start().await;
    let mut server = TestServer::start(&model).await;
    let weather = answering(tool("weather", "city").title("Weather in {city}"), &json!("sunny"));
    let _host = Host::serving(&server, "host-1", vec![weather]).await;
    let mut bus = created(&server).await;
    let before = session(&server).await;

    let mut speech = model.speaks();
    let prompt = wire::RunInput {
        agent: Some("default".to_owned()),
        model: Some("fake/other".to_owned()),
        tool_policy: Some(wire::ToolPolicy { todos: Some(true), ..Default::default() }),
        ..in_session("s1", "r1", "How is Beijing?")
    };
    let mut events = server.stream(prompt).await;
    assert_eq!(speech.asked().await["model"], "other", "a prompt may name its model");
    // From here on the bus is told what the model says, piece by piece.
    let mut lines = until_line(&mut bus, "message created: assistant").await;
    speech.say("Let me ");
    speech.say("look.");
    speech.ask(0, "weather", &json!({ "city": "Beijing" }));
    speech.ask(1, "weather", &json!({ "town": "Beijing" }));
    speech.end_with_calls();
    let todo = json!({ "id": "a", "content": "Pack", "status": "in_progress" });
    model.asks("update_todos", json!({ "todos": [todo] })).says("Sunny.");
    events.wait_for_name("run_finished").await;

    lines.extend(until_end(&mut bus, "r1").await);
    let table = [
        "message created: user",
        "message created: assistant",
        "part delta",
        "message updated: TOOL_CALLS",
        "part updated: weather pending, \"Weather in Beijing\"",
        "part updated: REJECTED",
        "part updated: running",
        "part updated: SUCCEEDED",
        "message created: assistant",
        "message updated: TOOL_CALLS",
        "todos updated",
        "part updated: SUCCEEDED",
        "message created: assistant",
        "part delta",
        "message updated: STOP",
        "session idle",
    ];
    let lines: Vec<&str> =
        lines.iter().map(String::as_str).filter(|line| !line.contains("update_todos")).collect();
    assert_eq!(lines, table);

    // The rows: session, messages with their parts, to-do list. All of it stays over a restart.
    server.restart().await;
    let after = session(&server).await;
    let time = |at: &Option<prost_types::Timestamp>| at.as_ref().map(|at| (at.seconds, at.nanos));
    assert!(time(&after.updated_at) > time(&before.updated_at), "the session was touched");
    assert_eq!((after.entry_count, after.preview.as_str()), (7, "How is Beijing?"));
    let todos: Vec<_> = after.todos.iter().map(|item| (item.content.as_str(), item.status())).collect();
    assert_eq!(todos, [("Pack", TodoStatus::InProgress)]);

    let entries = server.entries("s1").await;
    let roles: Vec<wire::Role> =
        entries.iter().map(|entry| entry.message.as_ref().expect("a message").role()).collect();
    use wire::Role::{Assistant, Tool, User};
    assert_eq!(roles, [User, Assistant, Tool, Tool, Assistant, Tool, Assistant]);
    let answer = &entries[1];
    assert_eq!((answer.finish_reason(), answer.model.as_str()), (FinishReason::ToolCalls, "fake/other"));
    let tokens = answer.usage.expect("tokens");
    assert_eq!((tokens.input_tokens, tokens.output_tokens), (10, 5));
    assert!(answer.at.is_some() && answer.duration.is_some());
    let parts = &answer.message.as_ref().expect("a message").parts;
    let Some(wire::part::Content::ToolCall(call)) = &parts[1].content else { panic!("{parts:?}") };
    assert_eq!((call.name.as_str(), call.call_id.as_str()), ("weather", "r1/1.0"));
    let result = |at: usize| match &entries[at].message.as_ref().expect("a message").parts[0].content {
        Some(wire::part::Content::ToolResult(result)) => result.clone(),
        other => panic!("{other:?}"),
    };
    let mut results = [2, 3].map(|at| (result(at).call_id, result(at).status()));
    results.sort_by(|a, b| a.0.cmp(&b.0));
    let wanted = [(call.call_id.as_str(), ToolStatus::Succeeded), ("r1/1.1", ToolStatus::Rejected)];
    assert_eq!(results.each_ref().map(|(id, status)| (id.as_str(), *status)), wanted);
    let ran = [2, 3].into_iter().find(|at| result(*at).status() == ToolStatus::Succeeded).expect("one ran");
    assert!(entries[ran].duration.is_some(), "a tool part has its time");
    assert_eq!(entries[6].finish_reason(), FinishReason::Stop);

    // The next prompt turns the rows into the messages of the model.
    model.says("You are welcome.");
    server.run(in_session("s1", "r2", "Thanks.")).await;
    let shown = read(&model.last_request());
    let roles: Vec<&str> = shown.iter().map(|(role, _)| role.as_str()).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "tool", "assistant", "tool", "assistant", "user"]);
    let said = said(&[("assistant", "Let me look."), ("tool", "sunny")]);
    assert!(shown[1] == said[0] && shown[2..4].contains(&said[1]), "{shown:?}");
}

#[tokio::test]
async fn the_loop_ends_for_each_of_its_reasons() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let _host = Host::start(&server).await;
    let mut bus = created(&server).await;
    let weather = || json!({ "city": "Rome" });

    // The model has finished, and no call is open.
    model.asks("weather", weather()).says("sunny");
    let done = server.run(in_session("s1", "done", "How is Rome?")).await;
    assert_eq!(done.status(), RunStatus::Completed);
    assert_eq!(until_end(&mut bus, "done").await.last().map(String::as_str), Some("session idle"));

    // The step that is the last one.
    model.asks("weather", weather()).asks("weather", json!({ "city": "Oslo" }));
    let limits = wire::LoopLimits { max_iterations: Some(2), ..Default::default() };
    let input = wire::RunInput { loop_limits: Some(limits), ..in_session("s1", "steps", "Both?") };
    assert_eq!(server.run(input).await.status(), RunStatus::Failed);
    let last = until_end(&mut bus, "steps").await.pop().expect("lines");
    assert_eq!(last, "session error: RUN_ERROR_CODE_LIMIT_ITERATIONS");

    // An error that does not pass; the session tells it.
    model.fails(400);
    assert_eq!(server.run(in_session("s1", "error", "Hello?")).await.status(), RunStatus::Failed);
    let last = until_end(&mut bus, "error").await.pop().expect("lines");
    assert_eq!(last, "session error: RUN_ERROR_CODE_MODEL_BAD_REQUEST");

    // A cancel by the session's id.
    let mut speech = model.speaks();
    let mut events = server.stream(in_session("s1", "cancelled", "Talk.")).await;
    speech.asked().await;
    let target = wire::abort_request::Target::SessionId("s1".to_owned());
    let request = wire::AbortRequest { target: Some(target), reason: "enough".to_owned() };
    soon(server.agent_loop().abort(request)).await.expect("aborted");
    events.wait_for_name("run_finished").await;
    speech.hung_up().await;
    let last = until_end(&mut bus, "cancelled").await.pop().expect("lines");
    assert_eq!(last, "session error: RUN_ERROR_CODE_ABORTED_BY_CALLER");
    assert_eq!(session(&server).await.live_run_id, "");
}

#[tokio::test]
async fn errors_that_pass_are_tried_five_times() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let policy = || wire::RetryPolicy {
        max_retries: Some(5),
        initial_backoff: Some(prost_types::Duration { seconds: 0, nanos: 1_000_000 }),
        max_backoff: Some(prost_types::Duration { seconds: 0, nanos: 30_000_000 }),
        ..Default::default()
    };
    let overloaded = || Answer::Fails(529, None, "overloaded".to_owned());
    let limited = || Answer::Fails(429, None, "slow down".to_owned());
    model
        .then(limited())
        .then(overloaded())
        .then(Answer::Cut(String::new()))
        .then(limited())
        .then(overloaded());
    model.says("Here I am.");
    let input = wire::RunInput { retry_policy: Some(policy()), ..in_session("s1", "r1", "Hello?") };
    assert_eq!(server.run(input).await.status(), RunStatus::Completed);
    assert_eq!(model.requests().len(), 6);

    for _ in 0..6 {
        model.then(limited());
    }
    let input = wire::RunInput { retry_policy: Some(policy()), ..in_session("s1", "r2", "Hello?") };
    let error = server.run(input).await.last_error.expect("a reason");
    assert_eq!((error.code(), model.requests().len()), (RunErrorCode::ModelRateLimited, 12));
}

#[tokio::test]
async fn the_tools_of_a_prompt_are_those_that_its_permissions_leave() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let _host = Host::with(&server, "host-1", |name| matches!(name, "weather" | "mail" | "fail")).await;
    let rule = |tool: &str, action: wire::PolicyAction| wire::PolicyRule {
        tool: tool.to_owned(),
        action: action.into(),
        ..Default::default()
    };
    let rules = vec![rule("mail", wire::PolicyAction::Deny), rule("fail", wire::PolicyAction::Ask)];
    let policy = wire::ToolPolicy { rules: Some(wire::PolicyRules { rules }), ..Default::default() };
    model.asks("weather", json!({ "city": "Rome" })).says("sunny");
    let input = wire::RunInput { tool_policy: Some(policy), ..in_session("s1", "r1", "How is Rome?") };
    let events = server.stream(input).await.rest().await;
    assert_eq!(offered(&model.requests()[0]), ["fail", "weather"], "a denied tool is not offered");
    assert_eq!(results(&events)[0].status(), ToolStatus::Succeeded);
    let message = server.entries("s1").await.pop().and_then(|entry| entry.message).expect("a message");
    assert_eq!(text(&message), "sunny");
}
