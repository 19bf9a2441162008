//! Conversations that come from elsewhere, and whole sessions that leave.

use agentloop_client::v1 as wire;
use agentloop_tests::errors::{assert_invalid, assert_refused};
use agentloop_tests::events::text;
use agentloop_tests::host::Host;
use agentloop_tests::input::in_session;
use agentloop_tests::model::Model;
use agentloop_tests::server::TestServer;
use agentloop_tests::soon;
use serde_json::{Value, json};
use tonic::{Code, Status};
use wire::part::Content;
use wire::{Role, RunStatus};

fn message(role: Role, contents: Vec<Content>) -> wire::Message {
    let parts = contents.into_iter().map(|content| wire::Part { content: Some(content) }).collect();
    wire::Message { role: role.into(), parts }
}

fn says(role: Role, text: &str) -> wire::Message {
    message(role, vec![Content::Text(text.to_owned())])
}

fn call(id: &str) -> Content {
    let arguments_json = r#"{"city":"Bergen"}"#.to_owned();
    let (call_id, name) = (id.to_owned(), "weather".to_owned());
    Content::ToolCall(wire::ToolCall { call_id, name, arguments_json, title: String::new() })
}

fn result(id: &str, output: &str) -> Content {
    let (call_id, output) = (id.to_owned(), output.to_owned());
    Content::ToolResult(wire::ToolResult { call_id, output, ..Default::default() })
}

/// A call whose result has this typed output and a file of this name.
fn typed(structured_json: &str, name: &str) -> Vec<wire::Message> {
    let (source, name) = (Some(wire::file_content::Source::Data(b"x".to_vec())), name.to_owned());
    let files = vec![wire::FileContent { name, source, ..Default::default() }];
    let (call_id, structured_json) = ("a".to_owned(), structured_json.to_owned());
    let result = wire::ToolResult { call_id, structured_json, files, ..Default::default() };
    vec![message(Role::Assistant, vec![call("a")]), message(Role::Tool, vec![Content::ToolResult(result)])]
}

/// Two calls, whose results are in one message and in another order.
fn conversation() -> Vec<wire::Message> {
    vec![
        says(Role::System, "Be brief."),
        says(Role::User, "How is Bergen?"),
        message(Role::Assistant, vec![Content::Text("Let me see.".to_owned()), call("x y"), call("z")]),
        message(Role::Tool, vec![result("z", "windy"), result("x y", "raining")]),
        says(Role::Assistant, "It rains sideways."),
    ]
}

fn import(session: &str, run: &str, messages: Vec<wire::Message>) -> wire::ImportEntriesRequest {
    wire::ImportEntriesRequest {
        session_id: Some(session.to_owned()),
        run_id: Some(run.to_owned()),
        auto_create_session: true,
        messages,
        labels: [("from".to_owned(), "elsewhere".to_owned())].into(),
        model: "other/model".to_owned(),
    }
}

async fn imported(
    server: &TestServer,
    request: wire::ImportEntriesRequest,
) -> Result<wire::ImportEntriesResponse, Status> {
    Ok(soon(server.sessions().import_entries(request)).await?.into_inner())
}

/// Role, text and ids of calls of each message of a request to the model.
fn read(request: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let messages = request["messages"].as_array().expect("messages");
    messages.iter().map(|message| (text(&message["role"]), text(&message["content"]))).collect()
}

#[tokio::test]
async fn the_next_run_reads_what_was_imported() {
    let model = Model::start().await;
    let mut server = TestServer::start(&model).await;
    let added = imported(&server, import("s1", "import-1", conversation())).await.expect("imported");
    let run = added.run.expect("a run");
    assert_eq!(
        (run.status(), run.model.as_str(), run.agent.as_str()),
        (RunStatus::Completed, "other/model", "")
    );
    assert_eq!(run.final_assistant_message.as_ref().map(text), Some("It rains sideways.".to_owned()));
    assert_eq!((added.first_entry_no, added.last_entry_no), (1, 6));
    let session = added.session.expect("a session");
    assert_eq!((session.entry_count, session.live_run_id.as_str()), (6, ""));

    server.restart().await;
    model.says("Take an umbrella.");
    let result = server.run(in_session("s1", "r1", "What do I need?")).await;
    assert_eq!(result.status(), RunStatus::Completed);
    let sent = read(&model.last_request());
    let wanted = [
        ("system", "Be brief."),
        ("user", "How is Bergen?"),
        ("assistant", "Let me see."),
        ("tool", "windy"),
        ("tool", "raining"),
        ("assistant", "It rains sideways."),
        ("user", "What do I need?"),
    ];
    let wanted: Vec<_> = wanted.iter().map(|(role, text)| ((*role).to_owned(), (*text).to_owned())).collect();
    assert_eq!(sent, wanted);

    // Ids of calls are the server's, and fit.
    let entries = server.entries("s1").await;
    let Some(Content::ToolCall(first)) = &entries[2].message.as_ref().expect("a message").parts[1].content
    else {
        panic!("{entries:?}")
    };
    assert_eq!(first.call_id, "import-1/1.0");
    let Some(Content::ToolResult(result)) = &entries[4].message.as_ref().expect("a message").parts[0].content
    else {
        panic!("{entries:?}")
    };
    assert_eq!((result.call_id.as_str(), result.name.as_str()), ("import-1/1.0", "weather"));
    assert_eq!(result.status(), wire::ToolStatus::Succeeded);

    // It is a run like others: it is replayed, searched, forked and deleted.
    let request = wire::ReplayRunRequest { run_id: "import-1".to_owned() };
    let replayed = soon(server.agent_loop().replay_run(request)).await.expect("replayed").into_inner();
    assert_eq!((replayed.faithful, replayed.events), (true, 8), "{replayed:?}");
    let request = wire::SearchEntriesRequest { query: "sideways".to_owned(), ..Default::default() };
    let hits = soon(server.sessions().search_entries(request)).await.expect("found").into_inner().hits;
    assert_eq!(hits.iter().map(|hit| hit.entry_no).collect::<Vec<_>>(), [6]);
    let request = wire::ForkSessionRequest {
        session_id: "s1".to_owned(),
        at_entry_no: 6,
        new_session_id: Some("fork".to_owned()),
    };
    soon(server.sessions().fork_session(request)).await.expect("forked");
    let request = wire::DeleteSessionRequest { session_id: "s1".to_owned() };
    soon(server.sessions().delete_session(request)).await.expect("deleted");
    let kept = server.entries("fork").await;
    let of = |entry: &wire::Entry| (entry.message.clone(), entry.model.clone());
    assert_eq!(kept.iter().map(of).collect::<Vec<_>>(), entries[..6].iter().map(of).collect::<Vec<_>>());
    assert_eq!((kept[5].model.as_str(), kept[0].model.as_str()), ("other/model", ""));
}

#[tokio::test]
async fn a_repeated_import_adds_nothing() {
    let model = Model::start().await;
    let mut server = TestServer::start(&model).await;
    let request = import("s1", "import-1", conversation());
    let first = imported(&server, request.clone()).await.expect("imported");
    assert_eq!(imported(&server, request.clone()).await.expect("confirmed"), first);
    server.restart().await;
    assert_eq!(imported(&server, request.clone()).await.expect("confirmed"), first);
    let other = wire::ImportEntriesRequest { model: "another/model".to_owned(), ..request.clone() };
    assert_refused(imported(&server, other).await, Code::AlreadyExists, "ID_REUSED");
    let second = imported(&server, import("s1", "import-2", conversation())).await.expect("more of it");
    assert_eq!((second.first_entry_no, second.last_entry_no), (7, 12));

    let nowhere =
        wire::ImportEntriesRequest { auto_create_session: false, ..import("s2", "r", conversation()) };
    assert_refused(imported(&server, nowhere).await, Code::NotFound, "SESSION_NOT_FOUND");
    let mut speech = model.speaks();
    let events = server.stream(in_session("s1", "r1", "hi")).await;
    speech.asked().await;
    let busy = imported(&server, import("s1", "import-3", conversation())).await;
    assert_refused(busy, Code::FailedPrecondition, "SESSION_BUSY");
    assert_eq!(imported(&server, request).await.expect("confirmed").run, first.run);
    speech.end();
    events.rest().await;
    assert_eq!(server.entries("s1").await.len(), 14);
}

#[tokio::test]
async fn what_is_not_paired_is_refused() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let asks = || message(Role::Assistant, vec![call("a"), call("b")]);
    let one = || message(Role::Tool, vec![result("a", "1")]);
    let long = "x".repeat(2_000);
    let of_another_tool = || {
        let Content::ToolResult(result) = result("a", "1") else { unreachable!("it is one") };
        Content::ToolResult(wire::ToolResult { name: "tides".to_owned(), ..result })
    };
    for (messages, fields) in [
        (
            vec![message(Role::Assistant, vec![call("a")]), message(Role::Tool, vec![of_another_tool()])],
            &["messages[1].parts[0].tool_result.name"][..],
        ),
        (vec![], &["messages"]),
        (vec![says(Role::User, "x"); 1_025], &["messages"]),
        (vec![asks(), one()], &["messages"]),
        (vec![asks(), one(), says(Role::User, "x")], &["messages[2]"]),
        (vec![one()], &["messages[0].parts[0].tool_result.call_id"]),
        (
            vec![asks(), one(), message(Role::Tool, vec![result("b", "2"), result("b", "2")])],
            &["messages[2].parts[1].tool_result.call_id"],
        ),
        (
            vec![message(Role::Assistant, vec![call("a"), call("a")]), one()],
            &["messages[0].parts[1].tool_call.call_id"],
        ),
        (
            vec![message(Role::Assistant, vec![call(""), call(&long)])],
            &["messages[0].parts[0].tool_call.call_id", "messages[0].parts[1].tool_call.call_id"],
        ),
        (vec![message(Role::User, vec![call("a")])], &["messages[0].parts[0]"]),
        (vec![message(Role::Tool, vec![])], &["messages[0].parts"]),
        (vec![says(Role::Unspecified, "x")], &["messages[0].role"]),
        (typed("{", "a.txt"), &["messages[1].parts[0].tool_result.structured_json"]),
        (typed("{}", ".."), &["messages[1].parts[0].tool_result"]),
    ] {
        assert_invalid(imported(&server, import("s1", "r", messages)).await, fields);
    }
    let bad = wire::ImportEntriesRequest {
        session_id: Some("no id".to_owned()),
        run_id: Some(String::new()),
        model: "x".repeat(257),
        ..import("s1", "r", conversation())
    };
    assert_invalid(imported(&server, bad).await, &["run_id", "session_id", "model"]);
    let request = wire::GetSessionRequest { session_id: "s1".to_owned() };
    let none = soon(server.sessions().get_session(request)).await;
    assert_refused(none, Code::NotFound, "SESSION_NOT_FOUND");
}

#[tokio::test]
async fn the_largest_result_is_imported_and_so_are_several_of_one_message() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let largest = "x".repeat(3 * 1024 * 1024);
    let one =
        vec![message(Role::Assistant, vec![call("a")]), message(Role::Tool, vec![result("a", &largest)])];
    imported(&server, import("s1", "i1", one)).await.expect("imported");
    let asks = || message(Role::Assistant, vec![call("a"), call("b"), call("c")]);
    let two_each = "x".repeat(2 * 1024 * 1024);
    let results: Vec<_> = ["a", "b", "c"].iter().map(|id| result(id, &two_each)).collect();
    let several = vec![asks(), message(Role::Tool, results)];
    let added = imported(&server, import("s2", "i2", several)).await.expect("imported");
    assert_eq!((added.first_entry_no, added.last_entry_no), (1, 4));
    let longer = vec![
        message(Role::Assistant, vec![call("a")]),
        message(Role::Tool, vec![result("a", &format!("{largest}{}", "x".repeat(9 * 1024)))]),
    ];
    let refused = imported(&server, import("s3", "i3", longer)).await;
    assert_invalid(refused, &["messages[1].parts[0].tool_result.output"]);
    // The larger bound is that of imports alone, and is a bound.
    let prompt = "x".repeat(5 * 1024 * 1024);
    let refused = server.try_run(in_session("s4", "r4", &prompt)).await;
    assert_refused(refused, Code::ResourceExhausted, "MESSAGE_TOO_LARGE");
    let many = vec![says(Role::User, &"x".repeat(9 * 1024 * 1024))];
    let refused = imported(&server, import("s4", "i4", many)).await;
    assert_refused(refused, Code::ResourceExhausted, "MESSAGE_TOO_LARGE");
}

/// A run keeps a call by a name that no tool has, or with arguments that are too long, and the result that refuses it.
#[tokio::test]
async fn every_conversation_of_a_run_can_be_imported() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let named = |id: &str, name: &str, arguments: &str| {
        let (call_id, arguments_json) = (id.to_owned(), arguments.to_owned());
        Content::ToolCall(wire::ToolCall {
            call_id,
            name: name.to_owned(),
            arguments_json,
            title: String::new(),
        })
    };
    let calls = vec![
        named("a", &"long_name".repeat(20), "{}"),
        named("b", "", "{}"),
        named("c", "weather", &format!("{:?}", "x".repeat(1_200_000))),
    ];
    let refused = |id: &str| result(id, "there is no such tool");
    let messages = vec![
        says(Role::User, &"x".repeat(3 * 1024 * 1024)),
        message(Role::Assistant, calls),
        message(Role::Tool, vec![refused("a"), refused("b"), refused("c")]),
    ];
    let added = imported(&server, import("s1", "i1", messages)).await.expect("imported");
    assert_eq!((added.first_entry_no, added.last_entry_no), (1, 5));
    model.says("I see");
    assert_eq!(server.run(in_session("s1", "r1", "and now?")).await.status(), RunStatus::Completed);
}

#[tokio::test]
async fn an_export_has_every_entry() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    imported(&server, import("s1", "import-1", conversation())).await.expect("imported");
    for at in 0..2 {
        model.says(&format!("answer {at}"));
        server.run(in_session("s1", &format!("r{at}"), "go on")).await;
    }
    let request = wire::ExportSessionRequest { session_id: "s1".to_owned() };
    let mut stream = soon(server.sessions().export_session(request)).await.expect("exported").into_inner();
    let mut lines = Vec::new();
    while let Some(part) = soon(stream.message()).await.expect("a line") {
        assert!(!part.continues);
        lines.push(serde_json::from_str::<Value>(&part.json_line).expect("a line is JSON"));
    }
    assert_eq!(lines[0]["session"]["sessionId"], "s1");
    let runs: Vec<_> = lines.iter().filter_map(|line| line["run"]["runId"].as_str()).collect();
    assert_eq!(runs, ["r1", "r0", "import-1"]);
    let numbers: Vec<_> = lines.iter().filter_map(|line| line["entry"]["entryNo"].as_str()).collect();
    assert_eq!(numbers, ["1", "2", "3", "4", "5", "6", "7", "8", "9", "10"]);
    assert_eq!(lines[4 + 9]["entry"]["message"]["parts"], json!([{ "text": "answer 1" }]));
    let request = wire::ExportSessionRequest { session_id: "none".to_owned() };
    let none = soon(server.sessions().export_session(request)).await.map(|_| ());
    assert_refused(none, Code::NotFound, "SESSION_NOT_FOUND");
}

/// The export goes on as it is read. By then, the id may be that of somebody else's session.
#[tokio::test]
async fn an_export_has_nothing_of_a_later_session_of_its_id() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let fill = async |words: &str| {
        for at in 0..8 {
            let long = words.repeat(2_500_000 / words.len());
            let run = format!("{words}-{at}");
            let request = import("s1", &run, vec![says(Role::User, &long)]);
            imported(&server, request).await.expect("imported");
        }
    };
    fill("mine").await;
    let request = wire::ExportSessionRequest { session_id: "s1".to_owned() };
    let mut stream = soon(server.sessions().export_session(request)).await.expect("exported").into_inner();
    soon(stream.message()).await.expect("a line").expect("the session");
    let delete = wire::DeleteSessionRequest { session_id: "s1".to_owned() };
    soon(server.sessions().delete_session(delete)).await.expect("deleted");
    fill("theirs").await;
    let ended = loop {
        match soon(stream.message()).await {
            Ok(Some(part)) => assert!(!part.json_line.contains("theirs"), "it is of another session"),
            Ok(None) => panic!("the export is not whole"),
            Err(status) => break status,
        }
    };
    assert_refused::<()>(Err(ended), Code::NotFound, "SESSION_NOT_FOUND");
}

#[tokio::test]
async fn entries_tell_what_they_cost() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let host = Host::start(&server).await;
    model.asks("weather", json!({ "city": "Rome" })).says("It is sunny.");
    server.run(in_session("s1", "r1", "How is Rome?")).await;
    drop(host);
    let entries = server.entries("s1").await;
    let finish: Vec<_> = entries.iter().map(wire::Entry::finish_reason).collect();
    use wire::FinishReason::{Stop, ToolCalls, Unspecified};
    assert_eq!(finish, [Unspecified, ToolCalls, Unspecified, Stop]);
    let models: Vec<_> = entries.iter().map(|entry| entry.model.as_str()).collect();
    assert_eq!(models, ["", "fake/m", "", "fake/m"]);
    let has_usage: Vec<_> = entries.iter().map(|entry| entry.usage.is_some()).collect();
    assert_eq!(has_usage, [false, true, false, true]);
    let has_duration: Vec<_> = entries.iter().map(|entry| entry.duration.is_some()).collect();
    assert_eq!(has_duration, [false, true, true, true]);
    let run = server.get_run("r1").await;
    let output: u64 = entries.iter().filter_map(|entry| entry.usage).map(|usage| usage.output_tokens).sum();
    assert_eq!(Some(output), run.usage.map(|usage| usage.output_tokens));
}
