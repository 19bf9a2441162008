//! `agentloop chat`: what the screen looks like, kept as text in `screens/`.

use crate::{chat::talk, pty::Pty, screens::shows, served::Server};

#[tokio::test]
async fn markdown_code_diffs_and_every_script_are_readable() {
    let server = Server::start().await;
    let mut chat = talk(&server, &["--session", "look"]).await;
    chat.resize(40, 50);
    chat.types("a page\r");
    chat.sees("ready  ").await;
    chat.sees("Oslo │ 12").await;
    shows(&mut chat, "page", &[]).await;
}

#[tokio::test]
async fn without_colours_the_text_is_the_same() {
    let server = Server::start().await;
    let mut chat = Pty::start_with(
        &server.url(),
        &["chat", "--session", "look"],
        &server.file(""),
        &[("NO_COLOR", "1")],
    );
    chat.sees("Enter sends").await;
    chat.resize(40, 50);
    chat.types("a page\r");
    chat.sees("ready  ").await;
    chat.sees("Oslo │ 12").await;
    assert!(chat.colours().is_empty());
    shows(&mut chat, "page", &[]).await;
}

#[tokio::test]
async fn agent_and_model_are_shown_and_changed() {
    let server = Server::start().await;
    let mut chat = talk(&server, &["--session", "choice"]).await;
    chat.sees("default · demo/scripted").await;
    chat.types("/agent\r");
    chat.sees("● default").await;
    chat.sees("Reads twice").await;
    chat.types("\x1b[B\r");
    chat.sees("from the next message on: reviewer with demo/careful").await;
    chat.types("hello\r");
    chat.sees("You said: hello").await;
    chat.sees("reviewer · demo/careful").await;
    chat.types("/model other\r");
    chat.sees("a model is named PROVIDER/MODEL, not other").await;
    chat.types("\x15/model demo/fast\r");
    chat.sees("reviewer · demo/fast").await;
    chat.types("/agent nobody\r");
    chat.sees("no agent nobody; there are: default reviewer").await;
    chat.types("\x15/model\r");
    chat.sees("what the agent reviewer has").await;
    chat.types("\x1b");
    chat.sees_no("what the agent reviewer has").await;
    chat.types("again\r");
    chat.sees("You said: again").await;
    let runs = crate::process::ended(&server.url(), &["runs", "--json"]).await.1;
    for wanted in ["\"agent\":\"reviewer\"", "\"model\":\"demo/careful\"", "\"model\":\"demo/fast\""] {
        assert!(runs.contains(wanted), "{wanted}: {runs}");
    }
}
