//! Background work: the titles and summaries that the model writes after a run.

use agentloop_client::v1 as wire;
use agentloop_tests::input::in_session;
use agentloop_tests::model::{Answer, Model};
use agentloop_tests::server::TestServer;
use agentloop_tests::soon;
use serde_json::Value;

const TITLE: &str = "[agents.default.background]\ntitle = true";
const SUMMARY: &str = "[agents.default.background]\nsummary = true\nmodel = \"fake/notes\"";
const BOTH: &str = "[agents.default.background]\ntitle = true\nsummary = true\nmodel = \"fake/notes\"";

async fn session(server: &TestServer) -> wire::Session {
    let request = wire::GetSessionRequest { session_id: "s1".to_owned() };
    let response = soon(server.sessions().get_session(request)).await.expect("the call succeeds");
    response.into_inner().session.expect("a session")
}

/// The session, as soon as it is like this: nobody is told when background work is done.
async fn session_with(server: &TestServer, is: impl Fn(&wire::Session) -> bool) -> wire::Session {
    soon(async {
        loop {
            let found = session(server).await;
            if is(&found) {
                return found;
            }
        }
    })
    .await
}

async fn titled(server: &TestServer) -> String {
    session_with(server, |session| !session.title.is_empty()).await.title
}

/// The instructions of a request, and the text that it is about.
fn asked(request: &Value) -> (&str, &str) {
    let text = |at: usize| request["messages"][at]["content"].as_str().unwrap_or_default();
    (text(0), text(1))
}

/// Requests that ask for a title.
fn namings(model: &Model) -> usize {
    model.requests().iter().filter(|request| asked(request).0.contains("You name conversations")).count()
}

#[tokio::test]
async fn a_title_is_made_after_the_answer_was_delivered() {
    let model = Model::start().await;
    let server = TestServer::with(&model, TITLE).await;
    model.says("It rains.");
    let mut naming = model.speaks();
    let result = server.run(in_session("s1", "r1", "How is Rome?")).await;
    assert_eq!(result.status(), wire::RunStatus::Completed);
    let request = naming.asked().await;
    assert_eq!(asked(&request).1, "User: How is Rome?\nAssistant: It rains.\n");
    assert_eq!(session(&server).await.title, "");

    naming.say("\"Weather in Rome\"\nA fitting title.");
    naming.end();
    assert_eq!(titled(&server).await, "Weather in Rome");
    assert_eq!(server.entries("s1").await.len(), 2, "it is no part of the conversation");
    assert_eq!(
        server.get_run("r1").await.usage.expect("usage").input_tokens,
        result.usage.expect("usage").input_tokens
    );
}

#[tokio::test]
async fn a_title_is_made_once_and_never_in_place_of_one_that_was_given() {
    let model = Model::start().await;
    let mut server = TestServer::with(&model, BOTH).await;
    let request = wire::CreateSessionRequest {
        session_id: Some("s1".to_owned()),
        title: "Mine".to_owned(),
        ..Default::default()
    };
    soon(server.sessions().create_session(request)).await.expect("created");
    model.answers(|request| {
        let said = if request["model"] == "notes" { "From the notes" } else { "It rains." };
        Answer::Says(said.to_owned())
    });
    for (run, entries) in [("r1", 2), ("r2", 4)] {
        server.run(in_session("s1", run, "How is Rome?")).await;
        session_with(&server, |session| session.summary_up_to_entry_no == entries).await;
    }
    // Jobs that were under way have ended when the server has.
    server.restart().await;
    assert_eq!(session(&server).await.title, "Mine");
    assert_eq!(namings(&model), 0);
}

#[tokio::test]
async fn a_summary_follows_the_conversation() {
    let model = Model::start().await;
    let server = TestServer::with(&model, SUMMARY).await;
    model.answers(|request| {
        let said = match asked(request).1 {
            _ if request["model"] != "notes" => "It rains.",
            text if text.contains("Summary so far:") => "Rome, then Oslo.",
            _ => "Rome.",
        };
        Answer::Says(said.to_owned())
    });
    server.run(in_session("s1", "r1", "How is Rome?")).await;
    let first = session_with(&server, |session| session.summary_up_to_entry_no == 2).await;
    assert_eq!((first.summary.as_str(), first.title.as_str()), ("Rome.", ""));

    server.run(in_session("s1", "r2", "And Oslo?")).await;
    let second = session_with(&server, |session| session.summary_up_to_entry_no == 4).await;
    assert_eq!(second.summary, "Rome, then Oslo.");
    let requests = model.requests();
    let last = requests.iter().rfind(|request| request["model"] == "notes").expect("asked");
    let expected = "Summary so far:\nRome.\n\nSince then:\nUser: And Oslo?\nAssistant: It rains.\n";
    assert_eq!(asked(last).1, expected, "only what is new is read");
}

#[tokio::test]
async fn a_model_that_fails_is_asked_again() {
    let model = Model::start().await;
    let server = TestServer::with(&model, TITLE).await;
    model.says("It rains.").fails(503).fails(429).says("Weather in Rome");
    server.run(in_session("s1", "r1", "How is Rome?")).await;
    assert_eq!(titled(&server).await, "Weather in Rome");
    assert_eq!(namings(&model), 3);
}

#[tokio::test]
async fn unfinished_background_work_is_done_after_a_restart() {
    let model = Model::start().await;
    let mut server = TestServer::with(&model, TITLE).await;
    model.says("It rains.");
    let mut naming = model.speaks();
    server.run(in_session("s1", "r1", "How is Rome?")).await;
    naming.asked().await;
    naming.say("Weather in");
    model.says("Weather in Rome");
    server.restart().await;
    assert_eq!(titled(&server).await, "Weather in Rome");
    assert_eq!(namings(&model), 2);
}

#[tokio::test]
async fn a_run_that_did_not_complete_is_not_written_about() {
    let model = Model::start().await;
    let server = TestServer::with(&model, BOTH).await;
    model.fails(400);
    let failed = server.run(in_session("s1", "r1", "How is Rome?")).await;
    assert_eq!(failed.status(), wire::RunStatus::Failed);
    model.answers(|request| {
        Answer::Says(if request["model"] == "notes" { "Rain" } else { "It rains." }.to_owned())
    });
    server.run(in_session("s1", "r2", "How is Rome?")).await;
    session_with(&server, |session| session.title == "Rain" && session.summary == "Rain").await;
    let written = model.requests().iter().filter(|request| request["model"] == "notes").count();
    assert_eq!(written, 2, "one title and one summary");
}

#[tokio::test]
async fn background_work_on_a_deleted_session_is_given_up() {
    let model = Model::start().await;
    let server = TestServer::with(&model, TITLE).await;
    model.says("It rains.");
    let mut naming = model.speaks();
    server.run(in_session("s1", "r1", "How is Rome?")).await;
    naming.asked().await;
    naming.say("Weather in ");
    let request = wire::DeleteSessionRequest { session_id: "s1".to_owned() };
    soon(server.sessions().delete_session(request)).await.expect("deleted");
    naming.hung_up().await;
    // A session and a run of the same names have a title of their own.
    model.says("It snows.").says("Weather in Oslo");
    server.run(in_session("s1", "r1", "How is Oslo?")).await;
    assert_eq!(titled(&server).await, "Weather in Oslo");
    assert_eq!(asked(&model.last_request()).1, "User: How is Oslo?\nAssistant: It snows.\n");
}
