//! Messages in `agentloop chat` while a run is live.

use crate::{chat::talk, served::Server};

#[tokio::test]
async fn words_wait_for_their_turn_and_can_be_taken_back() {
    let server = Server::start().await;
    let mut chat = talk(&server, &["--session", "s-1"]).await;
    chat.types("an endless story\r");
    chat.sees("model running").await;
    chat.sees("Enter queues").await;
    for text in ["first", "second", "third"] {
        chat.types(&format!("{text}\r"));
        chat.sees(&format!("queued: {text}")).await;
    }
    chat.types("\x11");
    chat.sees("queue: d removes").await;
    chat.types("\x1b[Bd");
    chat.sees_no("second").await;
    chat.types("\x1b");
    chat.sees_no("queue: d removes").await;

    chat.types("\x03");
    chat.sees("n: abort, the next one starts").await;
    chat.types("n");
    chat.sees("You said: first").await;
    chat.sees("You said: third").await;
    chat.sees("ready").await;
    assert!(!chat.text().contains("second"), "{}", chat.text());
}

#[tokio::test]
async fn what_waits_outlives_the_chat() {
    let server = Server::start().await;
    let mut chat = talk(&server, &["--session", "s-1"]).await;
    chat.types("an endless story\r");
    chat.sees("model running").await;
    chat.types("later\r");
    chat.sees("queued: later").await;
    chat.types("\x04");
    assert_eq!(chat.ends().await.0, 0);

    let mut again = talk(&server, &["--session", "s-1"]).await;
    again.sees("model running").await;
    again.sees("queued: later").await;
    again.types("\x03");
    again.sees("t: take them back").await;
    again.types("t");
    again.sees("aborted: ").await;
    again.sees("ready").await;
    again.sees_no("queued: later").await;
    again.types("!\r");
    again.sees("You said: later!").await;
}

#[tokio::test]
async fn a_run_is_told_something_on_its_way() {
    let server = Server::start().await;
    let _host = server.host().await;
    let mut chat = talk(&server, &[]).await;
    chat.types("send a mail\r");
    chat.sees("may this run?").await;
    chat.types("\x1b");
    chat.sees("Tab: answer").await;
    chat.types("hurry up\x13");
    chat.sees("> hurry up").await;
    chat.sees_no("queued:").await;
    chat.types("\ty\r");
    chat.sees("I hurry.").await;
    chat.sees("ready").await;
}
