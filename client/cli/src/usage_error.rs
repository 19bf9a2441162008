//! The report of wrong usage, on one line.

use std::{ffi::OsString, process::ExitCode};

use clap::{CommandFactory as _, error::ErrorKind};

use crate::{args::Cli, exit::Exit};

/// Prints a message of the argument parser: help and version unchanged, an error on one line.
/// `arguments` are those of the command line.
pub(crate) fn report(error: &clap::Error, arguments: impl Iterator<Item = OsString>) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp
        | ErrorKind::DisplayVersion
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            // It fails only if the reader has closed the output.
            let _ = error.print();
            u8::try_from(error.exit_code()).map_or(Exit::Usage.into(), ExitCode::from)
        }
        _ => {
            eprintln!("agentloop: {}", in_one_line(&error.to_string(), arguments));
            Exit::Usage.into()
        }
    }
}

/// The parser's error and tip, with the command that shows the help.
fn in_one_line(message: &str, arguments: impl Iterator<Item = OsString>) -> String {
    let is_of_help = |line: &&str| !line.starts_with("Usage:") && !line.starts_with("For more information");
    let lines = message.lines().map(str::trim).take_while(is_of_help).filter(|line| !line.is_empty());
    let line = lines.collect::<Vec<_>>().join(" ").replace(" tip: ", "; tip: ");
    let help = message
        .lines()
        .find_map(|line| line.strip_prefix("Usage: "))
        .map(|usage| {
            usage.split_whitespace().take_while(|word| is_command(word)).collect::<Vec<_>>().join(" ")
        })
        .filter(|command| !command.is_empty())
        .unwrap_or_else(|| given_command(arguments));
    format!("{} (see `{help} --help`)", line.strip_prefix("error: ").unwrap_or(&line))
}

/// The command that the arguments give. The parser does not name it with an error about a value.
fn given_command(arguments: impl Iterator<Item = OsString>) -> String {
    let mut command = Cli::command();
    let mut names = vec!["agentloop".to_owned()];
    for word in arguments.take_while(|word| word != "--") {
        if let Some(found) = command.find_subcommand(&word) {
            names.push(found.get_name().to_owned());
            command = found.clone();
        }
    }
    names.join(" ")
}

fn is_command(word: &str) -> bool {
    word.chars().all(|c| c.is_ascii_lowercase() || c == '-') && !word.starts_with('-')
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[track_caller]
    fn check(args: &[&str], expected: &str) {
        let error = Cli::try_parse_from(["agentloop"].iter().chain(args)).expect_err("wrong usage");
        let given = args.iter().map(OsString::from);
        assert_eq!(in_one_line(&error.to_string(), given), expected);
    }

    #[test]
    fn wrong_usage_is_said_in_one_line() {
        check(
            &["run"],
            "the following required arguments were not provided: <PROMPT> (see `agentloop run --help`)",
        );
        check(
            &["policy", "forget", "--nonsense"],
            "unexpected argument '--nonsense' found; tip: to pass '--nonsense' as a value, use '-- --nonsense' \
             (see `agentloop policy forget --help`)",
        );
        check(
            &["sesions"],
            "unrecognized subcommand 'sesions'; tip: a similar subcommand exists: 'sessions' (see `agentloop --help`)",
        );
        check(
            &["runs", "--status", "lost"],
            "invalid value 'lost' for '--status <STATUS>': no such status; there are queued, preparing, \
             model_running, tool_running, awaiting_human, backing_off, compacting, paused, completed, failed and \
             aborted (see `agentloop runs --help`)",
        );
        check(
            &["--output", "text", "sessions", "label", "trip", "team"],
            "invalid value 'team' for '[KEY=VALUE]...': must be KEY=VALUE (see `agentloop sessions label --help`)",
        );
    }
}
