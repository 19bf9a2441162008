//! Child processes, and what the kernel says of what they used.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::Failure;

/// Time that a process has to become ready.
const START: Duration = Duration::from_secs(120);

/// A process that is killed when this is dropped.
pub(crate) struct Process {
    child: Child,
    /// Its output. The number of lines is small.
    lines: mpsc::UnboundedReceiver<String>,
    pid: u32,
}

impl Process {
    /// Starts a program without anything of our environment that a server would look at.
    pub(crate) fn start(program: &Path, args: &[&OsStr]) -> Result<Process, Failure> {
        let mut command = Command::new(program);
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.kill_on_drop(true);
        for (variable, _) in std::env::vars_os() {
            if ["AGENTLOOP_", "OPENAI_", "ANTHROPIC_", "GEMINI_", "GOOGLE_", "OTEL_"]
                .iter()
                .any(|of| variable.to_string_lossy().starts_with(of))
            {
                command.env_remove(variable);
            }
        }
        let mut child = command.spawn()?;
        let (sender, lines) = mpsc::unbounded_channel();
        forward(child.stdout.take().ok_or("no standard output")?, sender.clone());
        forward(child.stderr.take().ok_or("no standard error")?, sender);
        let pid = child.id().ok_or("it ended at once")?;
        Ok(Process { child, lines, pid })
    }

    /// Starts this program in one of its roles, and waits until it says that it is ready.
    pub(crate) async fn role(args: &[&str]) -> Result<(Process, String), Failure> {
        let args: Vec<&OsStr> = std::iter::once("role").chain(args.iter().copied()).map(OsStr::new).collect();
        let mut process = Process::start(&std::env::current_exe()?, &args)?;
        let said = process.line(START, |line| line.strip_prefix("ready ").map(str::to_owned)).await?;
        Ok((process, said))
    }

    /// Waits for a line that `find` makes something of.
    pub(crate) async fn line<T>(
        &mut self,
        patience: Duration,
        find: impl Fn(&str) -> Option<T>,
    ) -> Result<T, Failure> {
        let found = async {
            while let Some(line) = self.lines.recv().await {
                if let Some(found) = find(&line) {
                    return Ok(found);
                }
                eprintln!("{line}");
            }
            Err(Failure::from("a process ended too early"))
        };
        timeout(patience, found).await?
    }

    /// Waits for its end and returns what it said last.
    pub(crate) async fn result(mut self) -> Result<String, Failure> {
        let mut last = String::new();
        while let Some(line) = self.lines.recv().await {
            last = line;
        }
        if self.child.wait().await?.success() { Ok(last) } else { Err("a process failed".into()) }
    }

    /// Kills it with SIGKILL.
    pub(crate) async fn kill(mut self) -> Result<(), Failure> {
        Ok(self.child.kill().await?)
    }

    /// SIGTERM, and waits until it has ended well. A build that notes what it does writes that at its end.
    pub(crate) async fn end(mut self) -> Result<(), Failure> {
        // The shell's own, since not every machine has a program of that name.
        let sent = Command::new("sh").args(["-c", &format!("kill -TERM {}", self.pid)]).status().await?;
        let ended = timeout(START, self.child.wait()).await??;
        if sent.success() && ended.success() { Ok(()) } else { Err("the server did not end well".into()) }
    }

    /// The resources that it has used so far.
    pub(crate) fn usage(&self) -> Result<Usage, Failure> {
        Usage::of(self.pid)
    }

    /// Resident memory now, in bytes.
    pub(crate) fn resident(&self) -> Result<u64, Failure> {
        status(self.pid, "VmRSS:")
    }

    /// The most resident memory since the start or the last [`Self::forget_peak`], in bytes.
    pub(crate) fn peak(&self) -> Result<u64, Failure> {
        status(self.pid, "VmHWM:")
    }

    /// Begins to look for a peak anew.
    pub(crate) fn forget_peak(&self) -> Result<(), Failure> {
        Ok(std::fs::write(proc(self.pid).join("clear_refs"), "5")?)
    }
}

fn forward(stream: impl AsyncRead + Send + Unpin + 'static, lines: mpsc::UnboundedSender<String>) {
    let mut stream = BufReader::new(stream).lines();
    tokio::spawn(async move {
        while let Ok(Some(line)) = stream.next_line().await {
            // Nobody may listen any more; the process must not wait for that.
            let _unheard = lines.send(line);
        }
    });
}

/// The resources that a process has used since its start.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Usage {
    /// Nanoseconds on a CPU, of threads that still live.
    pub(crate) cpu: u64,
    /// Bytes handed to the disk.
    pub(crate) written: u64,
    /// Times that a thread went to sleep by itself.
    pub(crate) switches: u64,
}

impl Usage {
    /// The use of this very process.
    pub(crate) fn own() -> Result<Usage, Failure> {
        Usage::of(std::process::id())
    }

    fn of(pid: u32) -> Result<Usage, Failure> {
        let mut usage = Usage::default();
        for task in std::fs::read_dir(proc(pid).join("task"))? {
            let task = task?.path();
            // A thread may end while we look.
            let Ok(schedule) = std::fs::read_to_string(task.join("schedstat")) else { continue };
            usage.cpu += schedule.split(' ').next().ok_or("no time")?.parse::<u64>()?;
            let status = std::fs::read_to_string(task.join("status")).unwrap_or_default();
            usage.switches += number(&status, "voluntary_ctxt_switches:").unwrap_or_default();
        }
        let io = std::fs::read_to_string(proc(pid).join("io"))?;
        usage.written = number(&io, "write_bytes:").ok_or("no count of bytes")?;
        Ok(usage)
    }

    /// The resources used since `before`.
    pub(crate) fn since(self, before: Usage) -> Usage {
        Usage {
            cpu: self.cpu.saturating_sub(before.cpu),
            written: self.written.saturating_sub(before.written),
            switches: self.switches.saturating_sub(before.switches),
        }
    }
}

fn proc(pid: u32) -> PathBuf {
    Path::new("/proc").join(pid.to_string())
}

fn number(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

fn status(pid: u32, name: &str) -> Result<u64, Failure> {
    let text = std::fs::read_to_string(proc(pid).join("status"))?;
    Ok(number(&text, name).ok_or("no such line")? * 1024)
}
