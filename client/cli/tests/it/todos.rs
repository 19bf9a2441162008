//! The to-do list of a session, as `chat` and `run` show it.

use crate::{chat::talk, process::ended, pty::Pty, served::Server};

#[tokio::test]
async fn the_chat_shows_the_last_list_also_when_it_comes_back() {
    let server = Server::start().await;
    let mut chat = talk(&server, &["--session", "trip"]).await;
    chat.types("plan the trip\r");
    chat.sees("Half of it is done.").await;
    chat.sees("☰ to do").await;
    chat.sees("[x] Book the ferry").await;
    chat.sees("[~] ! Pack").await;
    chat.types("\x04");
    chat.ends().await;
    let mut chat = talk(&server, &["--session", "trip"]).await;
    chat.sees("[x] Book the ferry").await;
    chat.sees("[~] ! Pack").await;
}

#[tokio::test]
async fn a_run_prints_each_list() {
    let server = Server::start().await;
    let mut run = Pty::start(&server.url(), &["run", "plan the trip"], &server.file(""));
    run.sees("☰ to do").await;
    run.sees("[~] Book the ferry").await;
    run.sees("[x] Book the ferry").await;
    run.sees("Half of it is done.").await;
    assert_eq!(run.ends().await.0, 0);
    let (code, stdout, stderr) = ended(&server.url(), &["run", "plan the trip"]).await;
    assert_eq!((code, stdout.as_str()), (0, "Half of it is done.\n"), "{stderr}");
    assert!(stderr.contains("  [ ] ! Pack") && stderr.contains("  [~] ! Pack"), "{stderr}");
}
