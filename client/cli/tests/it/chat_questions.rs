//! Questions in `agentloop chat`: texts, choices and remembered decisions.

use std::fs;

use crate::{chat::talk, served::Server};

fn sent(server: &Server) -> usize {
    fs::read_to_string(server.file("outbox")).map_or(0, |outbox| outbox.lines().count())
}

#[tokio::test]
async fn a_text_is_asked_for_and_given() {
    let server = Server::start().await;
    let mut chat = talk(&server, &[]).await;
    chat.types("which town\r");
    chat.sees("Which town?").await;
    chat.sees("your answer:").await;
    chat.types("\r");
    chat.sees("nothing is written: ctrl-X declines the question").await;
    chat.types("Ulm y\r");
    chat.sees("answered: Ulm y by tester").await;
    chat.sees("Answer: Ulm y.").await;
    chat.sees("ready").await;
}

#[tokio::test]
async fn a_form_is_filled_in_field_by_field() {
    let server = Server::start().await;
    let mut chat = talk(&server, &[]).await;
    chat.types("which person\r");
    chat.sees("1/2 Name (text)").await;
    chat.types("\r");
    chat.sees("an empty line answers nothing").await;
    chat.types("Ada\r");
    chat.sees("2/2 years (a whole number from 18 on; - leaves it out)").await;
    chat.types("12\r");
    chat.sees("must be at least 18").await;
    chat.sees("1/2 Name (text)").await;
    chat.types("\r");
    chat.sees("2/2 years").await;
    chat.types("\x7f\x7f36\r");
    chat.sees("filled in:").await;
    chat.sees("So it is").await;
}

#[tokio::test]
async fn a_question_is_declined() {
    let server = Server::start().await;
    let mut chat = talk(&server, &[]).await;
    chat.types("which town\r");
    chat.sees("your answer:").await;
    chat.types("\x18");
    chat.sees("declined by tester").await;
    chat.sees("the person declined").await;
}

#[tokio::test]
async fn one_of_several_options_is_chosen() {
    let server = Server::start().await;
    let mut chat = talk(&server, &[]).await;
    chat.types("which colour\r");
    chat.sees("↑↓ picks, Enter answers").await;
    chat.types("\r");
    chat.sees("nothing is picked").await;
    chat.types("\x1b[B");
    chat.sees("→  red").await;
    chat.types("\x1b[B");
    chat.sees("→  green").await;
    chat.types("\r");
    chat.sees("chosen: green by tester").await;
    chat.sees("Answer: green.").await;
}

#[tokio::test]
async fn several_options_are_chosen() {
    let server = Server::start().await;
    let mut chat = talk(&server, &[]).await;
    chat.types("which days\r");
    chat.sees("Space marks, Enter answers").await;
    chat.types("\r");
    chat.sees("nothing is marked").await;
    chat.types(" \x1b[B\x1b[B ");
    chat.sees("[x] Monday").await;
    chat.sees("[ ] Tuesday").await;
    chat.sees("[x] Friday").await;
    chat.types("\r");
    chat.sees("- Monday").await;
    chat.sees("• Friday.").await;
}

#[tokio::test]
async fn a_remembered_approval_is_not_asked_for_again_until_it_is_forgotten() {
    let server = Server::start().await;
    let _host = server.host().await;
    let mut chat = talk(&server, &["--session", "post"]).await;
    chat.types("two letters\r");
    chat.sees("may this run?").await;
    chat.types("r\r");
    chat.sees("run like calls unasked for").await;
    chat.sees("matches this call").await;
    // From exactly this call to its arguments to any.
    chat.types("\x12");
    chat.sees("/to is ann@example.com").await;
    chat.types("\x12");
    chat.sees_no("/to is ann@example.com").await;
    chat.types("x");
    chat.sees("does not match this call").await;
    chat.types("\x7f");
    chat.sees("matches this call").await;
    // Not for the run only.
    chat.types("\t\r");
    chat.sees("approved by tester, and remembered: allow send_email").await;
    chat.sees("Both letters are sent.").await;
    chat.sees("ready").await;
    assert_eq!(sent(&server), 2);

    chat.types("more letters\r");
    chat.sees("> more letters").await;
    chat.sees("ready").await;
    assert_eq!(sent(&server), 4, "{}", chat.text());

    chat.types("/rules\r");
    chat.sees("this session  allow send_email  (by tester)").await;
    chat.types("d");
    chat.sees("no decision is remembered").await;
    chat.types("\x1b");
    chat.sees_no("no decision is remembered").await;
    chat.types("yet more letters\r");
    chat.sees("may this run?").await;
}

#[tokio::test]
async fn a_remembered_denial_answers_the_next_call_too() {
    let server = Server::start().await;
    let _host = server.host().await;
    let mut chat = talk(&server, &[]).await;
    chat.types("two letters\r");
    chat.sees("may this run?").await;
    chat.types("d\r");
    chat.sees("deny like calls for").await;
    chat.sees("matches this call").await;
    chat.types("\x12\x12");
    chat.sees_no("the whole is").await;
    chat.sees("matches this call").await;
    chat.types("\r");
    chat.sees("Both letters are sent.").await;
    assert_eq!(sent(&server), 0);
}

#[tokio::test]
async fn an_answer_that_finds_no_server_is_given_again() {
    let mut server = Server::start().await;
    let _host = server.host().await;
    let mut chat = talk(&server, &[]).await;
    chat.types("send a mail\r");
    chat.sees("may this run?").await;
    chat.types("a\rdone by");
    chat.sees("done by").await;
    server.kill().await;
    chat.sees("reconnecting…").await;
    chat.types(" hand\r");
    chat.sees("cannot reach the server").await;
    server.start_again().await;
    chat.sees_no("reconnecting…").await;
    chat.types("\r");
    chat.sees("Done, it says: done by hand").await;
    assert_eq!(sent(&server), 0);
}
