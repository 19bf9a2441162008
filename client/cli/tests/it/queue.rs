//! `agentloop queue` against a server process.

use crate::{
    chat::talk,
    process::{Running, agentloop, ended},
    served::Server,
};

#[tokio::test]
async fn what_waits_is_listed_and_taken_out() {
    let server = Server::start().await;
    let url = server.url();
    let queue = async |args: &[&str]| ended(&url, &[&["queue"], args].concat()).await;
    assert_eq!(queue(&["s-1"]).await.0, 1, "there is no such session");
    assert_eq!(ended(&url, &["run", "hello", "--session", "s-1"]).await.0, 0);
    assert_eq!(queue(&["s-1"]).await.1, "nothing waits in this session\n");

    let mut chat = talk(&server, &["--session", "s-1"]).await;
    chat.types("an endless story\r");
    chat.sees("model running").await;
    chat.types("one day\r");
    chat.sees("queued: one day").await;
    chat.types("another day\r");
    chat.sees("queued: another day").await;

    let (code, listed, stderr) = queue(&["s-1"]).await;
    assert_eq!(code, 0, "{stderr}");
    let rows: Vec<Vec<&str>> = listed.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["PLACE", "RUN", "SINCE", "PROMPT"], "{listed}");
    assert!(rows[1][0] == "1" && rows[1].ends_with(&["one", "day"]), "{listed}");
    assert!(rows[2][0] == "2" && rows[2].ends_with(&["another", "day"]), "{listed}");
    let first = rows[1][1];

    let (code, _, stderr) = queue(&["elsewhere", "--remove", first]).await;
    assert_eq!(code, 1, "{stderr}");
    let (code, removed, stderr) = queue(&["s-1", "--remove", first]).await;
    assert_eq!((code, removed), (0, format!("removed {first}\n")), "{stderr}");
    let (code, _, stderr) = queue(&["s-1", "--remove", first]).await;
    assert!(code == 1 && stderr.contains("does not wait any more"), "{stderr}");

    let json = queue(&["s-1", "--json"]).await.1;
    assert!(json.starts_with('{') && json.lines().count() == 1 && !json.contains(first), "{json}");
    assert!(json.contains(r#""status":"RUN_STATUS_QUEUED""#), "{json}");
}

#[tokio::test]
async fn what_was_printed_for_people_is_printed_for_programs_too() {
    let server = Server::start().await;
    let url = server.url();
    for (args, expected) in [
        (&["health"][..], r#"{"status":"SERVING"}"#),
        (&["sessions", "nowhere", "--delete"], "{}"),
        (&["policy", "forget", "nothing"], "{}"),
    ] {
        let (code, stdout, stderr) = ended(&url, &[args, &["--json"]].concat()).await;
        assert_eq!((code, stdout.trim()), (0, expected), "{args:?} {stderr}");
    }
    let run = Running::start(agentloop(&url, &["run", "hello", "--json"])).line().await;
    assert!(run.starts_with('{') && run.contains("runStarted"), "{run}");
}
