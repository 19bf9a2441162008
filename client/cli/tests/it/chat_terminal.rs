//! `agentloop chat` and its terminal: sizes, pastes and unusual characters.

use std::fs;

use crate::{chat::talk, process::ended, pty::Pty, served::Server};

#[tokio::test]
async fn a_window_changes_its_size() {
    let server = Server::start().await;
    let _host = server.host().await;
    let mut chat = talk(&server, &[]).await;
    chat.types("hello\r");
    chat.sees("You said: hello").await;
    chat.sees("ready").await;

    chat.resize(5, 20);
    chat.types("send a mail\r");
    chat.sees("may this run?").await;
    chat.types("y\r");
    // A call that is not on the screen is not approved. Page by page, it is.
    chat.sees("not all of it").await;
    chat.types(&"\x1b[6~".repeat(40));
    chat.sees("y  yes, run it").await;
    chat.types("\r");
    chat.sees("ready").await;
    assert_eq!(fs::read_to_string(server.file("outbox")).expect("written").lines().count(), 1);

    chat.resize(50, 160);
    chat.sees("You said: hello").await;
    chat.sees("Done, it says: sent to wrong@example.com").await;
    chat.types("\x04");
    assert_eq!(chat.ends().await.0, 0);
}

#[tokio::test]
async fn a_paste_of_many_lines_is_not_sent_line_by_line() {
    let server = Server::start().await;
    let mut chat = talk(&server, &[]).await;
    let lines: Vec<String> = (1..=40).map(|n| format!("line {n}.")).collect();
    chat.pastes(&lines.join("\r"));
    chat.sees("[pasted text 1: 40 lines, 350 characters]").await;
    chat.sees("a new session: ask something").await;
    chat.types("\r");
    chat.sees("ready").await;
    chat.sees("line 40.").await;
    chat.types("\x1b[1;5H");
    chat.sees("> line 1.").await;
    chat.sees("  line 2.").await;
}

#[tokio::test]
async fn characters_of_every_width_are_written_and_taken_back() {
    let server = Server::start().await;
    let mut chat = talk(&server, &[]).await;
    chat.types("天气好🚀\x7f, naïve?");
    chat.sees("天气好, naïve?").await;
    chat.types("\r");
    chat.sees("> 天气好, naïve?").await;
    chat.sees("You said: 天气好, naïve?").await;
    chat.resize(12, 21);
    // Keys that arrive in the same instant as a new size are read with the next key: crossterm returns at the signal,
    // and what it polls is told of input only once.
    chat.sees("好,\nnaïve?").await;
    chat.types(&"宽".repeat(15));
    chat.sees(&"宽".repeat(10)).await;
}

#[tokio::test]
async fn colours_are_of_the_16_or_none() {
    let server = Server::start().await;
    let _host = server.host().await;
    // A terminal of 16 colours knows the sequences of one number alone.
    let is_colour = |number: u8| matches!(number, 30..=49 | 90..=107);
    for (variables, coloured) in [
        (&[][..], true),
        (&[("TERM", "linux")], true),
        (&[("NO_COLOR", "1")], false),
        (&[("TERM", "linux"), ("NO_COLOR", "1")], false),
    ] {
        let mut chat = Pty::start_with(&server.url(), &["chat"], &server.file(""), variables);
        chat.sees("Enter sends").await;
        chat.types("send a mail\r");
        chat.sees("may this run?").await;
        chat.sees("waits for your approval").await;
        let colours = chat.colours();
        assert_eq!(!colours.is_empty(), coloured, "{colours:?}");
        assert!(colours.iter().all(|colour| matches!(colour, vt100::Color::Idx(0..16))), "{colours:?}");
        let sequences = chat.style_sequences();
        let numbers = sequences.iter().flat_map(|sequence| sequence.split(';'));
        let numbers: Vec<u8> = numbers.map(|number| number.parse().unwrap_or_default()).collect();
        assert!(!numbers.iter().any(|number| matches!(number, 38 | 48 | 58)), "{sequences:?}");
        assert_eq!(numbers.iter().any(|number| is_colour(*number)), coloured, "{sequences:?}");
        assert!(numbers.contains(&2), "what is less important is dim in any case: {sequences:?}");
    }
}

#[tokio::test]
async fn a_mistyped_command_stays_and_quit_leaves() {
    let server = Server::start().await;
    let mut chat = talk(&server, &["--session", "trip"]).await;
    chat.types("/hepl\r");
    chat.sees("no command /hepl: /agent /help /model /new").await;
    chat.types("\x15/help\r");
    chat.sees("leave; a run goes on without you").await;
    chat.types("\x1b");
    chat.sees_no("leave; a run goes on without you").await;
    chat.types("/quit\r");
    let (code, left) = chat.ends().await;
    assert_eq!(code, 0, "{left}");
    assert!(left.contains("agentloop chat --session trip"), "{left}");
    assert_eq!(ended(&server.url(), &["sessions", "trip"]).await.0, 1, "nothing was sent");
}
