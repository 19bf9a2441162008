//! Hosts in every language whose tool asks a human from inside its call.

use agentloop_client::v1 as wire;
use agentloop_client::v1::run_event::Event;
use agentloop_client::v1::submit_input_request::Input;
use serde_json::json;

use crate::support::eventually;
use crate::support::follow::{Follower, outcome};
use crate::support::host::Host;
use crate::support::model::Model;
use crate::support::server::{Server, input};

/// The host of a language whose tool `book` asks for a seat, a side and meals.
async fn host(server: &Server, language: &str) -> Option<Host> {
    match language {
        "rust" => Some(Host::start(server, "rust-1").await),
        other => Host::extensions(server, other).await,
    }
}

async fn answer(server: &Server, question: &wire::HumanRequest, input: Input) {
    let request = wire::SubmitInputRequest {
        request_id: question.request_id.clone(),
        input: Some(input),
        answered_by: "a test".to_owned(),
    };
    server.client().submit_input(request).await.expect("answered");
}

fn text(text: &str) -> Input {
    Input::Text(text.to_owned())
}

fn chosen(ids: &[&str]) -> Input {
    Input::Selection(wire::Selection { option_ids: ids.iter().map(ToString::to_string).collect() })
}

#[tokio::test]
async fn in_rust() {
    asks_while_the_server_is_killed("rust").await;
    gives_up_when_nobody_answers("rust").await;
    finishes_before_it_leaves("rust").await;
}

#[tokio::test]
async fn in_python() {
    asks_while_the_server_is_killed("python").await;
    gives_up_when_nobody_answers("python").await;
    finishes_before_it_leaves("python").await;
}

#[tokio::test]
async fn in_typescript() {
    asks_while_the_server_is_killed("typescript").await;
    gives_up_when_nobody_answers("typescript").await;
    finishes_before_it_leaves("typescript").await;
}

#[tokio::test]
async fn in_go() {
    asks_while_the_server_is_killed("go").await;
    gives_up_when_nobody_answers("go").await;
    finishes_before_it_leaves("go").await;
}

async fn asks_while_the_server_is_killed(language: &str) {
    let mut model = Model::start().await;
    let mut server = Server::start(&model.setting()).await;
    let Some(host) = host(&server, language).await else { return };
    let mut run = Follower::start(&server, input("r-1", "s-1", "Book a seat")).await;
    model.call().await.use_tool("book", json!({ "patience": 600 })).await;
    let seat = run.question().await;
    assert_eq!((seat.kind(), seat.question.as_str()), (wire::HumanRequestKind::Prompt, "Which seat?"));
    assert_eq!(seat.tool, "book");

    server.kill().await;
    server.start_again().await;
    assert_eq!(server.question("r-1").await.request_id, seat.request_id);
    answer(&server, &seat, text("12A")).await;

    let side = run.question().await;
    assert_eq!((side.kind(), side.multiple), (wire::HumanRequestKind::Select, false));
    let options: Vec<_> = side.options.iter().map(|option| (&*option.id, &*option.label)).collect();
    assert_eq!(options, [("a", "aisle"), ("w", "window")]);
    // Answered before the host is back: it asks again, and hears of it.
    server.kill().await;
    server.start_again().await;
    answer(&server, &side, chosen(&["w"])).await;

    let meals = run.question().await;
    assert!(meals.multiple);
    answer(&server, &meals, chosen(&["lunch", "dinner"])).await;
    let result = run.result().await;
    assert_eq!(outcome(&result), (wire::ToolStatus::Succeeded, "seat 12A, w, with lunch and dinner"));
    assert_eq!((result.host_id.as_str(), result.attempt), (host.id.as_str(), 1));
    let pictures = result.result.expect("it was looked at").images;
    let [wire::Image { source: Some(wire::image::Source::Data(data)), media_type }] = &pictures[..] else {
        panic!("one picture: {pictures:?}")
    };
    assert_eq!((data.get(..6), media_type.as_str()), (Some(&b"GIF89a"[..]), "image/gif"));
    model.call().await.say("Booked.").await;
    assert_eq!(run.answer().await, "Booked.");
    assert_eq!(run.count(|event| matches!(event, Event::HumanRequested(_))), 3, "no human was asked twice");
    assert_eq!((host.did("booking").len(), host.did("booked").len()), (1, 1));
}

/// A refusal is the tool's to deal with; and a call that is stopped while it asks leaves its host.
async fn gives_up_when_nobody_answers(language: &str) {
    let mut model = Model::start().await;
    let server = Server::start(&model.setting()).await;
    let Some(host) = host(&server, language).await else { return };
    let mut run = Follower::start(&server, input("r-1", "s-1", "Book a seat")).await;
    model.call().await.use_tool("book", json!({ "patience": 0.2 })).await;
    answer(&server, &run.question().await, text("1C")).await;
    let result = run.result().await;
    let (status, output) = outcome(&result);
    assert_eq!(status, wire::ToolStatus::Succeeded);
    assert_eq!(output, "seat 1C, and no side: no answer: nobody answered in time");

    model.call().await.use_tool("book", json!({ "patience": 600 })).await;
    run.question().await;
    server.client().abort_run("r-1", "enough").await.expect("aborted");
    assert_eq!(outcome(&run.result().await).0, wire::ToolStatus::Aborted);
    let client = server.client();
    eventually("a host without calls", || async {
        let hosts = client.list_hosts().await.expect("listed");
        hosts.iter().all(|host| host.calls_in_flight == 0).then_some(())
    })
    .await;
    assert_eq!((host.did("booking").len(), host.did("booked").len()), (2, 0));
}

async fn finishes_before_it_leaves(language: &str) {
    let mut model = Model::start().await;
    let server = Server::start(&model.setting()).await;
    let Some(host) = host(&server, language).await else { return };
    let mut run = Follower::start(&server, input("r-1", "s-1", "Book a seat")).await;
    model.call().await.use_tool("book", json!({ "patience": 0.2 })).await;
    let seat = run.question().await;
    host.process.signal("INT").await;
    server.host_is(&host.id, wire::HostHealth::Draining).await;
    answer(&server, &seat, text("7F")).await;
    assert_eq!(outcome(&run.result().await).0, wire::ToolStatus::Succeeded);
    let Host { process, .. } = host;
    let (code, said) = process.ended().await;
    assert_eq!(code, 0, "{said}");
    model.call().await.say("Booked.").await;
    assert_eq!(run.answer().await, "Booked.");
}
