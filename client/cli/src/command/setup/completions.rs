//! `agentloop completions`: prints the completion script of a shell.

use std::io::{self, Write as _};

use crate::{
    args::{Cli, CompletionsArgs},
    exit::{Exit, Failure},
};

pub(crate) fn completions(args: &CompletionsArgs) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::whole_command(), "agentloop", &mut script);
    io::stdout().write_all(&script)?;
    Ok(Exit::Completed)
}
