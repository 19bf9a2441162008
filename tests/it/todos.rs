//! The model keeps a to-do list of the session.

use agentloop_client::v1 as wire;
use agentloop_tests::events::results;
use agentloop_tests::input::in_session;
use agentloop_tests::model::Model;
use agentloop_tests::server::TestServer;
use agentloop_tests::soon;
use serde_json::{Value, json};
use wire::run_event::Event;
use wire::{RunStatus, TodoPriority, TodoStatus, ToolStatus};

fn keeping(run: &str) -> wire::RunInput {
    let policy = wire::ToolPolicy { todos: Some(true), ..Default::default() };
    wire::RunInput { tool_policy: Some(policy), ..in_session("s1", run, "go") }
}

fn list(status: &str) -> Value {
    json!({ "todos": [
        { "id": "a", "content": "Book the ferry", "status": status, "priority": "high" },
        { "id": "b", "content": "Pack", "status": "pending" },
    ] })
}

/// Contents and states of a session's list.
async fn todos(server: &TestServer, session: &str) -> Vec<(String, TodoStatus)> {
    let request = wire::GetSessionRequest { session_id: session.to_owned() };
    let session = soon(server.sessions().get_session(request)).await.expect("there").into_inner().session;
    let todos = session.expect("a session").todos;
    todos.iter().map(|item| (item.content.clone(), item.status())).collect()
}

fn said(pairs: &[(&str, TodoStatus)]) -> Vec<(String, TodoStatus)> {
    pairs.iter().map(|(content, status)| ((*content).to_owned(), *status)).collect()
}

#[tokio::test]
async fn the_list_stays_with_its_session_and_its_forks() {
    let model = Model::start().await;
    let mut server = TestServer::start(&model).await;
    model.asks("update_todos", list("in_progress")).says("begun");
    let events = server.stream(keeping("r1")).await.rest().await;
    let offered = model.last_request();
    let names: Vec<_> =
        offered["tools"].as_array().expect("tools").iter().map(|tool| &tool["function"]["name"]).collect();
    assert!(names.contains(&&json!("update_todos")), "{names:?}");
    let updated = events.iter().find_map(|event| match &event.event {
        Some(Event::TodosUpdated(updated)) => Some(updated.items.clone()),
        _ => None,
    });
    let updated = updated.expect("the list is an event");
    assert_eq!((updated[0].priority(), updated[1].priority()), (TodoPriority::High, TodoPriority::Medium));
    let results = results(&events);
    assert_eq!(results[0].status(), ToolStatus::Succeeded, "{results:?}");
    let begun = said(&[("Book the ferry", TodoStatus::InProgress), ("Pack", TodoStatus::Pending)]);
    assert_eq!(todos(&server, "s1").await, begun);

    server.restart().await;
    model.asks("update_todos", list("completed")).says("done");
    server.run(keeping("r2")).await;
    let done = said(&[("Book the ferry", TodoStatus::Completed), ("Pack", TodoStatus::Pending)]);
    assert_eq!(todos(&server, "s1").await, done);
    for (name, at, list) in [("early", 4, &begun), ("before", 2, &Vec::new()), ("whole", 0, &done)] {
        let request = wire::ForkSessionRequest {
            session_id: "s1".to_owned(),
            at_entry_no: at,
            new_session_id: Some(name.to_owned()),
        };
        soon(server.sessions().fork_session(request)).await.expect("forked");
        assert_eq!(todos(&server, name).await, *list, "{name}");
    }
    let request = wire::DeleteSessionRequest { session_id: "s1".to_owned() };
    soon(server.sessions().delete_session(request)).await.expect("deleted");
    assert_eq!(todos(&server, "early").await, begun);
    let request = wire::ReplayRunRequest { run_id: "r2".to_owned() };
    assert!(
        soon(server.agent_loop().replay_run(request)).await.is_err(),
        "its run is deleted with the session"
    );
}

#[tokio::test]
async fn a_list_that_is_wrong_is_refused_and_changes_nothing() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    model.asks("update_todos", list("in_progress")).asks("update_todos", list("later")).says("well");
    let events = server.stream(keeping("r1")).await.rest().await;
    let results = results(&events);
    assert_eq!(results[1].status(), ToolStatus::Rejected);
    assert!(results[1].output.contains("later"), "{results:?}");
    assert_eq!(todos(&server, "s1").await[0].1, TodoStatus::InProgress);
}

#[tokio::test]
async fn without_the_policy_the_model_has_no_such_tool() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    model.asks("update_todos", list("pending")).says("well");
    let events = server.stream(in_session("s1", "r1", "go")).await.rest().await;
    assert_eq!(results(&events)[0].status(), ToolStatus::Rejected);
    assert_eq!(todos(&server, "s1").await, []);
    assert_eq!(server.get_run("r1").await.status(), RunStatus::Completed);
}
