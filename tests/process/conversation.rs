//! One whole conversation with a host in every language: a question, a tool, a human, an answer.

use agentloop_client::v1::decision::Decision;
use agentloop_client::v1::run_event::Event;
use agentloop_client::v1::{Approve, EffectClass, HumanRequestKind, Role, ToolStatus};
use serde_json::{Value, json};

use crate::support::child::lines_with;
use crate::support::eventually;
use crate::support::follow::{Follower, outcome, text};
use crate::support::host::{Host, of_the_command};
use crate::support::model::Model;
use crate::support::server::{Server, input};

#[tokio::test]
async fn with_a_host_in_python() {
    with_an_example("python").await;
}

#[tokio::test]
async fn with_a_host_in_typescript() {
    with_an_example("typescript").await;
}

#[tokio::test]
async fn with_a_host_in_go() {
    with_an_example("go").await;
}

#[tokio::test]
async fn with_a_host_in_rust() {
    with_an_example("rust").await;
}

async fn with_an_example(language: &str) {
    let mut model = Model::start().await;
    let server = Server::start(&model.setting()).await;
    let Some(host) = Host::example(&server, language).await else { return };
    let run = converse(&server, &mut model).await;
    let titled =
        |event: &Event| matches!(event, Event::ToolCallProposed(call) if call.title == "Weather in Beijing");
    assert_eq!(run.count(titled), 1);
    let sent = host.did("send_email");
    assert_eq!(sent.len(), 1, "{sent:?}");
    assert!(sent[0].ends_with(" team@example.com"), "{sent:?}");
}

#[tokio::test]
async fn with_the_host_of_the_command() {
    let mut model = Model::start().await;
    let server = Server::start(&model.setting()).await;
    let outbox = server.file("outbox");
    let _host = of_the_command(&server, "command-1", &outbox).await;
    converse(&server, &mut model).await;
    let sent = lines_with(&outbox, "team@example.com");
    assert_eq!(sent.len(), 1, "{sent:?}");
}

async fn converse(server: &Server, model: &mut Model) -> Follower {
    let mut run = Follower::start(server, input("r-1", "s-1", "Mail the weather in Beijing")).await;

    let call = model.call().await;
    let offered: Vec<&str> = call.request["tools"]
        .as_array()
        .expect("tools are offered")
        .iter()
        .filter_map(|tool| tool["function"]["name"].as_str())
        .collect();
    assert!(offered.contains(&"get_weather") && offered.contains(&"send_email"), "{offered:?}");
    call.use_tool("get_weather", json!({ "city": "Beijing" })).await;

    let weather = run.result().await;
    let (status, output) = outcome(&weather);
    assert_eq!(status, ToolStatus::Succeeded, "{output}");
    let weather: Value = serde_json::from_str(output).expect("json");
    assert_eq!(weather, json!({ "city": "Beijing", "celsius": 8.5, "sky": "clear" }));

    let call = model.call().await;
    assert!(call.last_message().contains("Beijing"), "{}", call.last_message());
    let email = json!({ "to": "team@example.com", "subject": "The weather", "body": "mild" });
    call.use_tool("send_email", email).await;

    let question = run.question().await;
    assert_eq!(question.kind(), HumanRequestKind::Approve);
    assert_eq!(question.tool, "send_email");
    assert_eq!(server.question("r-1").await.request_id, question.request_id);
    assert!(!model.was_called(), "the model goes on before the human does");
    run.decide(&question, Decision::Approve(Approve {})).await;

    assert_eq!(outcome(&run.result().await), (ToolStatus::Succeeded, "sent to team@example.com"));
    model.call().await.say("It is sent.").await;
    assert_eq!(run.answer().await, "It is sent.");
    check_events(&run);
    check_entries(&run).await;
    nothing_waits(server).await;
    run
}

fn check_events(run: &Follower) {
    assert!(matches!(run.seen.first().and_then(|first| first.event.as_ref()), Some(Event::RunStarted(_))));
    assert_eq!(run.count(|event| matches!(event, Event::ModelCallStarted(_))), 3);
    assert_eq!(run.count(|event| matches!(event, Event::ToolCallAccepted(_))), 2);
    let unsafe_calls = run.count(|event| {
        matches!(event, Event::ToolCallProposed(call)
            if call.effect() == EffectClass::Unsafe && call.requires_approval && call.tool == "send_email")
    });
    assert_eq!(unsafe_calls, 1);
}

async fn check_entries(run: &Follower) {
    let entries = run.entries().await;
    let messages: Vec<_> = entries.iter().filter_map(|entry| entry.message.as_ref()).collect();
    let roles: Vec<Role> = messages.iter().map(|message| message.role()).collect();
    use Role::{Assistant, Tool, User};
    assert_eq!(roles, [User, Assistant, Tool, Assistant, Tool, Assistant]);
    assert_eq!(text(messages[0]), "Mail the weather in Beijing");
    assert_eq!(text(messages[5]), "It is sent.");
}

async fn nothing_waits(server: &Server) {
    let client = server.client();
    eventually("an empty inbox", || async {
        client.list_pending(Default::default()).await.expect("listed").requests.is_empty().then_some(())
    })
    .await;
}
