//! Starts the command as a process, and waits for its output.

use std::process::{Output, Stdio};

use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines},
    process::{Child, ChildStdout, Command},
};

use agentloop_client_testing::timeout::soon;

/// The command with this server, without the environment variables that it reads.
pub(crate) fn agentloop(url: &str, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_agentloop"));
    if !matches!(args.first(), Some(&("serve" | "demo" | "token" | "cert"))) && !args.contains(&"--local") {
        command.args(["--server", url]);
    }
    command
        .args(args)
        .env_remove("AGENTLOOP_SERVER")
        .env_remove("AGENTLOOP_TOKEN")
        .env_remove("AGENTLOOP_CA_FILE")
        .env_remove("AGENTLOOP_CERT_FILE")
        .env_remove("AGENTLOOP_KEY_FILE")
        .env_remove("AGENTLOOP_AUTH_TOKENS")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

/// Runs the command to its end. Returns exit code, standard output and standard error.
pub(crate) async fn ended(url: &str, args: &[&str]) -> (i32, String, String) {
    let Output { status, stdout, stderr } =
        soon(agentloop(url, args).output()).await.expect("the command was built");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (status.code().expect("no signal ended it"), text(stdout), text(stderr))
}

/// A command that runs until a signal stops it.
pub(crate) struct Running {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Running {
        let mut child = command.spawn().expect("the command was built");
        let stdout = child.stdout.take().expect("it is piped");
        Running { child, lines: BufReader::new(stdout).lines() }
    }

    /// Starts the command, and waits for this text on standard error.
    pub(crate) async fn start_and_wait_for(command: Command, said: &str) -> Running {
        Running::start_and_wait_for_each(command, &[said]).await
    }

    /// Starts the command, and waits for these texts on standard error, one after the other.
    pub(crate) async fn start_and_wait_for_each(command: Command, said: &[&str]) -> Running {
        let mut running = Running::start(command);
        let mut heard = BufReader::new(running.child.stderr.take().expect("it is piped")).lines();
        for text in said {
            loop {
                let line = soon(heard.next_line()).await.expect("readable").expect("it goes on");
                if line.contains(text) {
                    break;
                }
            }
        }
        // The rest must be read, so that a full pipe does not block the command.
        tokio::spawn(async move { while let Ok(Some(_)) = heard.next_line().await {} });
        running
    }

    /// Waits for the next line of standard output.
    pub(crate) async fn line(&mut self) -> String {
        soon(self.lines.next_line()).await.expect("readable").expect("a line")
    }

    /// Sends a signal, such as `INT`.
    pub(crate) async fn signal(&self, signal: &str) {
        let pid = self.child.id().expect("it runs").to_string();
        let sent = Command::new("kill").args([&format!("-{signal}"), &pid]).status().await;
        assert!(sent.expect("there is a kill").success());
    }

    /// Waits for the end of the command, and returns its exit code.
    pub(crate) async fn code(mut self) -> i32 {
        soon(self.child.wait()).await.expect("it ran").code().expect("no signal ended it")
    }

    /// Waits for the end of the command, also by a signal.
    pub(crate) async fn gone(mut self) {
        soon(self.child.wait()).await.expect("it ran");
    }
}
