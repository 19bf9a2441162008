//! Arguments of `agentloop tools` and its subcommands.

use clap::{Args, Subcommand};

/// List the registered tools and the hosts that serve them
///
/// A declaration that is weaker than the one before it is refused: it has a lower effect class, or does not require the
/// approval that the tool required. The list shows it, until you accept it or forget the terms.
#[derive(Debug, Args)]
pub(crate) struct ToolsArgs {
    #[command(subcommand)]
    pub(crate) command: Option<ToolsCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ToolsCommand {
    /// Accept a declaration that was refused because it is weaker; its host is told to connect again
    Accept {
        /// Name of the refused tool
        name: String,
        /// The terms to accept, as the list shows them. Needed if several declarations were refused
        #[arg(long, value_name = "DIGEST")]
        terms: Option<String>,
    },
    /// Forget a tool that no host serves; the next declaration counts as the first one
    Forget {
        /// Name of the tool to forget
        name: String,
    },
}
