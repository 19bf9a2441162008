//! `chat`, in a terminal, against a server process.

use std::{fs, net::TcpListener, path::PathBuf};

use tempfile::TempDir;

use crate::{
    agent_loop::Script,
    process::{Running, agentloop, ended},
    pty::Pty,
    server::Fake,
    tool_host::Hosts,
};

const SCRIPT: &str = r#"
[[reply]]
when = { user_contains = "mail", step = 0 }
reasoning = "Mails need leave."
text = "I will send it."
tool_calls = [{ name = "send_email", arguments = { to = "wrong@example.com", subject = "Hello", body = "b" } }]

[[reply]]
when = { user_contains = "mail", step = 1 }
text = "Done, it says: {{result}}"

[[reply]]
when = { user_contains = "count" }
text = "one two three four five six seven eight nine ten eleven twelve and out"
delay_ms = 100

[[reply]]
when = { user_contains = "endless" }
text = "begun and then nothing"
delay_ms = 20000

[[reply]]
when = { user_contains = "hostile" }
text = "before \u001b]0;evil\u0007\u001b[?1049l\u001b[2J\u001b[H\u202eafter"

[[reply]]
text = "You said: {{user}}"
"#;

/// A server as a process, which can be killed and started again where it was.
struct Server {
    dir: TempDir,
    address: String,
    running: Option<Running>,
}

impl Server {
    async fn start() -> Server {
        let dir = tempfile::tempdir().expect("a directory");
        let free = TcpListener::bind("127.0.0.1:0").expect("a loopback port is free");
        let address = free.local_addr().expect("a bound socket has an address").to_string();
        drop(free);
        // A repository of its own, so that nothing around it counts.
        fs::create_dir(dir.path().join(".git")).expect("made");
        fs::write(dir.path().join("script.toml"), SCRIPT).expect("written");
        let config = format!(
            "[server]\nlisten = \"{address}\"\n[store]\npath = \"agentloop.db\"\n\
             [providers.demo]\nkind = \"scripted\"\nfile = \"script.toml\"\n\
             [agents.default]\nmodel = \"demo/scripted\"\n"
        );
        fs::write(dir.path().join("agentloop.toml"), config).expect("written");
        let mut server = Server { dir, address, running: None };
        server.start_again().await;
        server
    }

    async fn start_again(&mut self) {
        let config = self.file("agentloop.toml");
        let serve = agentloop("unused", &["serve", "--config", config.to_str().expect("text")]);
        self.running = Some(Running::start_and_hear(serve, "listens on").await);
    }

    async fn kill(&mut self) {
        let running = self.running.take().expect("it runs");
        running.signal("KILL").await;
        running.gone().await;
    }

    /// A tool host with `send_email`.
    async fn host(&self) -> Running {
        let outbox = self.file("outbox");
        let host = ["host", "--host-id", "h-1", "--outbox", outbox.to_str().expect("text")];
        Running::start_and_hear(agentloop(&self.url(), &host), "connected").await
    }

    /// A chat that has taken the screen: what is typed before that is a shell's.
    async fn chat(&self, args: &[&str]) -> Pty {
        let mut chat = Pty::start(&self.url(), &[&["chat"], args].concat(), self.dir.path());
        chat.sees("Enter sends").await;
        chat
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

#[tokio::test]
async fn one_talks_approves_with_edited_arguments_and_leaves() {
    let server = Server::start().await;
    let _host = server.host().await;
    let mut chat = server.chat(&["--session", "trip"]).await;
    chat.sees("a new session: ask something").await;

    chat.types("send a mail\r");
    chat.sees("Mails need leave.").await;
    chat.sees("I will send it.").await;
    chat.sees("may this run?").await;
    chat.sees("\"to\": \"wrong@example.com\"").await;
    chat.sees("awaiting human").await;

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
    let mut chat = server.chat(&[]).await;
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
    let mut chat = server.chat(&[]).await;
    chat.types("an endless story\r");
    chat.sees("model running").await;
    chat.types("\x03");
    chat.sees("aborted: ").await;
    chat.sees("ready").await;

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
    let mut chat = server.chat(&["--session", "s-1"]).await;
    chat.types("an endless story\r");
    chat.sees("model running").await;
    chat.types("\x04");
    let (code, left) = chat.ends().await;
    assert_eq!(code, 0, "{left}");
    assert!(left.contains("the run goes on: agentloop watch "), "{left}");

    let mut again = server.chat(&["--session", "s-1"]).await;
    again.sees("> an endless story").await;
    again.sees("model running").await;
    again.types("\x03");
    again.sees("aborted: ").await;
}

#[tokio::test]
async fn a_server_that_is_killed_and_started_again_is_waited_for() {
    let mut server = Server::start().await;
    let mut chat = server.chat(&[]).await;
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
    let mut chat = server.chat(&[]).await;
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
    let mut chat = server.chat(&["--session", "first"]).await;
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
}

#[tokio::test]
async fn a_hostile_answer_does_not_steer_the_terminal() {
    let server = Server::start().await;
    let mut chat = server.chat(&[]).await;
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
    server.chat(&[]).await.sees("instructions: ").await;
}

#[tokio::test]
async fn a_signal_gives_the_terminal_back() {
    let server = Server::start().await;
    let mut chat = server.chat(&[]).await;
    chat.sees("ask something").await;
    assert!(chat.is_taken());
    chat.signal("TERM").await;
    assert_eq!(chat.ends().await.0, 130);
}

#[tokio::test]
async fn a_chat_needs_a_terminal_and_a_server() {
    let fake = Fake::start(Script::default(), Hosts::default()).await;
    let url = fake.url();
    let (code, _, stderr) = ended(&url, &["chat"]).await;
    assert_eq!(code, 2, "{stderr}");
    assert!(stderr.contains("needs a terminal"), "{stderr}");
    drop(fake);
    let (code, left) = Pty::start(&url, &["chat"], &std::env::temp_dir()).ends().await;
    assert_eq!(code, 5, "{left}");
    assert!(left.contains("cannot reach the server"), "{left}");
}
