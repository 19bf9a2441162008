//! The processes of the comparison.

use std::error::Error;
use std::ffi::OsStr;
use std::path::Path;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

/// A process that is killed when this is dropped.
pub(crate) struct Process {
    _child: Child,
    pub(crate) pid: u32,
}

impl Process {
    /// Keeps a process whose output is of no interest.
    pub(crate) fn of(child: Child) -> Result<Process, Box<dyn Error>> {
        let pid = child.id().ok_or("it ended at once")?;
        Ok(Process { _child: child, pid })
    }

    /// Starts a program in this folder, and returns it with the first line of its output that `find` makes something of.
    pub(crate) async fn start<T>(
        program: &OsStr,
        args: &[&str],
        folder: &Path,
        find: impl Fn(&str) -> Option<T>,
    ) -> Result<(Process, T), Box<dyn Error>> {
        let mut command = Command::new(program);
        command.args(args).current_dir(folder).stdin(Stdio::null()).kill_on_drop(true);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        // A server refuses variables that are not its own.
        for name in ["", "_DATA", "_BIN"] {
            command.env_remove(format!("AGENTLOOP_TEST_POSTGRES{name}"));
        }
        // Nothing is told to anybody outside.
        command.env("RESTATE_DISABLE_TELEMETRY", "true").env("RESTATE_LOG_FILTER", "warn,restate=info");
        let mut child = command.spawn()?;
        let pid = child.id().ok_or("it ended at once")?;
        let (sender, mut lines) = mpsc::unbounded_channel();
        forward(child.stdout.take().ok_or("no output")?, sender.clone());
        forward(child.stderr.take().ok_or("no output for errors")?, sender);
        while let Some(line) = lines.recv().await {
            if let Some(found) = find(&line) {
                return Ok((Process { _child: child, pid }, found));
            }
            eprintln!("{line}");
        }
        Err(format!("{} ended too early", program.display()).into())
    }
}

/// Reads all that a process says, so that it does not wait for a reader.
fn forward(stream: impl AsyncRead + Send + Unpin + 'static, lines: mpsc::UnboundedSender<String>) {
    let mut stream = BufReader::new(stream).lines();
    tokio::spawn(async move {
        while let Ok(Some(line)) = stream.next_line().await {
            // After its first word of interest nobody listens.
            let _unheard = lines.send(line);
        }
    });
}
