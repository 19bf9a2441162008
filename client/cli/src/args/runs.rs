//! Arguments of the commands that look at runs: `runs` and `replay`.

use agentloop_client::v1::RunStatus;
use clap::Args;

use super::values::{Label, label, status};

/// List runs, or show one and what it waits for
///
/// Lists runs, newest first; or shows one, with what it waits for.
#[derive(Debug, Args)]
pub(crate) struct RunsArgs {
    /// Id of the run to show
    pub(crate) run: Option<String>,
    /// Only runs of this session
    #[arg(long, value_name = "ID", conflicts_with = "run")]
    pub(crate) session: Option<String>,
    /// Only runs with this status, such as `queued` or `awaiting_human`; may be repeated
    #[arg(long, value_name = "STATUS", conflicts_with = "run", value_parser = status)]
    pub(crate) status: Vec<RunStatus>,
    /// Only runs with this label; may be repeated
    #[arg(long, value_name = "KEY=VALUE", conflicts_with = "run", value_parser = label)]
    pub(crate) label: Vec<Label>,
    /// Only runs of this agent; may be repeated
    #[arg(long, value_name = "NAME", conflicts_with = "run")]
    pub(crate) agent: Vec<String>,
    /// Only runs of this model; may be repeated
    #[arg(long, value_name = "PROVIDER/MODEL", conflicts_with = "run")]
    pub(crate) model: Vec<String>,
    /// Only runs whose id or prompt contains this
    #[arg(long, value_name = "TEXT", conflicts_with = "run", default_value = "", hide_default_value = true)]
    pub(crate) text: String,
    /// At most this many runs
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) limit: u32,
    /// Print a line for each run, then one for each change of a run, until ctrl-C
    #[arg(long, short, conflicts_with_all = ["run", "limit"])]
    pub(crate) watch: bool,
}

/// Check that a run's journal leads to its current state
///
/// The server replays a run's events, one by one. It changes nothing and calls nobody. The exit code is 1 if the
/// result differs from the run's state.
#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// Id of the run
    pub(crate) run: String,
}
