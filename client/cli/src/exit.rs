//! The end of the command: exit codes, on which scripts rely, and error messages.

use std::{io, path::Path, process::ExitCode};

use agentloop_client::{
    Error,
    host::HostError,
    v1::{ErrorReason, RunStatus},
};

use crate::terminal::{commands::quoted, format};

/// The exit codes of the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Success. A run that was followed completed.
    Completed = 0,
    /// The run, or the command, failed.
    Failed = 1,
    /// Wrong usage. The argument parser exits with this code, too.
    Usage = 2,
    /// The run was aborted, by ctrl-C or by another caller.
    Aborted = 3,
    /// The run waits for a human or an operator.
    Awaiting = 4,
    /// The server cannot be reached.
    Unreachable = 5,
    /// A second ctrl-C or another signal ended the command, or nobody reads its output. The run may still go on. 130 is the
    /// shell's convention.
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit as u8)
    }
}

impl Exit {
    /// The exit code for a run with this status.
    pub(crate) fn of(status: RunStatus) -> Exit {
        match status {
            RunStatus::Completed => Exit::Completed,
            RunStatus::Aborted => Exit::Aborted,
            RunStatus::AwaitingHuman | RunStatus::Paused => Exit::Awaiting,
            _ => Exit::Failed,
        }
    }
}

/// The reason why the command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// A call of the server failed.
    #[error("{}", explain(.0))]
    Client(#[from] Error),
    /// The tool host stopped.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The arguments contradict each other, or one is invalid.
    #[error("{0}")]
    Usage(String),
    /// Reading input or writing output failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The output of a run could not be written, though the run was followed.
    #[error("the output of the run could not be written: {0}")]
    Output(String),
    /// Any other failure, as a message for people.
    #[error("{0}")]
    Other(String),
}

impl Failure {
    /// True if the reader of the output is gone, as `head` is after its last line. The command has not failed then.
    pub(crate) fn is_closed_output(&self) -> bool {
        matches!(self, Failure::Io(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }

    /// A failure that names the file or folder, and the thing that was tried with it, such as `write`.
    pub(crate) fn cannot(tried: &str, path: &Path, error: &io::Error) -> Failure {
        Failure::Other(format!("cannot {tried} {}: {error}", path.display()))
    }

    /// The commands that help now, each with this option at its end. Empty if there are none.
    pub(crate) fn next_steps(&self, option: &str) -> String {
        let Failure::Client(error) = self else { return String::new() };
        let run = error.status().and_then(|status| status.metadata.get("run_id"));
        match (error.reason(), run) {
            (Some(ErrorReason::SessionBusy), Some(run)) => {
                let run = quoted(run);
                format!(
                    "\n  agentloop watch {run}{option}          shows that run to its end\n  \
                     agentloop abort --run {run}{option}    ends it now"
                )
            }
            _ => String::new(),
        }
    }

    pub(crate) fn exit(&self) -> Exit {
        match self {
            Failure::Client(Error::Endpoint(_)) | Failure::Usage(_) => Exit::Usage,
            Failure::Client(error) if error.is_unreachable() => Exit::Unreachable,
            Failure::Client(error) if error.code() == Some(tonic::Code::InvalidArgument) => Exit::Usage,
            Failure::Client(_)
            | Failure::Host(_)
            | Failure::Io(_)
            | Failure::Output(_)
            | Failure::Other(_) => Exit::Failed,
        }
    }
}

/// The error with the name of its reason, which the documentation explains.
fn explain(error: &Error) -> String {
    let words = in_one_line(error);
    match error.reason() {
        Some(reason) => {
            let name = format::enum_name(reason.as_str_name(), "ERROR_REASON_");
            format!("{words} [{name}]")
        }
        None => words,
    }
}

/// An error on one line. Details that the message contains already are dropped.
pub(crate) fn in_one_line(error: &Error) -> String {
    joined(&error.to_string())
}

fn joined(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for part in text.lines().map(str::trim).filter(|part| !part.is_empty()) {
        if !line.contains(part) {
            line.push_str(if line.is_empty() { "" } else { "; " });
            line.push_str(part);
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_line() {
        assert_eq!(joined("a: is wrong\n  a: is wrong\n  b: is too long"), "a: is wrong; b: is too long");
        assert_eq!(joined("gone"), "gone");
    }

    #[test]
    fn exit_codes_are_as_documented() {
        let codes =
            [Exit::Completed, Exit::Failed, Exit::Usage, Exit::Aborted, Exit::Awaiting, Exit::Unreachable];
        assert_eq!(codes.map(|exit| exit as u8), [0, 1, 2, 3, 4, 5]);
        assert_eq!(Failure::from(Error::Unreachable("refused".into())).exit(), Exit::Unreachable);
        assert_eq!(Failure::from(Error::Endpoint("no URL".into())).exit(), Exit::Usage);
        assert_eq!(Exit::of(RunStatus::Paused), Exit::Awaiting);
        assert_eq!(Exit::of(RunStatus::Failed), Exit::Failed);
    }
}
