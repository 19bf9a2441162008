//! Screens of 40 columns and 20 rows, and messages that say what to do next.

use super::{SIZE, done, showed, shows, start, start_narrow};
use crate::{pty::Pty, served::Server};

#[tokio::test]
async fn a_narrow_chat_has_whole_choices_tokens_and_cost() {
    let server = Server::start().await;
    let _host = server.host().await;
    let mut chat = start_narrow(&server, &["chat", "--session", "mails"]);
    chat.sees("Enter sends").await;
    chat.types("send a mail\r");
    chat.sees("stop the run").await;
    chat.sees("waits for your approval  session").await;
    chat.sees("14 in, 8 out").await;
    shows(&mut chat, "chat-narrow-question", &[]).await;
    chat.types("n");
    chat.picks("no, do not run it").await;
    chat.types("\r");
    chat.sees("no, do not run it").await;
    chat.types("\r");
    chat.sees("denied by tester").await;
    chat.sees("ready").await;
    chat.types("\x0f");
    chat.sees("s  send a mail").await;
    chat.types("\x1b[B");
    chat.sees("completed, default").await;
    shows(&mut chat, "chat-narrow-sessions", &[]).await;
}

#[tokio::test]
async fn a_narrow_top_has_every_list() {
    let server = Server::start().await;
    let _host = server.host().await;
    let mut top = start_narrow(&server, &["top"]);
    top.sees("no run is open").await;
    top.sees("connected").await;
    done(&server, &["run", "--run-id", "r-mail", "send a mail"], 4).await;
    top.sees("may send_email run?").await;
    top.sees("questions: 1").await;
    // The meter of the first minute depends on the time that the test takes.
    let words = [("since it was opened:", "<rest>"), ("a minute:", "<rest>")];
    shows(&mut top, "top-narrow", &words).await;
}

#[tokio::test]
async fn usage_has_a_column_for_each_group() {
    let server = Server::start().await;
    done(&server, &["run", "hello"], 0).await;
    done(&server, &["run", "--agent", "reviewer", "hello"], 0).await;
    let args = ["usage", "--by", "agent,model", "--server", &server.url()];
    let (code, listed) = Pty::start_sized(&args, &server.file(""), &[], (SIZE.0, 140)).ends().await;
    assert_eq!(code, 0, "{listed}");
    showed(&listed, "usage", &[]);
}

#[tokio::test]
async fn a_busy_session_says_what_helps() {
    let server = Server::start().await;
    done(&server, &["run", "--session", "days", "--run-id", "r-days", "which days"], 4).await;
    for args in [&["run", "--session", "days", "more"][..], &["sessions", "days", "--delete"]] {
        let (code, said) = start(&server, args).ends().await;
        assert_eq!(code, 1, "{said}");
        showed(&said, "session-busy", &[(&server.url(), "<url>")]);
    }
    // The second command helps at once.
    done(&server, &["abort", "--run", "r-days"], 0).await;
    done(&server, &["run", "--session", "days", "more"], 0).await;
}
