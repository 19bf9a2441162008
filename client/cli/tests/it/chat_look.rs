//! `agentloop chat`: what the screen looks like, kept as text in `screens/`.

use crate::{
    chat::talk,
    pty::Pty,
    screens::{self, shows},
    served::Server,
};

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
    chat.types("\x15/model nobody/fast\r");
    chat.sees("no provider serves nobody/fast; there are: demo/…").await;
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

#[tokio::test]
async fn the_windows_of_agents_and_models_are_the_same_without_colours() {
    let server = Server::start().await;
    let (url, folder) = (server.url(), server.file(""));
    let args = ["chat", "--session", "windows", "--server", url.as_str()];
    for (variables, coloured) in [(&[][..], true), (&[("NO_COLOR", "1")], false)] {
        let mut chat = Pty::start_sized(&args, &folder, variables, (24, 80));
        chat.sees("default · demo/scripted").await;
        chat.types("/agent\r");
        chat.sees("Reads twice").await;
        chat.types("\x1b[B");
        // Without colours, it is seen by its reverse.
        chat.picks("reviewer").await;
        shows(&mut chat, "chat-agents", &[]).await;
        assert_eq!(!chat.colours().is_empty(), coloured, "{:?}", chat.colours());
        chat.types("\x1b");
        chat.sees_no("Reads twice").await;
        chat.types("/model\r");
        chat.sees("another model of this provider").await;
        shows(&mut chat, "chat-models", &[]).await;
        chat.picks("what the agent default has").await;
    }
}

#[tokio::test]
async fn what_waits_for_its_turn_is_taken_back_from_its_window() {
    let server = Server::start().await;
    let mut chat = screens::chat(&server, "queue").await;
    chat.types("an endless story\r");
    chat.sees("model running").await;
    for text in ["first", "second", "third"] {
        chat.types(&format!("{text}\r"));
        chat.sees(&format!("queued: {text}")).await;
    }
    chat.types("\x11");
    chat.sees("queue: d removes").await;
    chat.types("\x1b[B");
    chat.picks("second").await;
    shows(&mut chat, "chat-queue", &[]).await;
    chat.types("e");
    chat.until("the second in the editor", |text| text.lines().any(|line| line.trim_end() == "second")).await;
    shows(&mut chat, "chat-queue-taken-back", &[]).await;
}

#[tokio::test]
async fn a_refused_answer_says_why_and_can_be_mended() {
    let server = Server::start().await;
    let _host = server.host().await;
    let mut chat = screens::chat(&server, "refused").await;
    chat.types("send a mail\r");
    chat.sees("may this run?").await;
    chat.types("e\r");
    chat.sees("run it with edited arguments").await;
    chat.types("\x15{\"to\":1}\r");
    chat.sees("at /to: value is not of type").await;
    shows(&mut chat, "chat-refused", &[]).await;
    chat.types("\x15{\"to\":\"right@example.com\",\"subject\":\"Hello\",\"body\":\"b\"}\r");
    chat.sees("sent to right@example.com").await;
}
