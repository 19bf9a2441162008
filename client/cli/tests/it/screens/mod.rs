//! Whole screens, kept as text in `screens/`: one or more for each command that people use by hand.
//!
//! With `KEEP_SCREENS=1` each test writes its files anew. A screen may be half drawn then: read the difference, and run the
//! tests again without it, before you commit it. Ids, times and addresses stand there as words in angle brackets.

mod narrow;
mod normal;

use std::{fs, path::PathBuf};

use self::normal::normal;
use crate::{
    process::ended,
    pty::Pty,
    served::Server,
    setup::{VARIABLES, free_address},
};

/// The size of the screens here: what a terminal has that nobody has made larger.
const SIZE: (u16, u16) = (24, 80);

/// Texts that differ from run to run, each with the word that stands for it.
type Words<'w> = &'w [(&'w str, &'w str)];

/// The kept screen of this name; with `KEEP_SCREENS=1`, this one is kept first.
#[expect(clippy::disallowed_methods, reason = "whoever runs the tests says if screens are kept")]
fn kept(name: &str, screen: &str, words: Words<'_>) -> String {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/it/screens").join(format!("{name}.txt"));
    if std::env::var("KEEP_SCREENS").is_ok_and(|value| value == "1") {
        fs::write(&file, normal(screen, words)).expect("written");
    }
    fs::read_to_string(&file).expect("the screen is kept")
}

/// Waits until the screen is the one that is kept.
pub(crate) async fn shows(pty: &mut Pty, name: &str, words: Words<'_>) {
    let kept = kept(name, &pty.text(), words);
    pty.until(&format!("the screen {name}:\n{kept}"), |text| normal(text, words) == kept).await;
}

/// Compares a screen that does not change any more.
#[track_caller]
fn showed(screen: &str, name: &str, words: Words<'_>) {
    assert_eq!(normal(screen, words), kept(name, screen, words), "the screen {name}");
}

/// Starts a command against this server on a screen of the usual size.
fn start(server: &Server, args: &[&str]) -> Pty {
    Pty::start_sized(&[args, &["--server", &server.url()]].concat(), &server.file(""), &[], SIZE)
}

/// The same on a narrow and low screen.
fn start_narrow(server: &Server, args: &[&str]) -> Pty {
    Pty::start_sized(&[args, &["--server", &server.url()]].concat(), &server.file(""), &[], (20, 40))
}

/// A chat in this session, on a screen of the usual size.
pub(crate) async fn chat(server: &Server, session: &str) -> Pty {
    let mut chat = start(server, &["chat", "--session", session]);
    chat.sees("Enter sends").await;
    chat
}

/// Runs a command that must end with this code.
async fn done(server: &Server, args: &[&str], code: i32) {
    let (ended_with, _, stderr) = ended(&server.url(), args).await;
    assert_eq!(ended_with, code, "{args:?}: {stderr}");
}

#[tokio::test]
async fn a_stray_enter_answers_nothing() {
    let server = Server::start().await;
    let mut chat = chat(&server, "stray").await;
    chat.types("which colour\r");
    chat.sees("Enter answers").await;
    chat.types("\r");
    chat.sees("nothing is picked").await;
    shows(&mut chat, "chat-stray-enter", &[]).await;

    let mut run = start(&server, &["run", "which days", "--run-id", "r-1", "--session", "days"]);
    run.sees("the numbers of your choice").await;
    run.types("\r");
    run.sees("an empty line chooses nothing").await;
    shows(&mut run, "run-stray-enter", &[(&server.url(), "<url>")]).await;
}

#[tokio::test]
async fn half_an_answer_stays_on_the_screen() {
    let server = Server::start().await;
    let mut chat = chat(&server, "half").await;
    chat.types("a saga\r");
    chat.sees("once upon").await;
    chat.types("\x03");
    chat.sees("aborted: ").await;
    chat.sees("ready").await;
    // The words that had come by then, and their number, depend on the machine.
    shows(&mut chat, "chat-cut-off", &[("once upon", "<rest>"), ("ready", "<rest>")]).await;
}

#[tokio::test]
async fn a_chat_follows_its_session() {
    let server = Server::start().await;
    let _host = server.host().await;
    let mut chat = chat(&server, "shared").await;
    chat.types("hello\r");
    chat.sees("You said: hello").await;
    chat.sees("ready").await;
    done(&server, &["run", "--session", "shared", "from elsewhere"], 0).await;
    chat.sees("You said: from elsewhere").await;
    done(&server, &["run", "--session", "shared", "--run-id", "r-mail", "send a mail"], 4).await;
    chat.sees("may this run?").await;
    shows(&mut chat, "chat-follows", &[]).await;
}

#[tokio::test]
async fn a_chat_without_a_run_says_that_the_server_is_away() {
    let mut server = Server::start().await;
    let mut chat = chat(&server, "quiet").await;
    chat.types("hello\r");
    chat.sees("You said: hello").await;
    chat.sees("ready").await;
    server.kill().await;
    chat.sees("reconnecting…").await;
    shows(&mut chat, "chat-away", &[]).await;
    server.start_again().await;
    chat.sees("ready").await;
    done(&server, &["run", "--session", "quiet", "from elsewhere"], 0).await;
    chat.sees("You said: from elsewhere").await;
}

#[tokio::test]
async fn the_server_says_what_it_is_and_which_models_it_has() {
    let server = Server::start().await;
    let (code, said) = start(&server, &["info"]).ends().await;
    assert_eq!(code, 0, "{said}");
    let providers = said.split_once("PROVIDER  MODELS").expect("a table of the providers").1;
    assert!(providers.contains("\ndemo      none"), "{said}");
}

#[tokio::test]
async fn a_table_that_is_too_wide_has_several_lines_for_each_row() {
    let server = Server::start().await;
    let prompt = "the ferry to Bergen, and what it costs with a car and two bicycles";
    done(&server, &["run", "--session", "01a216b0-f8dd-7093-8014-4b3022dd0389", prompt], 0).await;
    let args = ["sessions", "--server", &server.url()];
    let (_, listed) = Pty::start_sized(&args, &server.file(""), &[], (24, 80)).ends().await;
    showed(&listed, "sessions-narrow", &[]);
}

#[tokio::test]
async fn sessions_are_found_by_title_or_first_prompt() {
    let server = Server::start().await;
    done(&server, &["run", "--session", "trip-1", "the ferry to Bergen"], 0).await;
    done(&server, &["sessions", "rename", "trip-1", "Ferries"], 0).await;
    done(&server, &["run", "--session", "days-2", "which days"], 4).await;
    done(&server, &["run", "--session", "work-3", "the minutes of the meeting"], 0).await;
    let mut chat = chat(&server, "other").await;
    chat.types("\x0f");
    chat.sees("the minutes of the meeting").await;
    shows(&mut chat, "chat-sessions", &[]).await;
    chat.types("FERR");
    chat.sees("with: FERR").await;
    chat.sees_no("the minutes").await;
    shows(&mut chat, "chat-sessions-filtered", &[]).await;

    let (_, listed) = start(&server, &["sessions"]).ends().await;
    showed(&listed, "sessions", &[]);
}

#[tokio::test]
async fn messages_are_found_by_their_words() {
    let server = Server::start().await;
    for (session, prompt) in [("trip-1", "the ferry to Bergen"), ("work-3", "the minutes of the meeting")] {
        done(&server, &["run", "--session", session, prompt], 0).await;
    }
    let (code, found) = start(&server, &["search", "ferry"]).ends().await;
    assert_eq!(code, 0, "{found}");
    showed(&found, "search", &[]);
    let (code, found) = start(&server, &["search", "--session", "work", "ferry"]).ends().await;
    assert_eq!((code, found.trim_end()), (0, "no message has these words"));
}

#[tokio::test]
async fn the_place_of_the_database_is_said_at_the_start() {
    let (home, folder) = (tempfile::tempdir().expect("one"), tempfile::tempdir().expect("another"));
    fs::write(folder.path().join("agentloop.db"), "").expect("written");
    let home = home.path().to_str().expect("text");
    let here = folder.path().to_str().expect("text");
    let variables = [
        ("AGENTLOOP_SERVER_LISTEN", "127.0.0.1:0"),
        ("AGENTLOOP_LOG_LEVEL", "warn"),
        ("HOME", home),
        ("XDG_DATA_HOME", ""),
        ("NO_COLOR", "1"),
    ];
    let mut serve = Pty::start_sized(&["serve"], folder.path(), &variables, SIZE);
    serve.sees("listens on").await;
    let words = [(home, "<home>"), (here, "<folder>"), ("listens on", "<rest>")];
    shows(&mut serve, "serve", &words).await;
    serve.signal("TERM").await;
    serve.ends().await;
}

#[tokio::test]
async fn a_server_is_set_up_and_checked() {
    let folder = tempfile::tempdir().expect("a folder");
    let here = folder.path().to_str().expect("text");
    let address = free_address();
    let mut variables = VARIABLES.map(|name| (name, "")).to_vec();
    variables.extend([("HOME", here), ("AGENTLOOP_SERVER_LISTEN", &*address), ("NO_COLOR", "1")]);
    let start = |args: &[&str]| Pty::start_sized(args, folder.path(), &variables, SIZE);
    let words = [(here, "<folder>"), (&*address, "<address>"), ("disk", "<rest>")];

    let mut init = start(&["init", "--config", "agentloop.toml"]);
    init.sees("Number:").await;
    init.types("5\r");
    let (code, screen) = init.ends().await;
    assert_eq!(code, 0, "{screen}");
    showed(&screen, "init", &words);
    let (code, screen) = start(&["doctor", "--config", "agentloop.toml"]).ends().await;
    assert_eq!(code, 0, "{screen}");
    showed(&screen, "doctor", &words);
    fs::write(folder.path().join("empty.toml"), "").expect("written");
    let (code, screen) = start(&["doctor", "--config", "empty.toml"]).ends().await;
    assert_eq!(code, 1, "{screen}");
    showed(&screen, "doctor-failed", &words);
}

#[tokio::test]
async fn a_retry_counts_down() {
    let server = Server::start().await;
    let mut chat = chat(&server, "patience").await;
    chat.types("have patience\r");
    chat.sees("next try in").await;
    chat.sees("waits for the next try").await;
    shows(&mut chat, "chat-retry", &[]).await;
}

#[tokio::test]
async fn a_long_paste_is_folded() {
    let server = Server::start().await;
    let mut chat = chat(&server, "paste").await;
    chat.types("what is in ");
    chat.pastes(&(1..=40).map(|n| format!("line {n}.")).collect::<Vec<_>>().join("\r"));
    chat.sees("[pasted text 1: 40 lines, 350 characters]").await;
    shows(&mut chat, "chat-folded-paste", &[]).await;

    // Backspace deletes the mark as one character, and ctrl-Z brings it back with its text.
    chat.types(" please\x1b[1;5D\x1b[D\x7f");
    chat.sees("what is in  please").await;
    chat.types("\x1a");
    chat.sees("characters] please").await;
    // The cursor jumps over it: this letter stands before it.
    chat.types("\x1b[D:");
    chat.sees("what is in :[pasted text 1").await;
    shows(&mut chat, "chat-mark-edited", &[]).await;
    chat.types("\r");
    chat.sees("line 40. please").await;
}

#[tokio::test]
async fn the_last_prompt_comes_back_after_a_restart() {
    let mut server = Server::start().await;
    let mut before = chat(&server, "again").await;
    for prompt in ["hello", "and goodbye"] {
        before.types(&format!("{prompt}\r"));
        before.sees(&format!("You said: {prompt}")).await;
        before.sees("ready").await;
    }
    before.types("\x04");
    assert_eq!(before.ends().await.0, 0);
    server.kill().await;
    server.start_again().await;
    let mut after = chat(&server, "again").await;
    after.sees("You said: and goodbye").await;
    after.types("\x1b[A");
    after.until("the prompt in the editor too", |text| text.matches("and goodbye").count() == 3).await;
    shows(&mut after, "chat-recalled", &[]).await;
}

#[tokio::test]
async fn commands_are_explained_and_a_mistyped_one_stays() {
    let server = Server::start().await;
    let mut chat = chat(&server, "help").await;
    chat.types("/help\r");
    chat.sees("leave; a run goes on without you").await;
    shows(&mut chat, "chat-help", &[]).await;
    chat.types("\x1b");
    chat.sees_no("leave; a run goes on without you").await;
    chat.types("/hepl\r");
    chat.sees("sends it as text").await;
    shows(&mut chat, "chat-mistyped", &[]).await;
}

#[tokio::test]
async fn what_waits_is_listed_with_the_command_that_answers() {
    let server = Server::start().await;
    let _host = server.host().await;
    done(&server, &["run", "--run-id", "r-days", "which days"], 4).await;
    done(&server, &["run", "--run-id", "r-mail", "send a mail"], 4).await;
    let (_, listed) = start(&server, &["approve"]).ends().await;
    showed(&listed, "approve", &[(&server.url(), "<url>")]);
}

#[tokio::test]
async fn the_tools_of_a_host_are_listed() {
    let server = Server::start().await;
    let _host = server.host().await;
    let (_, listed) = start(&server, &["tools"]).ends().await;
    showed(&listed, "tools", &[(env!("CARGO_PKG_VERSION"), "<version>")]);
}

#[tokio::test]
async fn one_screen_has_the_runs_hosts_models_and_questions() {
    let server = Server::start().await;
    let _host = server.host().await;
    let mut top = start(&server, &["top"]);
    top.sees("no run is open").await;
    top.sees("connected").await;
    done(&server, &["run", "--run-id", "r-mail", "send a mail"], 4).await;
    top.sees("may send_email run?").await;
    top.sees("questions: 1").await;
    // The meter of the first minute depends on the time that the test takes.
    let words = [("since it was opened:", "<rest>"), ("demo/scripted  ", "<rest>")];
    shows(&mut top, "top", &words).await;
    top.types("a");
    top.sees("May send_email run").await;
    shows(&mut top, "top-question", &words).await;
}
