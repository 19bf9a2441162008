//! Questions of `agentloop init`, one line each.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use tokio::sync::oneshot;

use crate::exit::Failure;

/// The answers of the person at the terminal, or lines of a script.
#[derive(Debug)]
pub(super) enum Answers {
    /// Lines of standard input, from a person or a script.
    Stdin,
    /// Fixed lines, for tests.
    #[cfg(test)]
    Given(std::collections::VecDeque<String>),
}

impl Answers {
    pub(super) fn of_stdin() -> Answers {
        Answers::Stdin
    }

    /// Asks until the answer is not empty, or takes the default.
    pub(super) async fn ask(&mut self, question: &str, default: Option<&str>) -> Result<String, Failure> {
        let shown = default.map_or(String::new(), |default| format!(" [{default}]"));
        loop {
            let line = self.line(format!("{question}{shown}: "), false).await?;
            match (line.trim(), default) {
                ("", Some(default)) => return Ok(default.to_owned()),
                ("", None) => eprintln!("an empty line answers nothing; ctrl-C ends this"),
                (answer, _) => return Ok(answer.to_owned()),
            }
        }
    }

    /// Asks for a secret, which is not shown. An empty one is an answer.
    pub(super) async fn ask_secret(&mut self, question: &str) -> Result<String, Failure> {
        let secret = self.line(format!("{question}: "), true).await?.trim().to_owned();
        if secret.contains(char::is_control) {
            return Err(Failure::Usage("nothing is written: the key has control characters".to_owned()));
        }
        Ok(secret)
    }

    /// Reads a line. The question goes to standard error, so that a script sees only results on standard output.
    async fn line(&mut self, question: String, secret: bool) -> Result<String, Failure> {
        match self {
            Answers::Stdin => {
                // Before the question is printed: a person may type as soon as it is there.
                let _hidden = if secret && io::stdin().is_terminal() { HiddenInput::start()? } else { None };
                eprint!("{question}");
                io::stderr().flush()?;
                let line = read_line().await?;
                line.ok_or_else(|| {
                    let message = "nothing is written: the input ended before every question was answered; give \
                                   --provider and --model";
                    Failure::Usage(message.to_owned())
                })
            }
            #[cfg(test)]
            Answers::Given(lines) => Ok(lines.pop_front().expect("an answer is given")),
        }
    }
}

/// Reads a line. The thread ends with the process if nobody waits for it any more: the read of a terminal cannot be stopped.
async fn read_line() -> io::Result<Option<String>> {
    let (sender, read) = oneshot::channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        let read = io::stdin().lock().read_line(&mut line);
        // The receiver is gone when a signal has ended the command.
        let _ = sender.send(read.map(|bytes| (bytes > 0).then_some(line)));
    });
    read.await.unwrap_or_else(|_| Err(io::Error::other("the input cannot be read")))
}

/// A terminal that does not show what is typed, until this is dropped.
struct HiddenInput {
    #[cfg(unix)]
    before: rustix::termios::Termios,
}

impl HiddenInput {
    #[cfg(unix)]
    fn start() -> io::Result<Option<HiddenInput>> {
        use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
        let before = tcgetattr(io::stdin())?;
        let mut hidden = before.clone();
        hidden.local_modes.remove(LocalModes::ECHO);
        tcsetattr(io::stdin(), OptionalActions::Now, &hidden)?;
        Ok(Some(HiddenInput { before }))
    }

    #[cfg(not(unix))]
    fn start() -> io::Result<Option<HiddenInput>> {
        Ok(None)
    }
}

#[cfg(unix)]
impl Drop for HiddenInput {
    fn drop(&mut self) {
        use rustix::termios::{OptionalActions, tcsetattr};
        // The terminal may be gone; then there is nothing to give back.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
        // The end of the line was not shown either.
        eprintln!();
    }
}
