//! `agentloop top` in a terminal, against a server process.

use crate::{process::ended, pty::Pty, served::Server};

#[tokio::test]
async fn a_run_is_seen_looked_into_and_its_question_answered() {
    let mut server = Server::start().await;
    let host = server.host().await;
    let mut top = Pty::start(&server.url(), &["top"], &server.file(""));
    top.sees("no run is open").await;
    let (code, _, stderr) = ended(&server.url(), &["run", "--run-id", "r-mail", "send a mail"]).await;
    assert_eq!(code, 4, "{stderr}");
    top.sees("awaiting_human").await;
    top.sees("may send_email run?").await;
    top.sees("connected").await;
    top.sees("questions: 1").await;

    top.types("\r");
    top.sees("run      r-mail").await;
    top.types(" ");
    top.types("a");
    top.sees("wrong@example.com").await;
    top.types("n");
    top.sees("denied").await;
    top.sees("no run is open").await;

    drop(host);
    server.kill().await;
    top.sees("the server is away").await;
    server.start_again().await;
    let (code, _, stderr) = ended(&server.url(), &["run", "which town"]).await;
    assert_eq!(code, 4, "{stderr}");
    top.sees("Which town?").await;
    top.types("a");
    top.sees("Enter answers, Esc leaves it open").await;
    top.types("Ulm");
    top.sees("Ulm▏").await;
    top.types("\r");
    top.sees("no run is open").await;

    let (code, _, stderr) = ended(&server.url(), &["run", "which town"]).await;
    assert_eq!(code, 4, "{stderr}");
    top.sees("Which town?").await;
    top.types("x");
    top.sees("abort?").await;
    top.types("y");
    top.sees("no run is open").await;
    top.types("q");
    assert_eq!(top.ends().await.0, 0);
}

#[tokio::test]
async fn it_needs_a_terminal_and_a_server() {
    let server = Server::start().await;
    assert_eq!(ended(&server.url(), &["top"]).await.0, 2);
}
