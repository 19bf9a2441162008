//! `agentloop run` in a terminal, where it asks its questions.

use std::fs;

use crate::{pty::Pty, served::Server};

fn run(server: &Server, prompt: &str) -> Pty {
    Pty::start(&server.url(), &["run", prompt], &server.file(""))
}

#[tokio::test]
async fn a_stray_enter_is_no_text() {
    let server = Server::start().await;
    let mut run = run(&server, "which town");
    run.sees("your answer:").await;
    run.types("\r");
    run.sees("an empty line answers nothing: /decline declines").await;
    run.types("Ulm\r");
    run.sees("answered: Ulm by tester").await;
    let (code, said) = run.ends().await;
    assert!(code == 0 && said.contains("Answer: Ulm."), "{said}");
}

#[tokio::test]
async fn a_form_is_asked_for_field_by_field() {
    let server = Server::start().await;
    let mut run = run(&server, "which person");
    run.sees("1/2 Name (text):").await;
    run.types("\r");
    run.sees("an empty line answers nothing; /decline declines the question").await;
    run.types("Ada\r");
    run.sees("2/2 years (a whole number from 18 on; - leaves it out):").await;
    run.types("12\r");
    run.sees("the server refused it").await;
    run.sees("1/2 Name (text):").await;
    run.types("Ada\r36\r");
    run.sees("filled in: {\"name\":\"Ada\",\"years\":36} by tester").await;
    assert_eq!(run.ends().await.0, 0);
}

#[tokio::test]
async fn a_question_is_declined() {
    let server = Server::start().await;
    let mut run = run(&server, "which town");
    run.sees("your answer:").await;
    run.types("/decline none of them\r");
    run.sees("declined: none of them by tester").await;
    let (code, said) = run.ends().await;
    assert!(code == 0 && said.contains("the person declined: none of them"), "{said}");
}

#[tokio::test]
async fn a_stray_enter_is_no_choice() {
    let server = Server::start().await;
    let mut run = run(&server, "which days");
    run.sees("the numbers of your choice").await;
    run.types("\r");
    run.sees("an empty line chooses nothing").await;
    run.types("9\r");
    run.sees("`9` is no option: enter a number from 1 to 3").await;
    run.types("1,3\r");
    run.sees("chosen: Monday, Friday by tester").await;
    assert_eq!(run.ends().await.0, 0);
}

#[tokio::test]
async fn an_unknown_letter_explains_itself_and_arguments_are_edited_on_the_line() {
    let server = Server::start().await;
    let _host = server.host().await;
    let mut run = run(&server, "send a mail");
    run.sees("[y]es").await;
    run.types("\r");
    run.sees("an empty line decides nothing").await;
    run.types("x\r");
    run.sees("`x` is no answer: enter y, n, e, a or s").await;
    run.types("e {\"to\":\r");
    run.sees("no JSON").await;
    run.types("e {\"to\":\"right@example.com\",\"subject\":\"Hello\",\"body\":\"b\"}\r");
    run.sees("approved as").await;
    assert_eq!(run.ends().await.0, 0);
    let sent = fs::read_to_string(server.file("outbox")).expect("written");
    assert!(sent.contains("right@example.com") && sent.lines().count() == 1, "{sent}");
}
