//! `agentloop run` in a terminal, where it asks its questions.

use std::{cell::Cell, fs};

use crate::{pty::Pty, screens::shows, served::Server};

fn run(server: &Server, prompt: &str) -> Pty {
    Pty::start(&server.url(), &["run", prompt], &server.file(""))
}

/// Starts a run whose screen has the usual size, and no id that differs from test to test.
fn run_named(server: &Server, prompt: &str, run_id: &str) -> Pty {
    let url = server.url();
    let args = ["run", prompt, "--run-id", run_id, "--session", "kept", "--server", url.as_str()];
    Pty::start_sized(&args, &server.file(""), &[], (24, 80))
}

/// The seconds that a countdown shows.
fn seconds_left(screen: &str) -> Option<u64> {
    screen.split_once("next try in ")?.1.split_once('s')?.0.parse().ok()
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
async fn a_refused_answer_has_its_reason_once() {
    let server = Server::start().await;
    let _host = server.host().await;
    let mut run = run(&server, "send a mail");
    run.sees("[y]es").await;
    run.types("e {\"to\":\"x@example.com\",\"subject\":\"s\"}\r");
    run.sees("the server refused it").await;
    run.until("the question again", |text| text.matches("[y]es").count() == 2).await;
    let text = run.text();
    assert_eq!(text.matches("\"body\" is a required").count(), 1, "{text}");
}

/// The answer is for the question on the last lines, whichever came last.
#[tokio::test]
async fn of_two_questions_the_one_that_is_answered_is_shown_last() {
    let server = Server::start().await;
    let _host = server.host().await;
    let mut run = run(&server, "two cards");
    let is_last = |text: &str, one: &str, other: &str| {
        let asked = text.rsplit_once("[y]es").map_or("", |(before, _)| before);
        asked.contains(other) && asked.rfind(one) > asked.rfind(other)
    };
    run.until("the first question below the second", |text| is_last(text, "ann@", "bob@")).await;
    run.types("x\r");
    run.until("the same question after a slip", |text| {
        text.matches("[y]es").count() > 2 && is_last(text, "ann@", "bob@")
    })
    .await;
    run.types("y\r");
    run.until("the second question", |text| is_last(text, "bob@", "ann@")).await;
    run.types("n not him\r");
    run.sees("Both cards are sent.").await;
    let (code, said) = run.ends().await;
    assert_eq!(code, 0, "{said}");
}

#[tokio::test]
async fn a_server_that_goes_and_comes_back_is_told() {
    let mut server = Server::start().await;
    let mut run = run(&server, "count");
    run.sees("one two three").await;
    server.kill().await;
    run.sees("the connection was lost; reconnecting").await;
    server.start_again().await;
    run.sees("connected again").await;
    run.sees("twelve and out").await;
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

#[tokio::test]
async fn letters_that_need_more_or_mean_nothing_here_say_so() {
    let server = Server::start().await;
    let _host = server.host().await;
    let mut run = run_named(&server, "send a mail", "r-1");
    for (line, told) in [
        ("r", "`r` remembers a decision in `agentloop chat` alone"),
        ("d", "`d` remembers a decision in `agentloop chat` alone"),
        ("q", "`q` is no answer: enter y, n, e, a or s"),
        ("a", "`a` needs the text that stands for the result"),
    ] {
        run.until("an empty answer", |screen| screen.trim_end().ends_with("[s]top the run:")).await;
        run.types(&format!("{line}\r"));
        run.sees(told).await;
    }
    shows(&mut run, "run-letters", &[]).await;
    run.types("a sent by hand\r");
    run.sees("answered in the tool's place by tester").await;
    let (code, said) = run.ends().await;
    assert!(code == 0 && said.contains("Done, it says: sent by hand"), "{said}");
    assert!(!server.file("outbox").exists(), "the tool did not run");
}

#[tokio::test]
async fn arguments_are_edited_on_a_line_of_their_own() {
    let server = Server::start().await;
    let _host = server.host().await;
    let mut run = run_named(&server, "send a mail", "r-1");
    run.sees("[y]es").await;
    run.types("e\r");
    run.sees("new arguments, a JSON object:").await;
    run.types("right@example.com\r");
    run.sees("no JSON").await;
    run.types("e\r");
    run.until("the second line for arguments", |text| text.matches("new arguments").count() == 2).await;
    shows(&mut run, "run-edit", &[]).await;
    run.types("{\"to\":\"right@example.com\",\"subject\":\"Hello\",\"body\":\"b\"}\r");
    run.sees("approved as").await;
    assert_eq!(run.ends().await.0, 0);
    let sent = fs::read_to_string(server.file("outbox")).expect("written");
    assert!(sent.contains("right@example.com") && sent.lines().count() == 1, "{sent}");
}

#[tokio::test]
async fn a_retry_is_counted_down_on_one_line() {
    let server = Server::start().await;
    let mut run = run_named(&server, "have patience", "r-1");
    let first = Cell::new(0);
    let begins = |text: &str| seconds_left(text).inspect(|left| first.set(*left)).is_some();
    run.until("a countdown", begins).await;
    let goes_on = |text: &str| seconds_left(text).is_some_and(|left| left < first.get());
    run.until("a second less", goes_on).await;
    shows(&mut run, "run-retry", &[]).await;
    run.types("\x03");
    run.sees("✗ aborted").await;
    let (code, said) = run.ends().await;
    assert_eq!(code, 3, "{said}");
    assert!(said.contains("it is tried again at") && !said.contains("next try"), "{said}");
}
