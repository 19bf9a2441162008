//! Questions of `agentloop init`, one line each.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

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
        // Ctrl-C is a character while nothing is shown.
        if secret.contains(char::is_control) {
            return Err(Failure::Usage("nothing is written: the key has control characters".to_owned()));
        }
        Ok(secret)
    }

    async fn line(&mut self, question: String, secret: bool) -> Result<String, Failure> {
        match self {
            Answers::Stdin => {
                let read = tokio::task::spawn_blocking(move || read_line(&question, secret)).await;
                let line = read.map_err(|error| Failure::Other(error.to_string()))??;
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

/// Reads a line. The question goes to standard error, so that a script sees only results on standard output.
fn read_line(question: &str, secret: bool) -> io::Result<Option<String>> {
    // Before the question is there: what is typed in between would be seen.
    let hidden = if secret && io::stdin().is_terminal() { HiddenInput::start()? } else { None };
    eprint!("{question}");
    io::stderr().flush()?;
    let mut line = String::new();
    let read = io::stdin().lock().read_line(&mut line)?;
    if hidden.is_some() {
        eprintln!();
    }
    Ok((read > 0).then_some(line))
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
        // Signals are off, too: a ctrl-C would end the program and leave the terminal like this.
        hidden.local_modes.remove(LocalModes::ECHO | LocalModes::ISIG);
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
    }
}
