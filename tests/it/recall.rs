//! The built-in context source `recall`: what was said in other sessions reaches the model.

use agentloop_client::v1 as wire;
use agentloop_tests::events::names;
use agentloop_tests::input::in_session;
use agentloop_tests::model::Model;
use agentloop_tests::server::TestServer;
use wire::run_event::Event;

/// A prompt for a run that recalls.
fn recalling(session: &str, run: &str, prompt: &str) -> wire::RunInput {
    let names = vec!["recall".to_owned()];
    wire::RunInput { context_sources: Some(wire::Names { names }), ..in_session(session, run, prompt) }
}

/// A server where one fact was said in the session `s1`.
async fn talked() -> (Model, TestServer) {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    model.says("A fine name.");
    server.run(in_session("s1", "r1", "My dog is called Argos.")).await;
    (model, server)
}

/// The context that the run's sources gave to the model.
async fn recalled(server: &TestServer, session: &str) -> Vec<String> {
    let entries = server.entries(session).await;
    let texts = entries.into_iter().filter_map(|entry| {
        let text: String = entry.message?.parts.into_iter().filter_map(text).collect();
        text.starts_with("<context source=\"recall\">").then_some(text)
    });
    texts.collect()
}

fn text(part: wire::Part) -> Option<String> {
    match part.content {
        Some(wire::part::Content::Text(text)) => Some(text),
        _ => None,
    }
}

/// The `ExtensionApplied` event of the one source: outcome and error.
async fn told(server: &TestServer, run: &str) -> (String, String) {
    let mut events = server.subscribe(run, 0).await;
    events.wait_for_name("run_finished").await;
    let told = events.seen.iter().find_map(|event| match &event.event {
        Some(Event::ExtensionApplied(applied)) => Some((applied.outcome.clone(), applied.error.clone())),
        _ => None,
    });
    told.unwrap_or_else(|| panic!("no source was asked: {:?}", names(&events.seen)))
}

#[tokio::test]
async fn a_fact_of_one_session_reaches_the_model_in_another() {
    let (model, mut server) = talked().await;
    model.says("Argos.");
    server.run(recalling("s2", "r2", "What is my dog called?")).await;
    let request = model.last_request().to_string();
    assert!(request.contains("User: My dog is called Argos."), "{request}");
    let given = recalled(&server, "s2").await;
    let [given] = given.as_slice() else { panic!("{given:?}") };
    assert!(given.starts_with("<context source=\"recall\">\n[session s1, entry 1, 20"), "{given}");

    server.restart().await;
    model.says("Argos, still.");
    server.run(recalling("s3", "r3", "And who is Argos?")).await;
    let given = recalled(&server, "s3").await;
    assert_eq!(given.len(), 1);
    assert!(given[0].contains("User: My dog is called Argos."), "{given:?}");
    assert!(
        !given[0].contains("<context source=\"recall\">\n<context"),
        "what was recalled is not recalled again"
    );
}

#[tokio::test]
async fn a_run_is_not_told_what_its_own_session_says() {
    let (model, server) = talked().await;
    model.says("Argos.");
    server.run(recalling("s1", "r2", "What is my dog called?")).await;
    assert_eq!(told(&server, "r2").await, ("gave nothing".to_owned(), String::new()));
    assert_eq!(recalled(&server, "s1").await, [] as [String; 0]);
}

#[tokio::test]
async fn recall_without_hits_adds_nothing() {
    let (model, server) = talked().await;
    model.says("Paris.");
    server.run(recalling("s2", "r2", "Which town lies on the Seine?")).await;
    assert_eq!(told(&server, "r2").await, ("gave nothing".to_owned(), String::new()));
    assert_eq!(server.entries("s2").await.len(), 2, "the prompt and the answer");
}

#[tokio::test]
async fn nothing_in_a_prompt_is_an_operator_of_the_search() {
    let long = format!("\"{}", "(argos* OR ".repeat(2_000));
    let prompts =
        ["\" OR argos NEAR(", "argos*\" --; DROP TABLE search_index", "{argos} : ^ +- \u{1}", &long];
    for prompt in prompts {
        let (model, server) = talked().await;
        model.says("Well.");
        let ended = server.run(recalling("s2", "r2", prompt)).await;
        assert_eq!(ended.status(), wire::RunStatus::Completed, "{prompt:.40}");
        assert_eq!(told(&server, "r2").await, ("gave 1".to_owned(), String::new()), "{prompt:.40}");
        let given = recalled(&server, "s2").await;
        assert!(given[0].contains("User: My dog is called Argos."), "{prompt:.40}: {given:?}");
    }
}
