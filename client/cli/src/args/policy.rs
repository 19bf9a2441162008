//! Arguments of `agentloop policy` and its subcommands.

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
        /// Only rules of this session. Default: rules that apply to every run
        #[arg(long, value_name = "ID")]
        session: Option<String>,
    },
    /// Delete a remembered rule; it no longer applies to runs that start from now on
    Forget {
        /// Id of the rule, as `agentloop policy rules` lists it
        rule: String,
    },
}

/// Show the policy's decision on a tool call, and the rule that decides
///
/// Requests the decision from the server. Nothing runs.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  agentloop policy check send_email '{\"to\":\"x@example.com\"}'
  agentloop policy check send_email --session trip   with what is remembered for the session")]
pub(crate) struct PolicyCheckArgs {
    /// Name of the tool
    pub(crate) tool: String,
    /// Its arguments, a JSON object
    #[arg(default_value = "{}")]
    pub(crate) arguments: String,
    /// Use the rules of this run
    #[arg(long, value_name = "ID", conflicts_with_all = ["agent", "session"])]
    pub(crate) run: Option<String>,
    /// Use the rules of this configured agent
    #[arg(long, short, value_name = "NAME")]
    pub(crate) agent: Option<String>,
    /// Add the rules remembered for this session
    #[arg(long, short, value_name = "ID")]
    pub(crate) session: Option<String>,
}
