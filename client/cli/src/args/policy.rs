//! The arguments of `agentloop policy`.

use clap::{Args, Subcommand};

/// See which tool calls may run, and why
#[derive(Debug, Args)]
pub(crate) struct PolicyArgs {
    #[command(subcommand)]
    pub(crate) command: PolicyCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    Check(PolicyCheckArgs),
    /// List the rules that were remembered with decisions
    Rules {
        /// Those of this session. Default: those of every run
        #[arg(long, value_name = "ID")]
        session: Option<String>,
    },
    /// Forget a remembered rule, for runs that start from now on
    Forget {
        /// The rule
        rule: String,
    },
}

/// Say what would become of a tool call, and which rule decides
///
/// Asks the server what would become of a call. Nothing runs.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  agentloop policy check send_email '{\"to\":\"x@example.com\"}'
  agentloop policy check send_email --session trip   with what is remembered for the session")]
pub(crate) struct PolicyCheckArgs {
    /// The tool
    pub(crate) tool: String,
    /// Its arguments, a JSON object
    #[arg(default_value = "{}")]
    pub(crate) arguments: String,
    /// By the rules of this run
    #[arg(long, value_name = "ID", conflicts_with_all = ["agent", "session"])]
    pub(crate) run: Option<String>,
    /// The configured agent
    #[arg(long, short, value_name = "NAME")]
    pub(crate) agent: Option<String>,
    /// With what is remembered for this session
    #[arg(long, short, value_name = "ID")]
    pub(crate) session: Option<String>,
}
