//! How the command ends: what scripts can rely on.

use std::{io, process::ExitCode};

use agentloop_client::{Error, host::HostError, v1::RunStatus};

/// The exit codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Done; a run completed.
    Completed = 0,
    /// The run, or the command, failed.
    Failed = 1,
    /// Wrong usage. Also what the argument parser exits with.
    Usage = 2,
    /// The run was aborted.
    Aborted = 3,
    /// The run waits for a human or an operator.
    Awaiting = 4,
    /// The server cannot be reached.
    Unreachable = 5,
    /// Left by ctrl-C, by the shell's convention; what became of the run is not known.
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit as u8)
    }
}

impl Exit {
    /// For a run that stands here.
    pub(crate) fn of(status: RunStatus) -> Exit {
        match status {
            RunStatus::Completed => Exit::Completed,
            RunStatus::Aborted => Exit::Aborted,
            RunStatus::AwaitingHuman | RunStatus::Paused => Exit::Awaiting,
            _ => Exit::Failed,
        }
    }
}

/// Why the command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// A call failed.
    #[error("{}", explain(.0))]
    Client(#[from] Error),
    /// The tool host stopped.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The arguments make no sense together.
    #[error("{0}")]
    Usage(String),
    /// Reading or writing failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

impl Failure {
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Failure::Client(Error::Endpoint(_)) | Failure::Usage(_) => Exit::Usage,
            Failure::Client(error) if error.is_unreachable() => Exit::Unreachable,
            Failure::Client(error) if error.code() == Some(tonic::Code::InvalidArgument) => Exit::Usage,
            Failure::Client(_) | Failure::Host(_) | Failure::Io(_) | Failure::Other(_) => Exit::Failed,
        }
    }
}

/// The error with the reason's name, which is what the documentation is searched for.
fn explain(error: &Error) -> String {
    let words = in_one_line(error);
    match error.reason() {
        Some(reason) => {
            format!("{words} [{}]", crate::terminal::names::plain(reason.as_str_name(), "ERROR_REASON_"))
        }
        None => words,
    }
}

/// An error on one line. Fields that the server names beside its message are left out where it has them already.
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
