//! `agentloop top` in a terminal, against a server process.

use crate::{
    process::{Running, agentloop, ended},
    pty::Pty,
    screens::shows,
    served::Server,
};

/// The texts that depend on the time that a test takes, on every screen of this command.
const WORDS: [(&str, &str); 2] = [("since it was opened:", "<rest>"), ("demo/scripted  ", "<rest>")];

/// Starts the command on a screen of the usual size.
fn start(server: &Server) -> Pty {
    Pty::start_sized(&["top", "--server", &server.url()], &server.file(""), &[], (24, 80))
}

#[tokio::test]
async fn a_signal_gives_the_terminal_back() {
    let server = Server::start().await;
    for signal in ["TERM", "INT", "QUIT"] {
        let mut top = Pty::start(&server.url(), &["top"], &server.file(""));
        top.sees("no run is open").await;
        top.signal(signal).await;
        assert_eq!(top.ends().await.0, 130, "{signal}");
    }
}

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

#[tokio::test]
async fn the_trouble_of_a_model_is_read_to_its_end() {
    let server = Server::start().await;
    let run = agentloop(&server.url(), &["run", "the quota", "--run-id", "r-quota"]);
    let run = Running::start_and_wait_for(run, "it is tried again").await;
    let mut top = start(&server);
    top.sees("at the provider [model_rate_limited]").await;
    shows(&mut top, "top-trouble", &WORDS).await;
    top.types("\r");
    top.sees("error    The account may use 40000 tokens a minute").await;
    top.types(" ");
    top.sees_no("error    ").await;
    top.types("x");
    top.sees("Abort run r-quota?").await;
    top.types("y");
    top.sees("aborted r-quota").await;
    top.sees("no run is open").await;
    assert_eq!(run.code().await, 3);
}

#[tokio::test]
async fn keys_abort_a_run_and_answer_a_question() {
    let server = Server::start().await;
    let asks = async |prompt: &str, run_id: &str| {
        let (code, _, stderr) = ended(&server.url(), &["run", prompt, "--run-id", run_id]).await;
        assert_eq!(code, 4, "{stderr}");
    };
    asks("which colour", "r-colour").await;
    let mut top = start(&server);
    top.sees("Which colour?").await;
    top.types("x");
    top.sees("Abort run r-colour?").await;
    shows(&mut top, "top-abort", &WORDS).await;
    top.types("n");
    top.sees_no("Abort run").await;
    top.sees("Which colour?").await;
    top.types("xy");
    top.sees("aborted r-colour").await;
    top.sees("no run is open").await;

    asks("which town", "r-town").await;
    top.sees("Which town?").await;
    top.types("a");
    top.sees("Enter answers, Esc leaves it open").await;
    top.types("\r");
    top.sees("an empty line answers nothing").await;
    top.types("Ulm");
    shows(&mut top, "top-answer", &WORDS).await;
    top.types("\r");
    top.sees("answered: Ulm by tester").await;
    top.sees("no run is open").await;
    top.types("q");
    assert_eq!(top.ends().await.0, 0);
}
