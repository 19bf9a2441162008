//! Titles and labels of sessions: what callers change, and sessions that are found by their user.

use agentloop_client::v1 as wire;
use agentloop_tests::errors::assert_refused;
use agentloop_tests::input::in_session;
use agentloop_tests::model::Model;
use agentloop_tests::server::TestServer;
use agentloop_tests::soon;
use futures_util::future::join_all;
use tonic::{Code, Status};

async fn update(server: &TestServer, request: wire::UpdateSessionRequest) -> Result<wire::Session, Status> {
    let answer = soon(server.sessions().update_session(request)).await?;
    Ok(answer.into_inner().session.expect("a session"))
}

async fn session_of(server: &TestServer, user: &str, project: &str) -> wire::GetOrCreateSessionResponse {
    let request = wire::GetOrCreateSessionRequest {
        user: user.to_owned(),
        project: project.to_owned(),
        title: "A first title".to_owned(),
        labels: [("team".to_owned(), "red".to_owned())].into(),
    };
    soon(server.sessions().get_or_create_session(request)).await.expect("found or created").into_inner()
}

fn id(answer: &wire::GetOrCreateSessionResponse) -> String {
    answer.session.as_ref().expect("a session").session_id.clone()
}

#[tokio::test]
async fn a_title_that_a_person_gives_is_not_replaced_by_the_models() {
    let model = Model::start().await;
    let server = TestServer::with(&model, "[agents.default.background]\ntitle = true\n").await;
    let mut speech = model.speaks();
    let events = server.stream(in_session("s1", "r1", "hi")).await;
    speech.asked().await;
    let rename = wire::UpdateSessionRequest {
        session_id: "s1".to_owned(),
        title: Some("Mine".to_owned()),
        ..Default::default()
    };
    // While a run is live, and repeated.
    for _ in 0..2 {
        let session = update(&server, rename.clone()).await.expect("updated");
        assert_eq!((session.title.as_str(), session.live_run_id.as_str()), ("Mine", "r1"));
    }
    speech.say("hello");
    speech.end();
    events.rest().await;
    model.says("and on");
    let result = server.run(in_session("s1", "r2", "go on")).await;
    assert_eq!(result.status(), wire::RunStatus::Completed);
    let request = wire::GetSessionRequest { session_id: "s1".to_owned() };
    let session = soon(server.sessions().get_session(request)).await.expect("there").into_inner().session;
    assert_eq!(session.expect("a session").title, "Mine");
}

#[tokio::test]
async fn a_user_and_a_project_that_are_too_long_are_named() {
    let server = TestServer::with(&Model::start().await, "").await;
    for (user, project, said) in [
        ("u".repeat(5000), String::new(), "user: must be at most 4092 bytes"),
        ("ada".to_owned(), "p".repeat(5000), "project: must be at most 4089 bytes"),
    ] {
        let request = wire::GetOrCreateSessionRequest { user, project, ..Default::default() };
        let refused = soon(server.sessions().get_or_create_session(request)).await;
        let refused = assert_refused(refused, Code::InvalidArgument, "INVALID_FIELD");
        assert_eq!(refused.message(), said);
    }
}

#[tokio::test]
async fn labels_are_set_and_removed_one_by_one() {
    let model = Model::start().await;
    let mut server = TestServer::start(&model).await;
    let created = wire::CreateSessionRequest {
        session_id: Some("s1".to_owned()),
        title: "Given".to_owned(),
        labels: [("team".to_owned(), "blue".to_owned()), ("old".to_owned(), "1".to_owned())].into(),
    };
    let before = soon(server.sessions().create_session(created.clone())).await.expect("created");
    let before = before.into_inner().session.expect("a session");
    let change = wire::UpdateSessionRequest {
        session_id: "s1".to_owned(),
        title: None,
        set_labels: [("team".to_owned(), "red".to_owned())].into(),
        remove_labels: vec!["old".to_owned(), "never there".to_owned()],
    };
    let after = wire::Session { labels: [("team".to_owned(), "red".to_owned())].into(), ..before };
    assert_eq!(update(&server, change.clone()).await.expect("updated"), after);
    server.restart().await;
    assert_eq!(update(&server, change).await.expect("repeated"), after);
    let again = soon(server.sessions().create_session(created)).await.expect("confirmed after a change");
    assert_eq!(again.into_inner().session, Some(after));
    let none = wire::UpdateSessionRequest { session_id: "none".to_owned(), ..Default::default() };
    assert_refused(update(&server, none).await, Code::NotFound, "SESSION_NOT_FOUND");
}

#[tokio::test]
async fn calls_for_one_user_at_a_time_get_one_session() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let found = join_all((0..16).map(|_| session_of(&server, "ann", ""))).await;
    assert_eq!(found.iter().filter(|answer| answer.created).count(), 1);
    let first = id(&found[0]);
    assert!(found.iter().all(|answer| id(answer) == first), "{found:?}");
    let labels = &found[0].session.as_ref().expect("a session").labels;
    let labels: Vec<_> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    assert_eq!(labels, ["team=red", "user=ann"]);

    let other = session_of(&server, "ann", "p").await;
    assert!(other.created && id(&other) != first, "a project has a session of its own");
    model.says("hello");
    server.run(in_session(&first, "r1", "hi")).await;
    let again = session_of(&server, "ann", "").await;
    assert_eq!((again.created, id(&again), again.session.expect("a session").entry_count), (false, first, 2));
}

#[tokio::test]
async fn sessions_are_found_by_what_they_are_about_and_how_they_stand() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let of_ann = session_of(&server, "ann", "").await;
    let ann = id(&of_ann);
    model.says("hello");
    server.run(in_session(&ann, "r1", "How do I\n  get to Bergen?")).await;
    let mut speech = model.speaks();
    let events = server.stream(in_session("s2", "r2", "The minutes, please")).await;
    speech.asked().await;

    let list = async |filter: wire::SessionFilter| {
        let request = wire::ListSessionsRequest { filter: Some(filter), ..Default::default() };
        let page = soon(server.sessions().list_sessions(request)).await.expect("listed").into_inner();
        page.sessions
    };
    let ids = |sessions: &[wire::Session]| {
        sessions.iter().map(|session| session.session_id.clone()).collect::<Vec<_>>()
    };
    let user = |name: &str| wire::SessionFilter {
        labels: [("user".to_owned(), name.to_owned())].into(),
        ..Default::default()
    };
    let found = list(user("ann")).await;
    assert_eq!(ids(&found), [ann.as_str()]);
    assert_eq!(found[0].preview, "How do I get to Bergen?");
    assert_eq!(
        (found[0].status(), found[0].agent.as_str(), found[0].model.as_str()),
        (wire::RunStatus::Completed, "default", "fake/m")
    );
    assert_eq!(list(user("ben")).await, []);
    let running =
        wire::SessionFilter { statuses: vec![wire::RunStatus::ModelRunning.into()], ..Default::default() };
    assert_eq!(ids(&list(running).await), ["s2"]);
    let text = |text: &str| wire::SessionFilter { text: text.to_owned(), ..Default::default() };
    assert_eq!(ids(&list(text("BERGEN")).await), [ann.as_str()]);
    assert_eq!(ids(&list(text("first TITLE")).await), [ann.as_str()]);
    speech.end();
    events.rest().await;

    let request = wire::ForkSessionRequest {
        session_id: ann.clone(),
        new_session_id: Some("fork".to_owned()),
        at_entry_no: 0,
    };
    let fork = soon(server.sessions().fork_session(request)).await.expect("forked").into_inner();
    let fork = fork.session.expect("a session");
    assert_eq!(
        (fork.preview.as_str(), fork.status()),
        ("How do I get to Bergen?", wire::RunStatus::Unspecified)
    );
    let forks = wire::SessionFilter { forked_from_session_id: ann, ..Default::default() };
    assert_eq!(ids(&list(forks).await), ["fork"]);
}
