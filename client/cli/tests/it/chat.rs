//! `agentloop chat` in a terminal, against a server process.

use std::fs;

use crate::{process::ended, pty::Pty, served::Server};
use agentloop_client_testing::{agent_loop::Script, server::FakeServer, tool_host::Hosts};

/// Starts a chat, and waits until it has taken the screen. Keys typed before would be lost.
pub(crate) async fn talk(server: &Server, args: &[&str]) -> Pty {
    let mut chat = Pty::start(&server.url(), &[&["chat"], args].concat(), &server.file(""));
    chat.sees("Enter sends").await;
    chat
}

#[tokio::test]
async fn one_talks_approves_with_edited_arguments_and_leaves() {
    let server = Server::start().await;
    let _host = server.host().await;
    let mut chat = talk(&server, &["--session", "trip"]).await;
    chat.sees("a new session: ask something").await;

    chat.types("send a mail\r");
    chat.sees("Mails need leave.").await;
    chat.sees("I will send it.").await;
    chat.sees("may this run?").await;
    chat.sees("\"to\": \"wrong@example.com\"").await;
    chat.sees("waits for your approval").await;

    chat.types("e\r");
    chat.sees("run it with edited arguments").await;
    // All of it goes, something else comes.
    chat.types("\x15");
    chat.sees("a JSON object").await;
    chat.types("{\"to\":\"right@example.com\",\"subject\":\"Hello\"\r");
    chat.sees("no JSON").await;
    chat.types(",\"body\":\"b\"}\r");
    chat.sees("completed in").await;
    chat.sees("sent to right@example.com").await;
    chat.sees("ready").await;
    let sent = fs::read_to_string(server.file("outbox")).expect("written");
    assert!(sent.contains("right@example.com") && !sent.contains("wrong@example.com"), "{sent}");

    chat.types("\x04");
    let (code, left) = chat.ends().await;
    assert_eq!(code, 0, "{left}");
    assert!(left.contains("agentloop chat --session trip"), "{left}");
}

#[tokio::test]
async fn a_call_is_denied_and_the_model_goes_on() {
    let server = Server::start().await;
    let _host = server.host().await;
    let mut chat = talk(&server, &[]).await;
    chat.types("send a mail\r");
    chat.sees("may this run?").await;
    chat.types("n\rnot today\r");
    chat.sees("denied (not today) by tester").await;
    chat.sees("✗ send_email").await;
    chat.sees("Done, it says:").await;
    assert!(!server.file("outbox").exists());
}

#[tokio::test]
async fn ctrl_c_aborts_the_run_and_the_chat_goes_on() {
    let server = Server::start().await;
    let mut chat = talk(&server, &[]).await;
    chat.types("a saga\r");
    chat.sees("once upon").await;
    chat.types("\x03");
    chat.sees("aborted: ").await;
    chat.sees("ready").await;
    let text = chat.text();
    assert!(text.contains("once upon") && text.contains("[The answer above was cut off"), "{text}");

    chat.types("still there?\r");
    chat.sees("You said: still there?").await;
    chat.sees("ready").await;
    chat.types("\x03");
    chat.sees("leaves").await;
    chat.types("\x03");
    assert_eq!(chat.ends().await.0, 0);
}

#[tokio::test]
async fn a_run_outlives_the_chat_that_is_left() {
    let server = Server::start().await;
    let mut chat = talk(&server, &["--session", "s-1"]).await;
    chat.types("an endless story\r");
    chat.sees("model running").await;
    chat.types("\x04");
    let (code, left) = chat.ends().await;
    assert_eq!(code, 0, "{left}");
    assert!(left.contains("the run goes on: agentloop watch "), "{left}");

    let mut again = talk(&server, &["--session", "s-1"]).await;
    again.sees("> an endless story").await;
    again.sees("model running").await;
    again.types("\x03");
    again.sees("aborted: ").await;
}

#[tokio::test]
async fn a_server_that_is_killed_and_started_again_is_waited_for() {
    let mut server = Server::start().await;
    let mut chat = talk(&server, &[]).await;
    chat.types("count\r");
    chat.sees("one two three").await;
    server.kill().await;
    chat.sees("reconnecting…").await;
    server.start_again().await;
    chat.sees_no("reconnecting…").await;
    chat.sees("one two three four five six seven eight nine ten eleven twelve and out").await;
    chat.sees("ready").await;
    let seen = chat.text().matches("one two three").count();
    assert_eq!(seen, 1, "what was said before the kill is taken back:\n{}", chat.text());
}

#[tokio::test]
async fn a_question_survives_the_server_and_is_answered_afterwards() {
    let mut server = Server::start().await;
    let host = server.host().await;
    let mut chat = talk(&server, &[]).await;
    chat.types("send a mail\r");
    chat.sees("may this run?").await;
    server.kill().await;
    chat.sees("reconnecting…").await;
    server.start_again().await;
    chat.sees_no("reconnecting…").await;
    chat.types("y\r");
    chat.sees("Done, it says: sent to wrong@example.com").await;
    drop(host);
}

#[tokio::test]
async fn sessions_are_switched_and_scrolled() {
    let server = Server::start().await;
    let mut chat = talk(&server, &["--session", "first"]).await;
    for n in 1..=8 {
        chat.types(&format!("message {n}.\r"));
        chat.sees(&format!("You said: message {n}.")).await;
        chat.sees("ready").await;
    }
    chat.sees_no("> message 1.").await;
    chat.types("\x1b[5~");
    chat.sees("> message 1.").await;
    chat.types("\x1b[6~");
    chat.sees("You said: message 8.").await;

    chat.types("\x0e");
    chat.sees("a new session: ask something").await;
    chat.types("elsewhere\r");
    chat.sees("You said: elsewhere").await;
    chat.sees("ready").await;

    chat.types("\x0f");
    chat.sees(" sessions: ").await;
    // The last touched is the first of the list, after the line for a new one.
    chat.sees("  16  ").await;
    chat.types("\x1b[B\x1b[B\r");
    chat.sees("You said: message 8.").await;
    chat.sees("session first").await;

    // Typed text filters the list. The other session has no title, so the list shows its first prompt.
    chat.types("\x0f");
    chat.sees("completed       default     elsewhere").await;
    chat.types("ELSE");
    chat.sees("with: ELSE").await;
    chat.sees_no("a new session").await;
    chat.types("\r");
    chat.sees("> elsewhere").await;
}

#[tokio::test]
async fn a_hostile_answer_does_not_steer_the_terminal() {
    let server = Server::start().await;
    let mut chat = talk(&server, &[]).await;
    chat.types("be hostile\r");
    chat.sees("before after").await;
    chat.sees("> be hostile").await;
    assert!(chat.is_taken());
    assert_eq!(chat.titles(), [""; 0]);
}

#[tokio::test]
async fn instruction_files_are_named() {
    let server = Server::start().await;
    fs::write(server.file("AGENTS.md"), "be brief").expect("written");
    talk(&server, &[]).await.sees("instructions: ").await;
}

#[tokio::test]
async fn a_signal_gives_the_terminal_back() {
    let server = Server::start().await;
    for signal in ["TERM", "INT", "QUIT"] {
        let mut chat = talk(&server, &[]).await;
        chat.sees("ask something").await;
        assert!(chat.is_taken());
        chat.signal(signal).await;
        assert_eq!(chat.ends().await.0, 130, "{signal}");
    }
}

#[tokio::test]
async fn a_chat_needs_a_terminal_and_a_server() {
    let fake = FakeServer::start(Script::default(), Hosts::default()).await;
    let url = fake.url();
    let (code, _, stderr) = ended(&url, &["chat"]).await;
    assert_eq!(code, 2, "{stderr}");
    assert!(stderr.contains("needs a terminal"), "{stderr}");
    drop(fake);
    let (code, left) = Pty::start(&url, &["chat"], &std::env::temp_dir()).ends().await;
    assert_eq!(code, 5, "{left}");
    assert!(left.contains("cannot reach the server"), "{left}");
}

#[tokio::test]
async fn a_session_that_others_begin_appears() {
    let server = Server::start().await;
    let mut chat = talk(&server, &["--session", "trip"]).await;
    chat.sees("a new session: ask something").await;
    let (code, _, stderr) = ended(&server.url(), &["run", "--session", "trip", "from elsewhere"]).await;
    assert_eq!(code, 0, "{stderr}");
    chat.sees("You said: from elsewhere").await;
}

#[tokio::test]
async fn what_others_start_and_ask_in_the_session_appears() {
    let mut server = Server::start().await;
    let _host = server.host().await;
    let mut chat = talk(&server, &["--session", "trip"]).await;
    chat.sees("a new session: ask something").await;
    chat.types("hello\r");
    chat.sees("You said: hello").await;
    chat.sees("ready").await;

    let (code, _, stderr) = ended(&server.url(), &["run", "--session", "trip", "from elsewhere"]).await;
    assert_eq!(code, 0, "{stderr}");
    chat.sees("from elsewhere").await;
    chat.sees("You said: from elsewhere").await;
    chat.sees("ready").await;

    // A run that asks, in a session that this chat did not start: its question can be answered here.
    let asked = ended(&server.url(), &["run", "--session", "trip", "send a mail"]).await;
    assert_eq!(asked.0, 4, "{}", asked.2);
    chat.sees("may this run?").await;
    chat.types("n\rnot today\r");
    chat.sees("denied (not today) by tester").await;
    chat.sees("ready").await;

    server.kill().await;
    server.start_again().await;
    let (code, _, stderr) = ended(&server.url(), &["run", "--session", "trip", "after the restart"]).await;
    assert_eq!(code, 0, "{stderr}");
    chat.sees("You said: after the restart").await;
}
