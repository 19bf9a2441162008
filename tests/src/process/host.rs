//! Tool hosts as processes, in every language that has an example.

use std::path::{Path, PathBuf};

use agentloop_client::host::{HostError, ToolHost, ToolHostBuilder};
use tokio::process::Command;
use tokio::task::JoinHandle;

use super::child::{Process, lines_with};
use super::server::{Server, agentloop};
use super::{built, eventually, leave_out, top};
use crate::host::{Gate, tools};

/// A tool host and the file that its tools write to.
pub struct Host {
    /// The id that it says hello with.
    pub id: String,
    /// The process that it runs in.
    pub process: Process,
    effects: PathBuf,
}

impl Host {
    /// Starts the tests' own host, connected.
    pub async fn start(server: &Server, id: &str) -> Host {
        Host::start_at(server, id, &server.url()).await
    }

    /// Starts the tests' own host, connected by way of another address.
    pub async fn start_at(server: &Server, id: &str, url: &str) -> Host {
        let mut command = Command::new(built("examples/effects-host"));
        command.args(["--server", url]);
        Host::run(server, id, command).await
    }

    /// Starts the tests' own host with room for this many calls, connected to this address, and with its file in a folder.
    pub async fn start_in(folder: &Path, url: &str, id: &str, concurrency: usize) -> Host {
        let mut command = Command::new(built("examples/effects-host"));
        command.args(["--server", url, "--concurrency", &concurrency.to_string()]);
        Host::run_in(folder, id, command).await
    }

    /// Starts the example of a language, connected; `None` where it was not set up and needs not be.
    pub async fn example(server: &Server, language: &str) -> Option<Host> {
        let mut command = example_command(language)?;
        command.args(["--server", &server.address()]);
        Some(Host::run(server, &format!("{language}-1"), command).await)
    }

    /// Starts a language's example of extensions, connected; `None` where it was not set up and needs not be.
    pub async fn extensions(server: &Server, language: &str) -> Option<Host> {
        let mut command = Command::new(example_of(language)?.join("run-extensions"));
        command.args(["--server", &server.address()]);
        Some(Host::run(server, &format!("{language}-1"), command).await)
    }

    async fn run(server: &Server, id: &str, command: Command) -> Host {
        Host::run_in(&server.file(""), id, command).await
    }

    async fn run_in(folder: &Path, id: &str, mut command: Command) -> Host {
        let effects = folder.join(format!("{id}.effects"));
        command.args(["--host-id", id, "--effects"]).arg(&effects);
        let mut process = Process::start(id, command);
        process.line_with("ready").await;
        Host { id: id.to_owned(), process, effects }
    }

    /// The lines of its tools that contain `text`.
    pub fn did(&self, text: &str) -> Vec<String> {
        lines_with(&self.effects, text)
    }

    /// Waits until its tools wrote something that contains `text`.
    pub async fn does(&self, text: &str) -> String {
        eventually(&format!("{text:?} of {}", self.id), || async { self.did(text).pop() }).await
    }
}

/// Starts the host of the command `agentloop`, connected.
pub async fn of_the_command(server: &Server, id: &str, outbox: &Path) -> Process {
    let mut command = agentloop();
    command.args(["host", "--host-id", id, "--server", &server.url(), "--outbox"]).arg(outbox);
    let mut process = Process::start(id, command);
    process.line_with("connected").await;
    process
}

/// The example of a language as a command without options; `None` where it was not set up and needs not be.
pub fn example_command(language: &str) -> Option<Command> {
    let program = match language {
        "rust" => built("examples/host"),
        _ => example_of(language)?.join("run-host"),
    };
    Some(Command::new(program))
}

/// The example caller of a language, as [`example_command`].
pub fn caller_command(language: &str) -> Option<Command> {
    let program = match language {
        "rust" => built("examples/caller"),
        _ => example_of(language)?.join("run-caller"),
    };
    Some(Command::new(program))
}

/// The folder of a language's examples; `None` where they were not set up and need not be.
pub fn example_of(language: &str) -> Option<PathBuf> {
    let folder = top().join("client").join(language);
    if is_set_up(&folder) {
        return Some(folder);
    }
    leave_out(&format!("client/{language} (run-host --setup-only makes it ready)"));
    None
}

/// True if the language's set-up has run in this folder.
fn is_set_up(folder: &Path) -> bool {
    [".venv/installed", "dist/.sources", "bin/example-host"].iter().any(|made| folder.join(made).exists())
}

/// A host in this process with the tool `weather`, under this id and of the principal of this token. It ends when it is refused.
///
/// # Panics
/// Outside of a runtime.
pub fn of_principal(server: &Server, id: &str, token: &str) -> JoinHandle<Result<(), HostError>> {
    let host = ToolHost::builder(server.url()).host_id(id).token(token);
    let weather = tools(&Gate::default()).into_iter().filter(|tool| tool.name() == "weather");
    let host = weather.fold(host, ToolHostBuilder::tool).build().expect("a host");
    tokio::spawn(async move { host.run_until(std::future::pending()).await })
}
