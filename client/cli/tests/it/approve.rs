//! `agentloop approve` against a server process.

use crate::{process::ended, served::Server};

#[tokio::test]
async fn a_decision_is_remembered_for_the_session() {
    let server = Server::start().await;
    let _host = server.host().await;
    let url = server.url();
    let run = async |run_id: &str| {
        ended(&url, &["run", "send a mail", "--session", "post", "--run-id", run_id]).await
    };
    assert_eq!(run("r-1").await.0, 4);
    let (_, listed, _) = ended(&url, &["approve", "--run", "r-1", "--json"]).await;
    let (_, rest) = listed.split_once(r#""requestId":""#).expect("one waits");
    let request = rest.split_once('"').expect("a JSON string ends").0;
    let (code, decided, stderr) =
        ended(&url, &["approve", request, "--remember", "session", "--as", "ada"]).await;
    assert_eq!(code, 0, "{stderr}");
    assert!(
        decided.contains("approved by ada, and remembered: allow send_email where the whole is"),
        "{decided}"
    );
    assert_eq!(ended(&url, &["watch", "r-1"]).await.0, 0);

    assert_eq!(run("r-2").await.0, 0, "the same call again");
    let (_, rules, _) = ended(&url, &["policy", "rules", "--session", "post"]).await;
    assert_eq!(rules.lines().count(), 2, "{rules}");
}

#[tokio::test]
async fn arguments_that_the_server_finds_wrong_are_wrong_usage() {
    let server = Server::start().await;
    let (code, _, stderr) = ended(&server.url(), &["policy", "check", "send_email", "no JSON"]).await;
    assert_eq!((code, stderr.lines().count()), (2, 1), "{stderr}");
}
