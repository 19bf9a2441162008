//! Tools: listing them, offering them to the model, and the outcomes of calls.

use agentloop_client::v1 as wire;
use agentloop_tests::credentials::SecurityFiles;
use agentloop_tests::events::{name, names, results};
use agentloop_tests::host::Host;
use agentloop_tests::input::{in_session, named, prompt};
use agentloop_tests::model::Model;
use agentloop_tests::raw_host::{RawHost, declared, hello, result_of};
use agentloop_tests::server::TestServer;
use agentloop_tests::soon;
use serde_json::{Value, json};
use wire::connect_request::Frame;
use wire::connect_response::Frame as ServerFrame;
use wire::run_event::Event;
use wire::{RunStatus, ToolStatus};

async fn world() -> (Model, TestServer, Host) {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let host = Host::start(&server).await;
    (model, server, host)
}

async fn list_tools(server: &TestServer, name: &str) -> Vec<wire::Tool> {
    let request = wire::ListToolsRequest { name: name.to_owned(), ..Default::default() };
    soon(server.tools().list_tools(request)).await.expect("listed").into_inner().tools
}

async fn list_hosts(server: &TestServer) -> Vec<wire::Host> {
    soon(server.tools().list_hosts(wire::ListHostsRequest::default()))
        .await
        .expect("listed")
        .into_inner()
        .hosts
}

#[tokio::test]
async fn are_listed_with_the_hosts_that_serve_them() {
    let model = Model::start().await;
    let mut server = TestServer::start(&model).await;
    let first = Host::with(&server, "a", |name| name == "weather" || name == "mail").await;
    let second = Host::with(&server, "b", |name| name == "weather").await;
    let tools = list_tools(&server, "").await;
    let declared: Vec<_> = tools.iter().map(|tool| tool.declaration.clone().expect("declared")).collect();
    assert_eq!(declared.iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>(), ["mail", "weather"]);
    assert!(declared[0].requires_approval && !declared[1].requires_approval);
    assert_eq!(declared[0].effect(), wire::EffectClass::Unsafe);
    assert_eq!(declared[1].effect(), wire::EffectClass::ReadOnly);
    assert_eq!((tools[0].host_ids.as_slice(), tools[1].host_ids.len()), (&["a".to_owned()][..], 2));
    assert_ne!(tools[0].digest, tools[1].digest);
    let only = list_tools(&server, "mail").await;
    assert_eq!((only.len(), &only[0].digest), (1, &tools[0].digest));
    assert_eq!(list_tools(&server, "nothing").await, []);
    let mut after = String::new();
    for (tool, is_last) in tools.iter().zip([false, true]) {
        let request = wire::ListToolsRequest { page_size: 1, page_token: after, ..Default::default() };
        let page = soon(server.tools().list_tools(request)).await.expect("listed").into_inner();
        let digests: Vec<_> = page.tools.iter().map(|tool| &tool.digest).collect();
        assert_eq!((&digests[..], page.next_page_token.is_empty()), (&[&tool.digest][..], is_last));
        after = page.next_page_token;
    }

    let hosts = list_hosts(&server).await;
    let mut after = String::new();
    for (host, is_last) in hosts.iter().zip([false, true]) {
        let request = wire::ListHostsRequest { page_size: 1, page_token: after };
        let page = soon(server.tools().list_hosts(request)).await.expect("listed").into_inner();
        let ids: Vec<_> = page.hosts.iter().map(|host| &host.host_id).collect();
        assert_eq!((&ids[..], page.next_page_token.is_empty()), (&[&host.host_id][..], is_last));
        after = page.next_page_token;
    }
    assert_eq!(hosts.iter().map(|host| host.host_id.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    assert!(hosts.iter().all(|host| host.health() == wire::HostHealth::Connected && host.free_credit > 0));
    assert_eq!(hosts[0].tools, ["mail", "weather"]);

    first.leave().await;
    second.leave().await;
    for _ in 0..2 {
        assert_eq!(list_hosts(&server).await, []);
        let tools = list_tools(&server, "").await;
        assert_eq!(tools.len(), 2, "they are still known");
        assert!(tools.iter().all(|tool| tool.host_ids.is_empty()));
        server.restart().await;
    }
}

#[tokio::test]
async fn another_declaration_of_a_served_tool_is_refused() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let _host = Host::with(&server, "a", |name| name == "weather").await;
    let mut other = RawHost::open(&server).await;
    let tools =
        vec![declared("weather", wire::EffectClass::Unsafe), declared("bad name", wire::EffectClass::Keyed)];
    other.send(Frame::Hello(hello("b", tools)));
    let ServerFrame::Welcome(welcome) = other.wait_for(|_| true).await else { panic!("welcome comes first") };
    let verdicts: Vec<_> = welcome.capabilities.iter().map(|verdict| verdict.accepted).collect();
    assert_eq!(verdicts, [false, false]);
    let digest = &list_tools(&server, "weather").await[0].terms_digest;
    assert!(welcome.capabilities[0].reason.contains(digest.as_str()), "{:?}", welcome.capabilities);
    assert_eq!(list_tools(&server, "").await.len(), 1);
}

/// Names of the tools that the model was offered, in order.
fn offered(request: &Value) -> Vec<String> {
    let tools = request["tools"].as_array();
    let name = |tool: &Value| tool["function"]["name"].as_str().unwrap_or_default().to_owned();
    tools.into_iter().flatten().map(name).collect()
}

fn names_of(names: &[&str]) -> Option<wire::ToolNames> {
    Some(wire::ToolNames { names: names.iter().map(|name| (*name).to_owned()).collect() })
}

#[tokio::test]
async fn the_model_is_offered_what_both_lists_allow_in_the_order_that_is_wanted() {
    let (model, server, _host) = world().await;
    let policy = |allow_list| Some(wire::ToolPolicy { allow_list, ..Default::default() });
    let input = |allowed_tools, tool_policy, order: &[&str]| wire::RunInput {
        allowed_tools,
        tool_policy,
        tool_order: order.iter().map(|name| (*name).to_owned()).collect(),
        ..prompt("hi")
    };
    let all = ["big", "fail", "flaky", "hold", "hold_unsafe", "mail", "slow", "talk", "weather"];
    let off = Some(wire::ToolPolicy { enabled: Some(false), ..Default::default() });
    for (input, wanted) in [
        (input(None, None, &[]), &all[..]),
        (input(names_of(&["weather", "mail", "nobody"]), None, &[]), &["mail", "weather"]),
        (input(names_of(&["weather", "mail"]), policy(names_of(&["weather", "big"])), &[]), &["weather"]),
        (input(names_of(&[]), None, &[]), &[]),
        (input(None, policy(names_of(&[])), &[]), &[]),
        (input(None, off, &[]), &[]),
        (
            input(names_of(&["big", "mail", "weather"]), None, &["weather", "nobody", "big", "weather"]),
            &["weather", "big", "mail"],
        ),
    ] {
        model.says("hello");
        server.run(input).await;
        assert_eq!(offered(&model.last_request()), wanted);
    }
    let weather = model.requests()[0]["tools"][8]["function"]["parameters"].clone();
    assert_eq!(weather["properties"]["city"]["type"], "string");
}

/// The result of the one call that the model makes, which it must also read.
async fn result_of_call(
    (model, server): (&Model, &TestServer),
    tool: &str,
    arguments: Value,
    input: wire::RunInput,
) -> wire::ToolResult {
    model.asks(tool, arguments).says("I see");
    let events = server.stream(input).await.rest().await;
    assert_eq!(events.last().map(wire::RunEvent::status), Some(RunStatus::Completed));
    let [result] = &results(&events)[..] else { panic!("one result: {:?}", names(&events)) };
    let request = model.last_request();
    let read = request["messages"].as_array().and_then(|all| all.last()).expect("messages");
    let good = matches!(result.status(), ToolStatus::Succeeded | ToolStatus::Answered);
    // The format has no flag for it, so an error says that it is one.
    let output = if good { result.output.clone() } else { format!("error: {}", result.output) };
    assert_eq!((&read["role"], &read["content"]), (&json!("tool"), &json!(output)));
    result.clone()
}

#[tokio::test]
async fn the_model_is_told_of_calls_that_cannot_run() {
    let (model, server, host) = world().await;
    let world = (&model, &server);
    for (tool, arguments, words) in [
        ("nobody", json!({}), "nobody"),
        ("weather", json!({ "city": 7 }), "/city"),
        ("weather", json!({}), "city"),
        ("weather", json!({ "city": "Rome", "when": "now" }), "when"),
        ("weather", json!("{not json"), "JSON"),
        ("weather", json!([1]), "object"),
        ("weather", json!(r#"{"city":"Rome","city":"Ulm"}"#), "twice"),
        ("mail", json!(r#"{"to":"bob","to":"eve"}"#), "\"to\" appears twice"),
    ] {
        let result = result_of_call(world, tool, arguments.clone(), prompt("go")).await;
        assert_eq!(result.status(), ToolStatus::Rejected, "{tool} {arguments}");
        assert!(result.output.contains(words), "{tool} {arguments}: {}", result.output);
    }
    let only = wire::RunInput { allowed_tools: names_of(&["mail"]), ..prompt("go") };
    let result = result_of_call(world, "weather", json!({ "city": "Rome" }), only).await;
    assert_eq!(result.status(), ToolStatus::Rejected);
    assert_eq!(host.gate.calls(), []);
}

#[tokio::test]
async fn a_failing_tool_never_fails_the_run() {
    let (model, server, host) = world().await;
    let world = (&model, &server);
    let failed = result_of_call(world, "fail", json!({ "why": "no disk" }), prompt("go")).await;
    assert_eq!((failed.status(), failed.output.as_str()), (ToolStatus::Failed, "no disk"));
    let flaky = result_of_call(world, "flaky", json!({ "x": "1" }), named("r1", "go")).await;
    assert_eq!((flaky.status(), flaky.output.as_str()), (ToolStatus::Succeeded, "now"));
    assert_eq!(host.gate.count("flaky"), 2);
    let events = server.subscribe("r1", 0).await.rest().await;
    let failures = names(&events).iter().filter(|name| **name == "tool_call_attempt_failed").count();
    assert_eq!(failures, 1, "no try is wasted");
    let slow = result_of_call(world, "slow", json!({ "x": "1" }), prompt("go")).await;
    assert_eq!(slow.status(), ToolStatus::TimedOut);
    host.gate.cancelled(1).await;
}

#[tokio::test]
async fn as_many_run_together_as_the_policy_says() {
    for (max_parallel, most) in [(None, 1), (Some(3), 3)] {
        let (model, server, host) = world().await;
        let calls: Vec<_> = (0..6).map(|at| ("hold", json!({ "x": format!("{at}") }))).collect();
        model.asks_all(&calls).says("done");
        let policy = wire::ToolPolicy { max_parallel, ..Default::default() };
        let input = wire::RunInput { tool_policy: Some(policy), ..prompt("go") };
        let events = server.stream(input).await;
        host.gate.began(most).await;
        for done in 1..=6 {
            host.gate.open(1);
            host.gate.began((most + done).min(6)).await;
        }
        let results = results(&events.rest().await);
        assert!(results.iter().all(|result| result.status() == ToolStatus::Succeeded), "{results:?}");
        assert_eq!((results.len(), host.gate.began(6).await.most), (6, most));
        if max_parallel.is_none() {
            let order: Vec<_> = host.gate.calls().into_iter().map(|(_, arguments)| arguments).collect();
            assert_eq!(order, calls.into_iter().map(|(_, arguments)| arguments).collect::<Vec<_>>());
        }
    }
}

#[tokio::test]
async fn output_and_progress_are_seen_while_a_tool_runs() {
    let (model, server, host) = world().await;
    model.asks("talk", json!({ "x": "1" })).says("done");
    let mut events = server.stream(named("r1", "go")).await;
    let progress = events.wait_for_name("tool_call_progress").await;
    let Some(Event::ToolCallProgress(progress)) = progress.event else { unreachable!("it was waited for") };
    assert_eq!((progress.message.as_str(), progress.fraction), ("half way", Some(0.5)));
    let mut outputs = Vec::new();
    while outputs.len() < 2 {
        let output = events.wait_for_name("tool_call_output").await;
        let Some(Event::ToolCallOutput(output)) = output.event else { unreachable!("it was waited for") };
        outputs.push((output.chunk_seq, output.stream(), output.data));
    }
    let stdout = (1, wire::OutputStream::Stdout, b"line one\n".to_vec());
    assert_eq!(outputs, [stdout, (2, wire::OutputStream::Stderr, b"trouble\n".to_vec())]);
    host.gate.open(1);
    let events = events.rest().await;
    assert_eq!(results(&events)[0].output, "talked");
}

#[tokio::test]
async fn a_large_result_is_cut_for_the_model_and_kept_whole() {
    let (model, server, _host) = world().await;
    model.asks("big", json!({ "bytes": 600_000 })).says("much");
    let events = server.stream(named("r1", "go")).await.rest().await;
    let result = events.iter().find_map(|event| match &event.event {
        Some(Event::ToolCallResult(result)) => Some(result.clone()),
        _ => None,
    });
    let result = result.expect("a result");
    assert!(result.truncated);
    assert_eq!(result.result.map(|result| result.output.len()), Some(600_000));
    let request = model.last_request();
    let read =
        request["messages"].as_array().and_then(|all| all.last()).expect("messages")["content"].clone();
    let read = read.as_str().expect("a text");
    assert!(read.len() < 263_000, "{}", read.len());
    assert!(read.ends_with("of 600000 bytes]"), "{}", &read[read.len() - 60..]);
    let session = &events[0].session_id;
    let whole = server.entries(session).await.into_iter().find_map(|entry| {
        entry.message?.parts.into_iter().find_map(|part| match part.content {
            Some(wire::part::Content::ToolResult(result)) => Some(result.output.len()),
            _ => None,
        })
    });
    assert_eq!(whole, Some(600_000));
}

#[tokio::test]
async fn a_host_changes_its_tools() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let one = || vec![declared("one", wire::EffectClass::ReadOnly)];
    let mut host = RawHost::welcomed(&server, "h1", one()).await;
    let capability = |tool| wire::Capability { capability: Some(wire::capability::Capability::Tool(tool)) };
    let tools = [declared("two", wire::EffectClass::ReadOnly), declared("", wire::EffectClass::ReadOnly)];
    let capabilities = tools.into_iter().map(capability).collect();
    host.send(Frame::UpdateTools(wire::UpdateTools { capabilities }));
    let updated = host.wait_for(|frame| matches!(frame, ServerFrame::ToolsUpdated(_))).await;
    let ServerFrame::ToolsUpdated(updated) = updated else { unreachable!("it was waited for") };
    let verdicts: Vec<_> = updated.capabilities.iter().map(|verdict| verdict.accepted).collect();
    assert_eq!(verdicts, [true, false]);
    assert_eq!(list_hosts(&server).await[0].tools, ["two"]);
    model.asks("two", json!({})).says("done");
    let events = server.stream(prompt("go")).await;
    let call = host.take_call().await;
    assert_eq!((call.tool.as_str(), call.attempt), ("two", 1));
    host.send(Frame::CallResult(result_of(&call, "2")));
    let ack = host.wait_for(|frame| matches!(frame, ServerFrame::ResultAck(_))).await;
    let ServerFrame::ResultAck(ack) = ack else { unreachable!("it was waited for") };
    assert_eq!(ack.verdict(), wire::ResultVerdict::Recorded);
    assert_eq!(results(&events.rest().await)[0].output, "2");
}

#[tokio::test]
async fn a_call_is_accepted_before_it_is_shown_as_accepted() {
    let (model, server, host) = world().await;
    model.asks("hold", json!({ "x": "1" })).says("done");
    let mut events = server.stream(prompt("go")).await;
    let offered = events.wait_for(|event| name(event) == "tool_call_offered").await;
    let Some(Event::ToolCallOffered(offered)) = offered.event else { unreachable!("it was waited for") };
    assert_eq!((offered.host_id.as_str(), offered.attempt), ("host-1", 1));
    host.gate.open(1);
    let events = events.rest().await;
    let kinds = names(&events);
    let at = |wanted: &str| kinds.iter().position(|kind| *kind == wanted);
    assert!(at("tool_call_offered") < at("tool_call_accepted"));
    assert!(at("tool_call_accepted") < at("tool_call_result"));
}

#[tokio::test]
async fn a_call_has_the_title_that_its_declaration_gives_it() {
    let model = Model::start().await;
    let mut server = TestServer::start(&model).await;
    let titled = |title: &str| wire::ToolDeclaration {
        title: title.to_owned(),
        ..declared("forecast", wire::EffectClass::ReadOnly)
    };
    let mut refused = RawHost::open(&server).await;
    refused.send(Frame::Hello(hello("h0", vec![titled("two\nlines")])));
    let ServerFrame::Welcome(welcome) = refused.wait_for(|_| true).await else {
        panic!("welcome comes first")
    };
    assert!(welcome.capabilities[0].reason.contains("title"), "{:?}", welcome.capabilities);

    let mut host = RawHost::welcomed(&server, "h1", vec![titled("Weather in {city}, {days} days")]).await;
    assert_eq!(
        list_tools(&server, "forecast").await[0].declaration.as_ref().map(|tool| tool.title.as_str()),
        Some("Weather in {city}, {days} days")
    );
    model.asks("forecast", json!({ "city": "Rome", "days": 3 })).says("sunny");
    let mut events = server.stream(named("r1", "go")).await;
    let call = host.take_call().await;
    let waiting_on = server.get_run("r1").await.waiting_on.expect("it waits");
    assert!(waiting_on.what.contains("(forecast: Weather in Rome, 3 days)"), "{waiting_on:?}");
    host.send(Frame::CallResult(result_of(&call, "sunny")));
    events.wait_for_name("run_finished").await;
    server.restart().await;
    let events = server.subscribe("r1", 0).await.rest().await;
    let title = events.iter().find_map(|event| match &event.event {
        Some(Event::ToolCallProposed(proposed)) => Some(proposed.title.clone()),
        _ => None,
    });
    assert_eq!(title.as_deref(), Some("Weather in Rome, 3 days"), "the journal has it");
}

fn caller(name: &str, tenant: &str, groups: &[&str]) -> wire::Caller {
    let groups = groups.iter().map(|group| (*group).to_owned()).collect();
    wire::Caller { name: name.to_owned(), tenant: tenant.to_owned(), groups }
}

#[tokio::test]
async fn a_tool_is_told_who_started_the_run_and_their_groups() {
    let (model, files) = (Model::start().await, SecurityFiles::new());
    let ada = files.token_in("ada", "acme", &["caller", "approver"], &["sre", "on call"]);
    let bob = files.token_in("bob", "acme", &["operator"], &["ops"]);
    let tools = files.token_in("tools", "acme", &["host"], &["machines"]);
    let mut server = TestServer::with(&model, &files.auth()).await;
    let host = Host::presenting(&server, "host-1", Some(&tools), |_| true).await;
    let weather = || json!({ "city": "Ulm" });
    model.asks("weather", weather()).asks("mail", json!({ "to": "bob" })).says("sent");
    let waits = soon(server.as_caller(&ada).run(in_session("s", "r1", "mail bob"))).await.expect("it asks");
    assert_eq!(waits.status(), RunStatus::AwaitingHuman);
    let of_ada = caller("ada", "acme", &["sre", "on call"]);
    assert_eq!(host.gate.callers(), std::slice::from_ref(&of_ada));

    // Another caller's messages do not make the run another caller's; a run of its own waits for the session.
    let busy = |policy: wire::BusySessionPolicy, run: &str| wire::RunInput {
        on_busy_session: policy.into(),
        ..in_session("s", run, "and the weather")
    };
    let steers = busy(wire::BusySessionPolicy::Steer, "more");
    assert_eq!(soon(server.as_caller(&bob).run(steers)).await.expect("it is handed over").run_id, "r1");
    let queued = busy(wire::BusySessionPolicy::Enqueue, "r2");
    let mut queue = Box::pin(soon(server.as_caller(&bob).run_stream(queued.clone()))).await.expect("queued");
    soon(queue.next()).await.expect("its first event").expect("its first event");
    drop((queue, host));

    server.restart().await;
    let host = Host::presenting(&server, "host-2", Some(&tools), |_| true).await;
    model.asks("weather", weather()).says("sunny");
    let approval = wire::SubmitApprovalRequest {
        request_id: waits.pending[0].request_id.clone(),
        decision: Some(wire::Decision {
            decision: Some(wire::decision::Decision::Approve(wire::Approve {})),
        }),
        ..Default::default()
    };
    soon(server.as_caller(&ada).submit_approval(approval)).await.expect("approved");
    let bob = server.as_caller(&bob);
    assert_eq!(soon(bob.run(queued)).await.expect("it ends").status(), RunStatus::Completed);
    let of_bob = caller("bob", "acme", &["ops"]);
    assert_eq!(host.gate.callers(), [of_ada, of_bob.clone()], "whatever happened since their starts");

    // A run in a fork is its caller's, and not that of the session which was forked.
    let fork = wire::ForkSessionRequest {
        session_id: "s".to_owned(),
        new_session_id: Some("f".to_owned()),
        ..Default::default()
    };
    soon(bob.fork_session(fork)).await.expect("forked");
    model.asks("weather", weather()).says("sunny");
    soon(bob.run(in_session("f", "r3", "once more"))).await.expect("it ends");
    assert_eq!(host.gate.callers().last(), Some(&of_bob));

    // No other caller learns who is in which group.
    let mut shown = format!("{:?}", soon(bob.get_run("r1")).await.expect("a run"));
    let mut events = Box::pin(soon(bob.subscribe("r1", 0))).await.expect("events");
    while let Some(event) = soon(events.next()).await {
        shown.push_str(&format!("{:?}", event.expect("an event")));
    }
    assert!(shown.contains("ada") && !shown.contains("on call"), "{shown}");
}

#[tokio::test]
async fn without_credentials_a_tool_is_told_no_name() {
    let (model, server, host) = world().await;
    model.asks("weather", json!({ "city": "Ulm" })).says("sunny");
    server.run(prompt("look")).await;
    assert_eq!(host.gate.callers(), [caller("", "local", &[])]);
}

/// It looks like a call of a tool without arguments.
#[tokio::test]
async fn a_call_that_the_token_limit_cut_off_before_its_arguments_is_not_run() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let mut host = RawHost::open(&server).await;
    host.send(Frame::Hello(hello("h", vec![declared("wipe", wire::EffectClass::Unsafe)])));
    host.wait_for(|frame| matches!(frame, ServerFrame::Welcome(_))).await;
    let mut speech = model.speaks();
    model.says("I was cut off.");
    let events = server.stream(named("r1", "clean up")).await;
    speech.asked().await;
    speech.ask(0, "wipe", &json!(""));
    speech.end_at_limit();
    let events = events.rest().await;
    let [result] = &results(&events)[..] else { panic!("one result") };
    assert_eq!(result.status(), ToolStatus::Rejected, "{}", result.output);
    assert!(!names(&events).contains(&"tool_call_offered"), "{:?}", names(&events));
    assert_eq!(events.last().map(wire::RunEvent::status), Some(RunStatus::Completed));
}
