//! A child process whose lines can be waited for.

use std::path::Path;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

use super::soon;

/// A running process. It is killed when this is dropped.
pub struct Process {
    name: String,
    child: Child,
    lines: mpsc::UnboundedReceiver<String>,
}

impl Process {
    /// Starts it, with nothing from our environment that it would look at.
    pub fn start(name: &str, mut command: Command) -> Process {
        for (variable, _) in std::env::vars_os() {
            let text = variable.to_string_lossy();
            if ["AGENTLOOP_", "OPENAI_", "ANTHROPIC_", "GEMINI_", "GOOGLE_"]
                .iter()
                .any(|prefix| text.starts_with(prefix))
            {
                command.env_remove(&variable);
            }
        }
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        // The number of lines is bounded by the test that causes them.
        let (sender, lines) = mpsc::unbounded_channel();
        forward(name, child.stdout.take().expect("it is piped"), sender.clone());
        forward(name, child.stderr.take().expect("it is piped"), sender);
        Process { name: name.to_owned(), child, lines }
    }

    /// Waits for a line, of standard output or standard error, that contains `text`.
    pub async fn line_with(&mut self, text: &str) -> String {
        let what = format!("{text:?} from {}", self.name);
        let found = async {
            loop {
                match self.lines.recv().await {
                    Some(line) if line.contains(text) => return line,
                    Some(_) => {}
                    None => panic!("{} ended before it said {text:?}", self.name),
                }
            }
        };
        soon(&what, found).await
    }

    /// The operating system's number for it.
    pub fn pid(&self) -> u32 {
        self.child.id().expect("it runs")
    }

    /// Sends a signal, such as `TERM`.
    pub async fn signal(&self, signal: &str) {
        let pid = self.pid().to_string();
        let sent = Command::new("kill").args([&format!("-{signal}"), &pid]).status().await;
        assert!(sent.expect("there is a kill").success(), "{signal} to {}", self.name);
    }

    /// SIGKILL, and waits until nothing is left of it.
    pub async fn kill(mut self) {
        self.child.kill().await.expect("it runs");
    }

    /// SIGKILL, and all that it said and nobody waited for.
    pub async fn killed(mut self) -> String {
        self.child.kill().await.expect("it runs");
        self.rest().await
    }

    /// Its exit code and all that nobody waited for, if it has ended.
    pub async fn has_ended(&mut self) -> Option<(i32, String)> {
        let status = self.child.try_wait().expect("it ran")?;
        Some((status.code().expect("no signal ended it"), self.rest().await))
    }

    /// Waits for its exit code and for all that it still says.
    pub async fn ended(mut self) -> (i32, String) {
        let what = format!("the end of {}", self.name);
        let status = soon(&what, self.child.wait()).await.expect("it ran");
        (status.code().expect("no signal ended it"), self.rest().await)
    }

    /// All that it still says.
    async fn rest(&mut self) -> String {
        let what = format!("the last words of {}", self.name);
        let mut said = String::new();
        while let Some(line) = soon(&what, self.lines.recv()).await {
            said.push_str(&line);
            said.push('\n');
        }
        said
    }
}

/// Every line is shown with the test's own output, too: a failed test comes with what its processes said.
fn forward(
    name: &str,
    stream: impl AsyncRead + Send + Unpin + 'static,
    lines: mpsc::UnboundedSender<String>,
) {
    let name = name.to_owned();
    let mut stream = BufReader::new(stream).lines();
    tokio::spawn(async move {
        while let Ok(Some(line)) = stream.next_line().await {
            println!("[{name}] {line}");
            // Once nobody waits for lines any more, they are only shown.
            let _unheard = lines.send(line);
        }
    });
}

/// A file's lines that contain `text`; none where there is no file.
pub fn lines_with(file: &Path, text: &str) -> Vec<String> {
    let content = std::fs::read_to_string(file).unwrap_or_default();
    content.lines().filter(|line| line.contains(text)).map(str::to_owned).collect()
}
