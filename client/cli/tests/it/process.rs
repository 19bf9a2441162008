//! Starting the command and waiting for what it says.

use std::process::{Output, Stdio};

use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines},
    process::{Child, ChildStdout, Command},
};

use agentloop_client_testing::server::soon;

/// The command against this server, with nothing from our environment that it would look at.
pub(crate) fn agentloop(url: &str, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_agentloop"));
    command
        .args(args)
        .args(["--server", url])
        .env_remove("AGENTLOOP_SERVER")
        .env_remove("AGENTLOOP_TOKEN")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

/// Runs it to its end: exit code, standard output, standard error.
pub(crate) async fn ended(url: &str, args: &[&str]) -> (i32, String, String) {
    let Output { status, stdout, stderr } =
        soon(agentloop(url, args).output()).await.expect("the command was built");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (status.code().expect("no signal ended it"), text(stdout), text(stderr))
}

/// A command that runs until it is told to stop.
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

    /// Starts it, and waits until it says this on standard error.
    pub(crate) async fn start_and_hear(command: Command, said: &str) -> Running {
        let mut running = Running::start(command);
        let mut heard = BufReader::new(running.child.stderr.take().expect("it is piped")).lines();
        loop {
            let line = soon(heard.next_line()).await.expect("readable").expect("it goes on");
            if line.contains(said) {
                break;
            }
        }
        // Whatever else it says must not block it.
        tokio::spawn(async move { while let Ok(Some(_)) = heard.next_line().await {} });
        running
    }

    /// The next line of standard output.
    pub(crate) async fn line(&mut self) -> String {
        soon(self.lines.next_line()).await.expect("readable").expect("a line")
    }

    /// Sends a signal, such as `INT`.
    pub(crate) async fn signal(&self, signal: &str) {
        let pid = self.child.id().expect("it runs").to_string();
        let sent = Command::new("kill").args([&format!("-{signal}"), &pid]).status().await;
        assert!(sent.expect("there is a kill").success());
    }

    /// Waits for its exit code.
    pub(crate) async fn code(mut self) -> i32 {
        soon(self.child.wait()).await.expect("it ran").code().expect("no signal ended it")
    }

    /// Waits until it is gone, however it went.
    pub(crate) async fn gone(mut self) {
        soon(self.child.wait()).await.expect("it ran");
    }
}
