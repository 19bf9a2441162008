//! `agentloop sessions`, `fork` and `runs` against a server process.

use crate::{process::ended, served::Server};

/// Runs the command, which must succeed, and returns its output.
async fn told(server: &Server, args: &[&str]) -> String {
    let (code, stdout, stderr) = ended(&server.url(), args).await;
    assert_eq!(code, 0, "{args:?}: {stderr}");
    stdout
}

#[tokio::test]
async fn a_fork_goes_its_own_way() {
    let server = Server::start().await;
    for prompt in ["one", "two"] {
        told(&server, &["run", prompt, "--session", "trip"]).await;
    }
    assert_eq!(told(&server, &["fork", "trip", "--at", "2", "--id", "other"]).await, "other\n");
    told(&server, &["run", "three", "--session", "other"]).await;

    let trip = told(&server, &["sessions", "trip"]).await;
    let other = told(&server, &["sessions", "other"]).await;
    assert!(trip.contains("two") && !trip.contains("three"), "{trip}");
    assert!(other.contains("one") && other.contains("three") && !other.contains("two"), "{other}");
    assert_eq!(ended(&server.url(), &["fork", "nowhere"]).await.0, 1);
}

#[tokio::test]
async fn runs_are_listed_by_where_they_stand() {
    let server = Server::start().await;
    told(&server, &["run", "one", "--run-id", "r-1"]).await;
    let listed = async |status| told(&server, &["runs", "--status", status]).await;
    assert!(listed("completed").await.contains("r-1"));
    assert!(!listed("queued").await.contains("r-1"));
    assert_eq!(ended(&server.url(), &["runs", "--status", "nonsense"]).await.0, 2);
}

#[tokio::test]
async fn a_session_that_is_none_is_an_error() {
    let server = Server::start().await;
    for command in [&["runs"][..], &["approve"], &["policy", "rules"]] {
        for (session, code, told) in [("nowhere", 1, "nowhere"), ("no id", 2, "session_id")] {
            let args = [command, &["--session", session]].concat();
            let (ended_with, stdout, stderr) = ended(&server.url(), &args).await;
            assert_eq!((ended_with, stdout.as_str()), (code, ""), "{args:?}: {stderr}");
            assert!(stderr.lines().count() == 1 && stderr.contains(told), "{args:?}: {stderr}");
        }
    }
    let (code, _, stderr) = ended(&server.url(), &["run", "hello", "--session", "no id"]).await;
    assert_eq!((code, stderr.lines().count()), (2, 1), "{stderr}");
}
